//! Threads on which others rely, and what becomes of their duties when they block.
//!
//! # Contract
//!
//! * A thread that carries out operations of others runs their continuations, too. Such a function may
//!   wait for an operation that only this very thread would carry out. So whoever is [`OnDuty`] names
//!   somebody to stand in.
//! * Whatever in this library blocks until an operation has gone on calls [`about_to_block`] first. On a
//!   thread on duty that relieves it, once, of all its duties: they are its stand-ins' from then on, and
//!   it has none left but to come back from where it is.
//! * On other threads it does nothing. It costs a look at a thread-local.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

/// Finds a stand-in; whether there is one.
type Relief = Box<dyn FnOnce() -> bool>;

struct Duty {
    /// Taken when it is called.
    relief: Option<Relief>,
    is_relieved: Rc<Cell<bool>>,
}

thread_local! {
    /// The innermost last.
    static DUTIES: RefCell<Vec<Duty>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread has duties towards others, until this is dropped.
pub struct OnDuty {
    is_relieved: Rc<Cell<bool>>,
    /// It is about the thread that made it.
    _not_send: PhantomData<*const ()>,
}

impl OnDuty {
    /// Notes a duty of the calling thread, beside those that it has.
    ///
    /// `relief` is called on this thread when it is about to block. It hands the duties to somebody
    /// else, and says whether it could; it must not wait.
    #[must_use]
    pub fn new(relief: impl FnOnce() -> bool + 'static) -> Self {
        let is_relieved = Rc::new(Cell::new(false));
        let duty = Duty {
            relief: Some(Box::new(relief)),
            is_relieved: Rc::clone(&is_relieved),
        };
        DUTIES.with_borrow_mut(|duties| duties.push(duty));
        Self {
            is_relieved,
            _not_send: PhantomData,
        }
    }

    /// Whether somebody else has taken the duties over.
    #[must_use]
    pub fn is_relieved(&self) -> bool {
        self.is_relieved.get()
    }
}

impl Drop for OnDuty {
    fn drop(&mut self) {
        let over = |duty: &mut Duty| Rc::ptr_eq(&duty.is_relieved, &self.is_relieved);
        // A thread that ends has no duties any more.
        let ended = DUTIES.try_with(|duties| {
            let ended: Vec<_> = duties.borrow_mut().extract_if(.., over).collect();
            ended
        });
        drop(ended);
    }
}

impl fmt::Debug for OnDuty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDuty")
            .field("is_relieved", &self.is_relieved())
            .finish()
    }
}

/// The calling thread is about to block until an operation has gone on. Called without any lock.
#[inline]
pub fn about_to_block() {
    let has_duties = DUTIES.try_with(|duties| !duties.borrow().is_empty());
    if has_duties == Ok(true) {
        relieve();
    }
}

#[cold]
fn relieve() {
    let reliefs: Vec<_> = DUTIES.with_borrow_mut(|duties| {
        let taken = duties.iter_mut().filter_map(|duty| {
            let relief = duty.relief.take()?;
            Some((relief, Rc::clone(&duty.is_relieved)))
        });
        taken.collect()
    });
    for (relief, is_relieved) in reliefs {
        is_relieved.set(relief());
    }
}

#[cfg(all(test, not(comm_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_on_duty_is_relieved_once_when_it_is_about_to_block() {
        let calls = Rc::new(Cell::new(0));
        let counted = |has_stand_in| {
            let calls = Rc::clone(&calls);
            OnDuty::new(move || {
                calls.set(calls.get() + 1);
                has_stand_in
            })
        };
        about_to_block();
        let duty = counted(true);
        assert!(!duty.is_relieved());
        about_to_block();
        about_to_block();
        assert!(duty.is_relieved());
        assert_eq!(calls.get(), 1);
        drop(duty);
        let duty = counted(false);
        about_to_block();
        assert!(!duty.is_relieved(), "nobody stands in");
        drop(duty);
        drop(counted(true));
        about_to_block();
        assert_eq!(calls.get(), 2, "the duty was over");
        let (outer, inner) = (counted(true), counted(true));
        about_to_block();
        assert!(outer.is_relieved() && inner.is_relieved());
    }
}
