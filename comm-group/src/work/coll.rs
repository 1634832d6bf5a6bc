//! [`CollWork`]: several works as one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use comm_core::{AsyncWork, Completer, Drive, Error, Result, Waited, Work, WorkBuilder};

use super::{is_a_work, lock, may_wait_for, when_done};

/// Several works as one: it ends when all of them have ended.
///
/// It fails if one of them failed, with the failure of the first of these in the order of the list.
/// Cancelling it cancels those that have not ended.
///
/// ```
/// use comm_core::Work;
/// use comm_group::CollWork;
///
/// let (first, completer) = Work::channel();
/// let second = Work::ready(Ok("there"));
/// let both = CollWork::new([first.as_async_work(), second.as_async_work()]);
/// assert!(!both.is_done());
/// completer.complete(Ok(1));
/// both.wait()?;
/// # Ok::<(), comm_core::Error>(())
/// ```
#[must_use = "dropping the handle detaches: errors of the works then go unnoticed"]
pub struct CollWork {
    work: Work<()>,
}

is_a_work!(CollWork = ());

impl CollWork {
    /// These works as one; without works it has ended.
    pub fn new(works: impl IntoIterator<Item = Arc<dyn AsyncWork>>) -> Self {
        let works: Arc<[Arc<dyn AsyncWork>]> = works.into_iter().collect();
        let canceller = Arc::clone(&works);
        let (work, completer) = WorkBuilder::new()
            .try_cancel(move || {
                // All of them, not only up to the first that agrees.
                let taken = canceller.iter().filter(|work| work.cancel()).count();
                taken > 0
            })
            .driver(Arc::new(All(Arc::clone(&works))))
            .channel();
        let pending = Arc::new(Pending {
            // One more, for this function.
            left: AtomicUsize::new(works.len() + 1),
            first_failure: Mutex::new(None),
            completer: Mutex::new(Some(completer)),
        });
        for (index, member) in works.iter().enumerate() {
            let pending = Arc::clone(&pending);
            when_done(member, move |outcome| {
                if let Err(error) = outcome {
                    pending.note(index, error);
                }
                pending.one_less();
            });
        }
        pending.one_less();
        Self { work }
    }

    /// Both as one.
    pub fn join(self, other: Self) -> Self {
        Self::new([self.work.as_async_work(), other.work.as_async_work()])
    }
}

impl FromIterator<Arc<dyn AsyncWork>> for CollWork {
    fn from_iter<I: IntoIterator<Item = Arc<dyn AsyncWork>>>(works: I) -> Self {
        Self::new(works)
    }
}

struct Pending {
    left: AtomicUsize,
    /// With its place in the list.
    first_failure: Mutex<Option<(usize, Error)>>,
    completer: Mutex<Option<Completer<()>>>,
}

impl Pending {
    fn note(&self, index: usize, error: Error) {
        let mut first = lock(&self.first_failure);
        if first.as_ref().is_none_or(|(known, _)| index < *known) {
            *first = Some((index, error));
        }
    }

    fn one_less(&self) {
        // AcqRel: the last one sees the failures that the others have noted.
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let failure = lock(&self.first_failure).take();
        let completer = lock(&self.completer).take();
        if let Some(completer) = completer {
            completer.complete(failure.map_or(Ok(()), |(_, error)| Err(error)));
        }
    }
}

/// Drives one work after the other.
struct All(Arc<[Arc<dyn AsyncWork>]>);

impl Drive for All {
    fn drive(&self, done: &dyn Fn() -> bool, deadline: Option<Instant>) -> bool {
        for work in &*self.0 {
            match work.wait_deadline(deadline) {
                Ok(Waited::TimedOut) => return true,
                // The failure of the wait: `may_wait` tells it.
                Err(_) if !work.is_done() => return false,
                // Failures of works are noted elsewhere.
                Ok(Waited::Done) | Err(_) => {}
            }
        }
        // The thread that ended the last of them is about to end this one.
        done()
    }

    fn may_wait(&self) -> Result<()> {
        self.0.iter().try_for_each(|work| may_wait_for(&**work))
    }
}
