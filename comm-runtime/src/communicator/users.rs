//! The threads that use a communicator, as far as the reports of deadlocks have to know them.
//!
//! # Contract
//!
//! * Told apart is whether one thread or several have called into it. A circle of ranks that wait for
//!   each other is an error only if each of them has one user, as another thread might resolve it.
//! * Whoever builds a communicator for others, and submits to it on their behalf, is no user.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Communicator;

/// Which threads have called into the communicator.
#[derive(Debug, Default)]
pub(crate) struct Users {
    first: AtomicU64,
    several: AtomicBool,
    /// The thread that acts for others at the moment and is no user, or 0.
    agent: AtomicU64,
}

impl Users {
    /// A number that differs between threads: the address of a thread-local.
    fn current() -> u64 {
        thread_local! {
            static PLACE: u8 = const { 0 };
        }
        PLACE.with(|place| std::ptr::from_ref(place).addr() as u64)
    }

    /// The calling thread is one of them.
    #[inline]
    pub(super) fn note(&self) {
        let current = Self::current();
        if self.first.load(Ordering::Relaxed) != current && !self.are_several() {
            self.note_other(current);
        }
    }

    /// Whether there is more than one.
    #[inline]
    pub(super) fn are_several(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }

    #[cold]
    fn note_other(&self, current: u64) {
        if self.agent.load(Ordering::Relaxed) == current {
            return;
        }
        if self
            .first
            .compare_exchange(0, current, Ordering::Relaxed, Ordering::Relaxed)
            .is_err_and(|first| first != current)
        {
            self.several.store(true, Ordering::Relaxed);
        }
    }

    fn act_for_others(&self, agent: u64) {
        let former = self.agent.swap(agent, Ordering::Relaxed);
        // A stand-in finds those who have come meanwhile.
        if former == 0 {
            self.first.store(0, Ordering::Relaxed);
            self.several.store(false, Ordering::Relaxed);
        }
    }

    fn hand_over(&self, users: &[Caller]) {
        // First, as the agent may be one of them.
        self.agent.store(0, Ordering::Relaxed);
        for user in users {
            self.note_other(user.0);
        }
    }
}

/// A thread, as far as telling it from others goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller(u64);

impl Caller {
    /// The calling thread.
    #[must_use]
    pub fn current() -> Self {
        Self(Users::current())
    }
}

impl Communicator {
    /// The calling thread has built the communicator for others, and submits to it on their behalf until
    /// it [hands over](Communicator::hand_over): it does not count as a user.
    ///
    /// Another thread may take that over by calling this as well.
    pub fn act_for_others(&self) {
        self.core.users.act_for_others(Users::current());
    }

    /// Ends what [`Communicator::act_for_others`] began; these threads count as users.
    pub fn hand_over(&self, users: &[Caller]) {
        self.core.users.hand_over(users);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_no_user_until_it_hands_over_and_forgets_nobody_who_came_meanwhile() {
        let users = Users::default();
        // The thread that builds.
        users.note_other(7);
        users.act_for_others(7);
        users.note_other(7);
        users.note_other(1);
        assert!(!users.are_several());
        // Stands in for the first one.
        users.act_for_others(8);
        users.note_other(8);
        users.hand_over(&[Caller(1)]);
        assert!(!users.are_several());
        users.note_other(7);
        assert!(users.are_several());

        let users = Users::default();
        users.act_for_others(7);
        users.note_other(1);
        users.act_for_others(8);
        users.hand_over(&[Caller(2)]);
        assert!(users.are_several(), "1 and 2");
    }
}
