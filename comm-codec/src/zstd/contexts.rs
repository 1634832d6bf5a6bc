//! [`Contexts`]: a bounded pool of compressors and decompressors.
//!
//! # Contract
//!
//! * At most `max` contexts exist; each is in one call at a time. The one used last is taken first:
//!   its tables are still in the cache.
//! * [`Contexts::try_take`] never waits, and leaves what becomes free to those who wait in
//!   [`Contexts::take_within`]: who compresses has another way, who decompresses has none.
//! * A context whose call panicked is thrown away.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use comm_core::Result;
use zstd::zstd_safe::{CCtx, CParameter, DCtx};

use super::{failed, no_memory};

pub(super) struct Contexts {
    level: i32,
    max: usize,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    /// Free ones; the last was used last.
    idle: Vec<Context>,
    in_use: usize,
    /// How many callers wait for one.
    waiting: usize,
}

impl Contexts {
    pub(super) fn new(level: i32, max: usize) -> Self {
        Self {
            level,
            max,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// A context, unless all are in use or waited for.
    pub(super) fn try_take(&self) -> Option<Taken<'_>> {
        let mut state = self.lock();
        if state.waiting > 0 {
            return None;
        }
        self.take(&mut state)
    }

    /// A context; waits for one, at most for `patience`.
    pub(super) fn take_within(&self, patience: Duration) -> Option<Taken<'_>> {
        let mut state = self.lock();
        if let Some(taken) = self.take(&mut state) {
            return Some(taken);
        }
        // A time that no clock can show is no limit.
        let deadline = Instant::now().checked_add(patience);
        state.waiting += 1;
        let taken = loop {
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            let waited = self.freed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(taken) = self.take(&mut state) {
                break Some(taken);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break None;
            }
        };
        state.waiting -= 1;
        taken
    }

    fn take(&self, state: &mut State) -> Option<Taken<'_>> {
        if state.in_use == self.max {
            return None;
        }
        state.in_use += 1;
        Some(Taken {
            context: state.idle.pop().unwrap_or_else(|| Context::new(self.level)),
            home: self,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contexts")
            .field("level", &self.level)
            .field("max", &self.max)
            .field("in_use", &self.lock().in_use)
            .finish()
    }
}

/// What one call needs, made when it is first needed.
#[derive(Default)]
pub(super) struct Context {
    level: i32,
    encoder: Option<CCtx<'static>>,
    decoder: Option<DCtx<'static>>,
}

impl Context {
    fn new(level: i32) -> Self {
        Self {
            level,
            ..Self::default()
        }
    }

    /// The compressor; each of its calls starts afresh with the same parameters.
    pub(super) fn encoder(&mut self) -> Result<&mut CCtx<'static>> {
        if self.encoder.is_none() {
            let mut encoder = CCtx::try_create().ok_or_else(no_memory)?;
            encoder
                .set_parameter(CParameter::CompressionLevel(self.level))
                .map_err(failed)?;
            self.encoder = Some(encoder);
        }
        self.encoder.as_mut().ok_or_else(no_memory)
    }

    /// The decompressor; each of its calls starts afresh.
    pub(super) fn decoder(&mut self) -> Result<&mut DCtx<'static>> {
        if self.decoder.is_none() {
            self.decoder = Some(DCtx::try_create().ok_or_else(no_memory)?);
        }
        self.decoder.as_mut().ok_or_else(no_memory)
    }
}

/// A context in use; goes back when it is dropped.
pub(super) struct Taken<'a> {
    context: Context,
    home: &'a Contexts,
}

impl Deref for Taken<'_> {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut Context {
        &mut self.context
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let context = std::mem::take(&mut self.context);
        let mut state = self.home.lock();
        state.in_use -= 1;
        if !thread::panicking() {
            state.idle.push(context);
        }
        drop(state);
        self.home.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_than_max_and_the_last_used_comes_first() {
        let contexts = Contexts::new(1, 2);
        let mut first = contexts.try_take().unwrap();
        let second = contexts.try_take().unwrap();
        assert!(contexts.try_take().is_none());
        first.decoder().unwrap();
        drop(second);
        drop(first);
        let again = contexts.try_take().unwrap();
        assert!(again.decoder.is_some(), "it was used last");
    }

    #[test]
    fn who_waits_gets_what_becomes_free_before_who_does_not() {
        let contexts = Contexts::new(1, 1);
        let taken = contexts.try_take().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| contexts.take_within(Duration::MAX).is_some());
            while contexts.lock().waiting == 0 {
                thread::yield_now();
            }
            drop(taken);
            assert!(waiter.join().unwrap());
        });
        assert!(contexts.try_take().is_some());
    }

    #[test]
    fn a_context_whose_call_panicked_is_not_used_again() {
        let contexts = Contexts::new(1, 1);
        let panicked = thread::scope(|scope| {
            let call = scope.spawn(|| {
                let mut taken = contexts.try_take().unwrap();
                taken.decoder().unwrap();
                panic!("in the middle of a call");
            });
            call.join().is_err()
        });
        assert!(panicked);
        assert!(contexts.try_take().unwrap().decoder.is_none());
    }
}
