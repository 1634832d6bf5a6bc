//! [`Replies`]: answers matched to questions by number.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use comm_core::{Completer, Error, ErrorKind, Result, Work, WorkBuilder};
use serde::{Deserialize, Serialize};

use super::{is_a_work, lock};

/// The number of a question, which its answer repeats; unique within one [`Replies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The handle of an answer that will come.
#[must_use = "dropping the handle detaches: errors of the request then go unnoticed"]
pub struct RpcWork<T> {
    work: Work<T>,
}

is_a_work!(RpcWork<T> = T);

/// The questions that wait for their answers, which may come in any order.
///
/// # Contract
///
/// * An answer ends the handle of its question and no other. One that nobody waits for is refused.
/// * Cancelling a handle ends it at once with [`ErrorKind::Cancelled`]; its answer is refused then.
/// * When the way on which answers come breaks, [`Replies::fail`] ends all handles, and questions
///   after that fail at once.
///
/// ```
/// use comm_group::Replies;
///
/// let replies = Replies::new();
/// let (first_id, first) = replies.expect();
/// let (second_id, second) = replies.expect();
/// assert!(replies.fulfil(second_id, Ok("second")) && replies.fulfil(first_id, Ok("first")));
/// assert_eq!((first.take()?, second.take()?), ("first", "second"));
/// assert!(!replies.fulfil(first_id, Ok("again")));
/// # Ok::<(), comm_core::Error>(())
/// ```
pub struct Replies<T: Send + 'static> {
    state: Arc<Mutex<State<T>>>,
}

struct State<T: Send + 'static> {
    next: u64,
    waiting: HashMap<RequestId, Completer<T>>,
    failure: Option<Error>,
}

impl<T: Send + 'static> Replies<T> {
    /// No questions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new question: the number to send along, and the handle of its answer.
    pub fn expect(&self) -> (RequestId, RpcWork<T>) {
        let mut state = lock(&self.state);
        let id = RequestId(state.next);
        state.next += 1;
        if let Some(failure) = state.failure.clone() {
            drop(state);
            let work = Work::ready(Err(failure));
            return (id, RpcWork { work });
        }
        let weak = Arc::downgrade(&self.state);
        let (work, completer) = WorkBuilder::new()
            .try_cancel(move || {
                let Some(state) = weak.upgrade() else {
                    return false;
                };
                let completer = lock(&state).waiting.remove(&id);
                let message = "the request was cancelled; its answer is dropped when it comes";
                completer.is_some_and(|completer| {
                    completer.complete(Err(Error::new(ErrorKind::Cancelled, message)));
                    true
                })
            })
            .channel();
        state.waiting.insert(id, completer);
        (id, RpcWork { work })
    }

    /// Ends the handle of question `id` with its answer; whether anybody waited for it.
    pub fn fulfil(&self, id: RequestId, answer: Result<T>) -> bool {
        let completer = lock(&self.state).waiting.remove(&id);
        completer.is_some_and(|completer| {
            completer.complete(answer);
            true
        })
    }

    /// Ends all handles with `error`, now and from now on.
    pub fn fail(&self, error: Error) {
        let mut state = lock(&self.state);
        let waiting = std::mem::take(&mut state.waiting);
        state.failure.get_or_insert_with(|| error.clone());
        drop(state);
        for (_, completer) in waiting {
            completer.complete(Err(error.clone()));
        }
    }

    /// The number of questions that wait for their answers.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting.len()
    }
}

impl<T: Send + 'static> Clone for Replies<T> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
        }
    }
}

impl<T: Send + 'static> Default for Replies<T> {
    fn default() -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                next: 0,
                waiting: HashMap::new(),
                failure: None,
            })),
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Replies<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
