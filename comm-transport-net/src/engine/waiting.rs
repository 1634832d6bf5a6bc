//! Set-up futures that wait for the backend.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use comm_core::{Error, ErrorKind, Result};

use super::{Engine, Shared, lock};

/// The wakers of futures that wait, by number.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    wakers: BTreeMap<u64, (Waker, Instant)>,
    next: u64,
}

impl Waiting {
    /// Takes out the wakers of everybody, or only those whose deadline has passed.
    ///
    /// They are woken, and dropped, without the lock: a waker may own the future that waits.
    pub(super) fn due(&mut self, everybody: bool, now: Instant) -> Vec<Waker> {
        let due: Vec<u64> = self
            .wakers
            .iter()
            .filter(|(_, (_, deadline))| everybody || *deadline <= now)
            .map(|(&number, _)| number)
            .collect();
        due.iter()
            .filter_map(|number| self.wakers.remove(number))
            .map(|(waker, _)| waker)
            .collect()
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    /// The next deadline; `None` if nobody waits.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.wakers.values().map(|&(_, deadline)| deadline).min()
    }
}

/// Waits until `poll` has a value, without blocking a thread.
///
/// Cancellation safe: a dropped future leaves nothing behind but what `poll` owns.
pub(crate) struct Ready<F> {
    engine: Arc<Engine>,
    what: &'static str,
    deadline: Instant,
    poll: F,
    number: Option<u64>,
}

impl<F> Ready<F> {
    /// Asks `poll` whenever the backend has moved, until `deadline`; `what` is waited for.
    pub(crate) const fn new(
        engine: Arc<Engine>,
        what: &'static str,
        deadline: Instant,
        poll: F,
    ) -> Self {
        Self {
            engine,
            what,
            deadline,
            poll,
            number: None,
        }
    }
}

impl<T, F: FnMut() -> Result<Option<T>> + Unpin> Future for Ready<F> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let this = &mut *self;
        if let Some(done) = (this.poll)().transpose() {
            return Poll::Ready(done);
        }
        if Instant::now() >= this.deadline {
            return Poll::Ready(Err(Error::new(
                ErrorKind::Timeout,
                "the peer did not connect in time; check that it is alive and that no firewall \
                 is between the hosts",
            )
            .with("waiting_for", this.what)));
        }
        this.number = Some(
            this.engine
                .wait(this.number, context.waker(), this.deadline),
        );
        // Once more, since what came before the waker was noted woke nobody.
        if let Some(done) = (this.poll)().transpose() {
            return Poll::Ready(done);
        }
        match this.engine.failure() {
            Some(error) => Poll::Ready(Err(error.clone())),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for Ready<F> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = lock(&self.engine.waiting).wakers.remove(&number);
            drop(waker);
        }
    }
}

impl Shared {
    /// Notes a waker; it is woken once, when the backend has moved or the deadline has passed.
    fn wait(&self, number: Option<u64>, waker: &Waker, deadline: Instant) -> u64 {
        let mut waiting = lock(&self.waiting);
        let number = number.unwrap_or_else(|| {
            waiting.next += 1;
            waiting.next
        });
        let replaced = waiting.wakers.insert(number, (waker.clone(), deadline));
        self.demand();
        drop(waiting);
        drop(replaced);
        self.ring();
        number
    }
}
