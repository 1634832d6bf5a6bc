//! [`ChannelOrder`]: operations of one key, one after the other in the order of issue.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use comm_core::{AsyncWork, Error, ErrorKind, PendingFunction, Result, Work};

use super::func::contained;
use super::relay::Relay;
use super::{is_a_work, lock, when_done};

/// The handle of an operation that [`ChannelOrder::issue`] starts in its turn.
#[must_use = "dropping the handle detaches: errors of the operation then go unnoticed"]
pub struct ChannelWork<T> {
    work: Work<T>,
}

is_a_work!(ChannelWork<T> = T);

/// Starts the operations of each key in the order in which they were issued.
///
/// # Contract
///
/// * An operation is started when the one issued before it for the same key has ended, well or not;
///   keys do not wait for each other. Name the channel in the key: `(channel, key)`.
/// * It is started on the thread that ends the one before, or on the issuing one; starting should be
///   short.
/// * Cancelling one that has not started yet ends it with [`ErrorKind::Cancelled`] in its turn.
/// * A key takes memory while one of its operations is under way, and no longer.
///
/// ```
/// use comm_core::Work;
/// use comm_group::ChannelOrder;
///
/// let order = ChannelOrder::new();
/// let (slow, completer) = Work::channel();
/// let first = order.issue(("replay", 7), move || Ok(slow));
/// let second = order.issue(("replay", 7), || Ok(Work::ready(Ok("second"))));
/// let other = order.issue(("replay", 8), || Ok(Work::ready(Ok("other"))));
/// assert!(other.is_done() && !second.is_done());
/// completer.complete(Ok("first"));
/// assert_eq!((first.take()?, second.take()?), ("first", "second"));
/// # Ok::<(), comm_core::Error>(())
/// ```
pub struct ChannelOrder<K> {
    queues: Arc<Queues<K>>,
}

/// Starts an operation and returns its work, if it has one.
type Start = Box<dyn FnOnce() -> Option<Arc<dyn AsyncWork>> + Send>;

struct Queues<K> {
    /// What waits, for each key of which an operation is under way.
    waiting: Mutex<HashMap<K, VecDeque<Start>>>,
}

impl<K: Clone + Eq + Hash + Send + 'static> ChannelOrder<K> {
    /// No operation of any key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts an operation after those that were issued for `key` before.
    pub fn issue<T: Send + 'static>(
        &self,
        key: K,
        start: impl FnOnce() -> Result<Work<T>> + Send + 'static,
    ) -> ChannelWork<T> {
        let (work, completer, relay) = Relay::channel();
        let pending = PendingFunction::elsewhere();
        let start: Start = Box::new(move || {
            let _pending = pending;
            if relay.is_cancelled() {
                let message = "the operation was cancelled before its turn came";
                completer.complete(Err(Error::new(ErrorKind::Cancelled, message)));
                return None;
            }
            match contained(start) {
                Ok(work) => {
                    let started = work.as_async_work();
                    relay.stand_for(Arc::clone(&started));
                    work.forward(completer);
                    Some(started)
                }
                Err(error) => {
                    completer.complete(Err(error));
                    None
                }
            }
        });
        let idle = match lock(&self.queues.waiting).entry(key.clone()) {
            Entry::Occupied(mut queue) => {
                queue.get_mut().push_back(start);
                false
            }
            Entry::Vacant(free) => {
                free.insert(VecDeque::from([start]));
                true
            }
        };
        if idle {
            Queues::run(&self.queues, key);
        }
        ChannelWork { work }
    }

    /// The number of keys of which an operation is under way.
    #[must_use]
    pub fn active_keys(&self) -> usize {
        lock(&self.queues.waiting).len()
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Queues<K> {
    /// Starts what waits for `key`, up to the first operation that does not end at once.
    fn run(this: &Arc<Self>, key: K) {
        loop {
            let start = {
                let mut waiting = lock(&this.waiting);
                let start = waiting.get_mut(&key).and_then(VecDeque::pop_front);
                if start.is_none() {
                    waiting.remove(&key);
                }
                start
            };
            let Some(start) = start else { return };
            if let Some(work) = start()
                && !work.is_done()
            {
                let this = Arc::clone(this);
                when_done(&work, move |_| Self::run(&this, key));
                return;
            }
        }
    }
}

impl<K> Clone for ChannelOrder<K> {
    fn clone(&self) -> Self {
        Self {
            queues: Arc::clone(&self.queues),
        }
    }
}

impl<K> Default for ChannelOrder<K> {
    fn default() -> Self {
        Self {
            queues: Arc::new(Queues {
                waiting: Mutex::new(HashMap::new()),
            }),
        }
    }
}

impl<K> fmt::Debug for ChannelOrder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelOrder")
            .field("active_keys", &lock(&self.queues.waiting).len())
            .finish()
    }
}
