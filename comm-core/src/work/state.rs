//! The state that a [`Work`](super::Work) and its [`Completer`](super::Completer) share.
//!
//! # Contract
//!
//! * No foreign code (continuation, wake-up, cancel hook, driver, destructor of a result) runs under
//!   the lock; only a waker's `clone` does.
//! * The result is either in the slot or held by exactly one thread that runs continuations with a
//!   reference to it; that thread runs every continuation that arrives in the meantime and puts the
//!   result back, or gives it to the consumer. So `T` needs no `Sync`, and a result can be moved out
//!   later.

mod waiting;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Instant;

use super::contract::{AsyncWork, Drive, Waited};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, ThreadId, current_thread};
use crate::{Error, ErrorKind, Result};

pub(super) type Continuation<T> = Box<dyn FnOnce(&Result<T>) + Send>;
pub(super) type Consumer<T> = Box<dyn FnOnce(Result<T>) + Send>;
/// Passes a request to cancel on; whether somebody took it.
pub(super) type CancelHook = Box<dyn FnOnce() -> bool + Send>;

/// Where the result is.
enum Slot<T> {
    /// Not there yet.
    Pending,
    /// Lent to the continuations that this thread runs.
    Lent(ThreadId),
    /// There.
    Here(Result<T>),
    /// Moved out.
    Taken,
}

/// What a look at the result found.
pub(super) enum Look<T> {
    /// The result, moved out, or the reason why there is none to move out.
    Ready(Result<T>),
    /// Come back when woken.
    NotYet,
}

struct State<T> {
    slot: Slot<T>,
    /// Set when the outcome is known; what repeated waits return.
    outcome: Option<Result<()>>,
    continuations: Vec<Continuation<T>>,
    /// Takes the result over after the continuations.
    consumer: Option<Consumer<T>>,
    wakers: Vec<(u64, Waker)>,
    next_waker_key: u64,
    on_cancel: Option<CancelHook>,
    driver: Option<Arc<dyn Drive>>,
    /// Waiters that are inside the driver.
    driving: usize,
    /// Waiters that sleep and were announced to the driver.
    asleep: usize,
    /// The work of the latest continuation.
    next: Option<Arc<dyn AsyncWork>>,
}

pub(super) struct Shared<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
    /// Mirrors "outcome known and continuations run"; written under the lock.
    done: AtomicBool,
}

/// The key under which `AsyncWork::register_waker` files wakers; futures have keys of their own.
const SHARED_KEY: u64 = 0;

impl<T: Send + 'static> Shared<T> {
    pub(super) fn new(on_cancel: Option<CancelHook>, driver: Option<Arc<dyn Drive>>) -> Self {
        Self {
            state: Mutex::new(State {
                slot: Slot::Pending,
                outcome: None,
                continuations: Vec::new(),
                consumer: None,
                wakers: Vec::new(),
                next_waker_key: SHARED_KEY + 1,
                on_cancel,
                driver,
                driving: 0,
                asleep: 0,
                next: None,
            }),
            ended: Condvar::new(),
            done: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the result, runs the continuations, then wakes everybody.
    pub(super) fn complete(&self, result: Result<T>) {
        let mut state = self.lock();
        if state.outcome.is_some() {
            return;
        }
        state.outcome = Some(result.as_ref().map(|_| ()).map_err(Clone::clone));
        state.slot = Slot::Lent(current_thread().id());
        let on_cancel = state.on_cancel.take();
        let driver = state.driver.take();
        let asleep = std::mem::take(&mut state.asleep);
        if asleep > 0
            && let Some(driver) = &driver
        {
            drop(state);
            // What they wait for from now on is the continuations.
            for _ in 0..asleep {
                driver.end_sleep();
            }
            state = self.lock();
        }
        self.run_continuations(state, result);
        if let Some(driver) = driver
            && self.lock().driving > 0
        {
            driver.interrupt();
        }
        // A hook can own buffers of the operation: released here, not with the last handle. It comes last
        // since it is foreign.
        drop(on_cancel);
    }

    /// Runs continuations until none is left and gives `result` back to the slot.
    ///
    /// The caller has just marked the slot as lent to this thread.
    fn run_continuations<'a>(&'a self, mut state: MutexGuard<'a, State<T>>, result: Result<T>) {
        while !state.continuations.is_empty() {
            let batch = std::mem::take(&mut state.continuations);
            drop(state);
            for continuation in batch {
                continuation(&result);
            }
            state = self.lock();
        }
        if let Some(consumer) = state.consumer.take() {
            state.slot = Slot::Taken;
            drop(state);
            consumer(result);
            state = self.lock();
        } else {
            state.slot = Slot::Here(result);
        }
        let wakers = std::mem::take(&mut state.wakers);
        self.done.store(true, Ordering::Release);
        drop(state);
        self.ended.notify_all();
        for (_, waker) in wakers {
            // One that panics keeps neither the others asleep nor this thread from what it does next.
            if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
                tracing::error!("waking a task that waits for an operation panicked");
            }
        }
    }

    /// Runs `continuation` when the result is there; now, if it is.
    pub(super) fn then(&self, continuation: Continuation<T>, next: Arc<dyn AsyncWork>) {
        let mut state = self.lock();
        let replaced = state.next.replace(next);
        match std::mem::replace(&mut state.slot, Slot::Pending) {
            Slot::Here(result) => {
                state.slot = Slot::Lent(current_thread().id());
                state.continuations.push(continuation);
                self.run_continuations(state, result);
            }
            Slot::Taken => {
                state.slot = Slot::Taken;
                let failure = Err(taken(&state));
                drop(state);
                continuation(&failure);
            }
            waiting @ (Slot::Pending | Slot::Lent(_)) => {
                state.slot = waiting;
                state.continuations.push(continuation);
            }
        }
        drop(replaced);
    }

    /// Hands the result to `consumer` when it is there; now, if it is.
    pub(super) fn consume(&self, consumer: Consumer<T>, next: Option<Arc<dyn AsyncWork>>) {
        let mut state = self.lock();
        let replaced = next.and_then(|next| state.next.replace(next));
        match std::mem::replace(&mut state.slot, Slot::Taken) {
            Slot::Here(result) => {
                drop(state);
                consumer(result);
            }
            Slot::Taken => {
                let failure = Err(taken(&state));
                drop(state);
                consumer(failure);
            }
            waiting @ (Slot::Pending | Slot::Lent(_)) => {
                state.slot = waiting;
                state.consumer = Some(consumer);
            }
        }
        drop(replaced);
    }

    pub(super) fn driver(&self) -> Option<Arc<dyn Drive>> {
        self.lock().driver.clone()
    }

    /// The result, moved out, leaving `waker` under `key` if it is too early.
    pub(super) fn poll_take(&self, key: &mut Option<u64>, waker: &Waker) -> Look<T> {
        let mut state = self.lock();
        let look = take_from(&mut state);
        if matches!(look, Look::NotYet) {
            let replaced = file(&mut state, key, waker);
            let driver = state.driver.clone();
            drop(state);
            drop(replaced);
            note_caller(driver);
        }
        look
    }

    /// The outcome, leaving `waker` under `key` if it is too early.
    pub(super) fn poll_outcome(&self, key: &mut Option<u64>, waker: &Waker) -> Option<Result<()>> {
        let mut state = self.lock();
        let outcome = outcome_of(&state, self.done.load(Ordering::Acquire));
        if outcome.is_none() {
            let replaced = file(&mut state, key, waker);
            let driver = state.driver.clone();
            drop(state);
            drop(replaced);
            note_caller(driver);
        }
        outcome
    }

    /// Forgets the waker of a future that is dropped.
    pub(super) fn forget_waker(&self, key: u64) {
        let mut state = self.lock();
        let position = state.wakers.iter().position(|(filed, _)| *filed == key);
        let forgotten = position.map(|position| state.wakers.swap_remove(position));
        drop(state);
        drop(forgotten);
    }
}

impl<T: Send + 'static> AsyncWork for Shared<T> {
    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) || outcome_of(&self.lock(), false).is_some()
    }

    fn wait_deadline(&self, deadline: Option<Instant>) -> Result<Waited> {
        self.wait(deadline)
    }

    fn register_waker(&self, waker: &Waker) {
        let mut state = self.lock();
        if outcome_of(&state, self.done.load(Ordering::Acquire)).is_some() {
            drop(state);
            waker.wake_by_ref();
        } else if !state.wakers.iter().any(|(_, filed)| filed.will_wake(waker)) {
            state.wakers.push((SHARED_KEY, waker.clone()));
        }
    }

    fn cancel(&self) -> bool {
        let Some(on_cancel) = self.lock().on_cancel.take() else {
            return false;
        };
        catch_unwind(AssertUnwindSafe(on_cancel)).unwrap_or_else(|panic| {
            tracing::error!(
                panic = panic_text(panic.as_ref()),
                "the cancel hook of an operation panicked; the operation goes on"
            );
            true
        })
    }

    fn next_work(&self) -> Option<Arc<dyn AsyncWork>> {
        self.lock().next.clone()
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let phase = match (&state.outcome, &state.slot) {
            (None, _) => "pending",
            (Some(Err(_)), _) => "failed",
            (Some(Ok(())), Slot::Taken) => "taken",
            (Some(Ok(())), _) => "done",
        };
        let mut out = f.debug_struct("Work");
        out.field("phase", &phase);
        if let Some(Err(error)) = &state.outcome {
            out.field("error", error);
        }
        out.field("continuations", &state.continuations.len())
            .finish_non_exhaustive()
    }
}

fn note_caller(driver: Option<Arc<dyn Drive>>) {
    if let Some(driver) = driver {
        driver.note_caller();
    }
}

/// The outcome as seen by the calling thread: a continuation sees it while it runs, others once
/// all continuations have run (`done`).
fn outcome_of<T>(state: &State<T>, done: bool) -> Option<Result<()>> {
    let mine = matches!(state.slot, Slot::Lent(thread) if thread == current_thread().id());
    if done || mine {
        state.outcome.clone()
    } else {
        None
    }
}

fn take_from<T>(state: &mut State<T>) -> Look<T> {
    match std::mem::replace(&mut state.slot, Slot::Taken) {
        Slot::Here(result) => Look::Ready(result),
        Slot::Taken => Look::Ready(Err(taken(state))),
        Slot::Lent(thread) => {
            state.slot = Slot::Lent(thread);
            if thread == current_thread().id() {
                Look::Ready(Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "the result cannot be taken inside a continuation of the same operation; use \
                     the reference that the continuation gets",
                )))
            } else {
                Look::NotYet
            }
        }
        Slot::Pending => {
            state.slot = Slot::Pending;
            Look::NotYet
        }
    }
}

/// Why a result that was moved out cannot be had: a failure repeats itself, a value does not.
fn taken<T>(state: &State<T>) -> Error {
    match &state.outcome {
        Some(Err(error)) => error.clone(),
        _ => Error::new(
            ErrorKind::InvalidArgument,
            "the result of this operation was already taken; it can be taken or awaited only \
             once, while `wait` can be repeated",
        ),
    }
}

/// Files `waker` under `key`, in place of the one that was filed before.
fn file<T>(state: &mut State<T>, key: &mut Option<u64>, waker: &Waker) -> Option<Waker> {
    if let Some(key) = *key
        && let Some((_, filed)) = state.wakers.iter_mut().find(|(filed, _)| *filed == key)
    {
        if filed.will_wake(waker) {
            return None;
        }
        return Some(std::mem::replace(filed, waker.clone()));
    }
    let fresh = *key.get_or_insert(state.next_waker_key);
    state.next_waker_key = state.next_waker_key.max(fresh + 1);
    state.wakers.push((fresh, waker.clone()));
    None
}

/// The text of a caught panic.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "(no text)"
    }
}
