//! Who drives a lane, and what waits for its driver.
//!
//! # Contract
//!
//! * At most one thread has the driver's role. It is not a lock: nobody waits for it.
//! * Nothing is forgotten. Whoever submits something and does not get the role leaves it to the
//!   holder, who looks once more after giving the role up ([`Roster::release`]) and hands over what
//!   is there; whoever gets it looks by itself.
//! * A driver that sleeps with the role is woken by what is submitted or brought meanwhile
//!   ([`Roster::arm`], [`Roster::wake`]).
//!
//! # Synchronisation
//!
//! Bit [`DRIVEN`] is set with Acquire and cleared with Release, which orders one driver's use of the
//! lane's state before the next one's. Bit [`QUEUED`] changes only under the queue's lock. All
//! changes of the word are read-modify-write operations. If a submitter finds it driven, its setting
//! of [`QUEUED`] comes before the release in the order of that word, so the release returns it.
//!
//! A sleeper swaps its number in and looks again; whoever brings something swaps it out afterwards.
//! If the bringer's swap comes first, the sleeper's reads from it and sees what was brought.

use std::collections::VecDeque;
use std::fmt;
use std::sync::PoisonError;

use comm_core::sync::atomic::{AtomicU32, Ordering};
use comm_core::sync::{Mutex, MutexGuard};

/// Somebody drives the lane.
const DRIVEN: u32 = 1;
/// Something is queued, or what was queued is under way.
const QUEUED: u32 = 2;

/// The driver's role and the queue of one lane.
pub(crate) struct Roster<T> {
    role: AtomicU32,
    queue: Mutex<VecDeque<T>>,
    /// The number of the sleeping driver's doorbell, or 0.
    sleeper: AtomicU32,
}

impl<T> Roster<T> {
    pub(crate) fn new() -> Self {
        Self {
            role: AtomicU32::new(0),
            queue: Mutex::new(VecDeque::new()),
            sleeper: AtomicU32::new(0),
        }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the role if nobody drives and nothing is queued; whether it was taken.
    #[inline]
    pub(crate) fn try_acquire_idle(&self) -> bool {
        // Acquire: pairs with the Release in `release`.
        self.role
            .compare_exchange(0, DRIVEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the role if nobody drives; whether it was taken.
    pub(crate) fn try_acquire(&self) -> bool {
        // Acquire: pairs with the Release in `release`.
        self.role.fetch_or(DRIVEN, Ordering::Acquire) & DRIVEN == 0
    }

    /// Gives the role up; whether something is queued, which somebody must drive then.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        // Release: pairs with the Acquire of the next driver.
        self.role.fetch_and(!DRIVEN, Ordering::Release) & QUEUED != 0
    }

    /// Whether something is queued, or what was queued is under way.
    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        self.role.load(Ordering::Relaxed) & QUEUED != 0
    }

    /// Whether nobody drives and nothing is queued or under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.role.load(Ordering::Relaxed) == 0
    }

    /// Whether something waits in the queue that nobody has begun.
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_queued() && !self.queue().is_empty()
    }

    /// Queues behind all others.
    pub(crate) fn submit(&self, item: T) {
        let mut queue = self.queue();
        queue.push_back(item);
        self.role.fetch_or(QUEUED, Ordering::Relaxed);
    }

    /// What was queued first; for the driver.
    pub(crate) fn next(&self) -> Option<T> {
        if self.has_queued() {
            self.queue().pop_front()
        } else {
            None
        }
    }

    /// What `choose` makes of the first item for which it makes something; the items stay.
    pub(crate) fn find<R>(&self, choose: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        self.queue().iter_mut().find_map(choose)
    }

    /// Says whether something is under way that needs a driver beside what is queued; whether
    /// nothing does. For the driver.
    pub(crate) fn settle(&self, is_busy: bool) -> bool {
        let queue = self.queue();
        let is_idle = queue.is_empty() && !is_busy;
        if is_idle {
            self.role.fetch_and(!QUEUED, Ordering::Relaxed);
        } else {
            self.role.fetch_or(QUEUED, Ordering::Relaxed);
        }
        is_idle
    }

    /// Notes whom to wake; the driver looks again after that, and then sleeps.
    pub(crate) fn arm(&self, number: u32) {
        // AcqRel: pairs with the swap in `wake`.
        self.sleeper.swap(number, Ordering::AcqRel);
    }

    /// Takes back what [`Roster::arm`] noted.
    pub(crate) fn disarm(&self) {
        // Relaxed: nobody looks at anything because of it. A swap and not a store, which would break
        // the release sequence that the next `arm` synchronises with.
        self.sleeper.swap(0, Ordering::Relaxed);
    }

    /// The doorbell to be rung for what was brought, if the driver sleeps.
    pub(crate) fn wake(&self) -> Option<u32> {
        // AcqRel: pairs with the swap in `arm`.
        let number = self.sleeper.swap(0, Ordering::AcqRel);
        (number != 0).then_some(number)
    }
}

impl<T> fmt::Debug for Roster<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster")
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, comm_loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::thread;

    use super::*;

    /// A lane whose driver adds up what was submitted.
    struct Model {
        roster: Roster<u32>,
        sum: UnsafeCell<u32>,
        /// What was handed to a worker.
        kicked: AtomicU32,
    }

    impl Model {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                roster: Roster::new(),
                sum: UnsafeCell::new(0),
                kicked: AtomicU32::new(0),
            })
        }

        /// Drives what is queued, with the role; loom reports two drivers at once.
        fn drive(&self) {
            while let Some(item) = self.roster.next() {
                self.sum.with_mut(|sum| {
                    // SAFETY: the caller has the role.
                    unsafe { *sum += item };
                });
            }
            self.roster.settle(false);
        }

        /// Gives the role up as every driver does.
        fn leave(&self) {
            if self.roster.release() {
                self.kicked.fetch_add(1, Ordering::Relaxed);
            }
        }

        /// Queues an item and drives, if nobody else does.
        fn submit(&self, item: u32) {
            self.roster.submit(item);
            if self.roster.try_acquire() {
                self.drive();
                self.leave();
            }
        }

        /// At the end the workers drive what was handed to them, and nothing is left.
        fn ends_with(&self, wanted: u32) {
            if self.kicked.load(Ordering::Relaxed) > 0 {
                assert!(self.roster.try_acquire());
                self.drive();
                assert!(!self.roster.release());
            }
            // SAFETY: all other threads have ended.
            let sum = self.sum.with(|sum| unsafe { *sum });
            assert_eq!(sum, wanted, "something was forgotten");
            assert!(!self.roster.has_queued());
        }
    }

    // SAFETY: `sum` is only accessed with the role.
    unsafe impl Sync for Model {}

    #[test]
    fn loom_what_several_threads_submit_is_driven_once_and_by_one_at_a_time() {
        loom::model(|| {
            let model = Model::new();
            let other = Arc::clone(&model);
            let thread = thread::spawn(move || other.submit(1));
            model.submit(2);
            thread.join().unwrap();
            model.ends_with(3);
        });
    }

    #[test]
    fn loom_what_comes_while_a_blocking_call_drives_is_handed_over() {
        loom::model(|| {
            let model = Model::new();
            let other = Arc::clone(&model);
            let thread = thread::spawn(move || other.submit(1));
            // A blocking call does its own work with the role and does not look at the queue.
            if model.roster.try_acquire_idle() {
                model.sum.with_mut(|sum| {
                    // SAFETY: this thread has the role.
                    unsafe { *sum += 2 };
                });
                model.leave();
            } else {
                model.submit(2);
            }
            thread.join().unwrap();
            model.ends_with(3);
        });
    }

    #[test]
    fn loom_what_comes_while_a_short_cut_is_tried_in_vain_is_handed_over() {
        loom::model(|| {
            let model = Model::new();
            let other = Arc::clone(&model);
            let thread = thread::spawn(move || other.submit(1));
            // The general path may end before it has looked at the lane, for instance with an error.
            if model.roster.try_acquire_idle() {
                model.leave();
            }
            thread.join().unwrap();
            model.ends_with(1);
        });
    }

    #[test]
    fn loom_a_worker_that_finds_nothing_does_not_forget_what_comes_just_then() {
        loom::model(|| {
            let model = Model::new();
            let other = Arc::clone(&model);
            let thread = thread::spawn(move || {
                // Was kicked once too often.
                if other.roster.try_acquire() {
                    other.drive();
                    other.leave();
                }
            });
            model.submit(1);
            model.submit(2);
            thread.join().unwrap();
            model.ends_with(3);
        });
    }

    #[test]
    fn loom_a_driver_that_falls_asleep_sees_or_hears_of_what_is_submitted() {
        loom::model(|| {
            let model = Model::new();
            assert!(model.roster.try_acquire_idle());
            let other = Arc::clone(&model);
            let thread = thread::spawn(move || {
                other.roster.submit(1);
                assert!(!other.roster.try_acquire());
                other.roster.wake().is_some()
            });
            model.roster.arm(7);
            let sleeps = !model.roster.has_waiting();
            let rung = thread.join().unwrap();
            assert!(!sleeps || rung, "the driver sleeps and nobody woke it");
        });
    }
}
