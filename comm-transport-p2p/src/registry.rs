//! Where the two ends of an edge meet: a table of this process, by token.
//!
//! # Contract
//!
//! * An entry belongs to one set-up and goes when that is connected, refused or dropped.
//! * The end that connects first makes both ends of the FIFO, takes its own and leaves the other
//!   one in its peer's entry. So neither end ever waits for the other, and a set-up that is given
//!   up closes the end that was left for it.
//! * Ends pair only if their set-ups agree in every property of the edge and have opposite roles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comm_core::doorbell::{Doorbells, RingTarget};
use comm_core::fifo::{FifoLayout, FifoMemory};
use comm_core::{ConnInfo, Edge, Error, ErrorKind, Rank, Result};

use crate::handle::Token;

/// The edge as both ends must see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EdgeKey {
    sender: Rank,
    receiver: Rank,
    channel: u32,
    index: u32,
    layout: FifoLayout,
}

impl EdgeKey {
    pub(crate) fn new(edge: &Edge<'_>) -> Result<Self> {
        Ok(Self {
            sender: edge.sender.rank,
            receiver: edge.receiver.rank,
            channel: edge.channel,
            index: edge.index as u32,
            layout: FifoLayout::new(edge.step_bytes)?,
        })
    }
}

/// One end of an edge that is being set up.
#[derive(Clone, Debug)]
pub(crate) struct Half {
    pub(crate) key: EdgeKey,
    pub(crate) sends: bool,
    pub(crate) doorbells: Arc<Doorbells>,
}

#[derive(Debug)]
enum Entry {
    /// Its end is not made yet.
    Waiting(Half),
    /// The peer of this token was first and made it.
    Made { by: Token, end: ConnInfo },
}

static ENTRIES: Mutex<Option<HashMap<Token, Entry>>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<HashMap<Token, Entry>>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of one set-up in the table; dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct Registered {
    token: Token,
}

impl Registered {
    pub(crate) fn new(half: Half) -> Result<Self> {
        let token = Token::new()?;
        lock()
            .get_or_insert_default()
            .insert(token, Entry::Waiting(half));
        Ok(Self { token })
    }

    pub(crate) const fn token(&self) -> Token {
        self.token
    }

    /// This end of the edge to the set-up that `peer` names.
    pub(crate) fn connect(self, peer: Token) -> Result<ConnInfo> {
        let mut guard = lock();
        let entries = guard.get_or_insert_default();
        let own = match entries.remove(&self.token) {
            Some(Entry::Made { by, end }) if by == peer => return Ok(end),
            Some(Entry::Waiting(own)) => own,
            // Dropped after the lock is free again, since a dropped end rings.
            other => {
                drop(guard);
                drop(other);
                return Err(no_such_setup());
            }
        };
        let half = match entries.get(&peer) {
            Some(Entry::Waiting(half)) => half,
            Some(Entry::Made { .. }) | None => return Err(no_such_setup()),
        };
        if half.key != own.key || half.sends == own.sends {
            return Err(disagreement(&own, half));
        }
        let bells = [&own, half].map(|half| RingTarget::Local(Arc::clone(&half.doorbells)));
        let [own_bells, peer_bells] = bells;
        let memory = FifoMemory::heap_with_offers(own.key.layout);
        let (end, others) = if own.sends {
            let (sender, receiver) = memory.into_ends(own_bells, peer_bells);
            (ConnInfo::MemorySend(sender), ConnInfo::MemoryRecv(receiver))
        } else {
            let (sender, receiver) = memory.into_ends(peer_bells, own_bells);
            (ConnInfo::MemoryRecv(receiver), ConnInfo::MemorySend(sender))
        };
        let made = Entry::Made {
            by: self.token,
            end: others,
        };
        entries.insert(peer, made);
        Ok(end)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let entry = lock().as_mut().and_then(|all| all.remove(&self.token));
        // After the lock is free again: an end that was left for this set-up is closed and rings.
        drop(entry);
    }
}

fn no_such_setup() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the handle names no set-up of this process; the peer gave the attempt up, or is in \
         another process",
    )
}

fn disagreement(own: &Half, peer: &Half) -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the two ends of a p2p edge disagree; all ranks must run with the same configuration",
    )
    .with("own", format!("{:?}, sends: {}", own.key, own.sends))
    .with("peer", format!("{:?}, sends: {}", peer.key, peer.sends))
}

#[cfg(test)]
mod tests {
    use comm_core::{ConnectionIndex, HostId, PeerInfo, ProcessId};

    use super::*;

    fn half(sends: bool, channel: u32, step_bytes: usize) -> Half {
        let [first, second] =
            [3, 4].map(|rank| PeerInfo::new(rank, HostId([0; 16]), ProcessId([0; 16])));
        let edge = Edge::new(&first, &second, ConnectionIndex::PointToPoint, step_bytes);
        Half {
            key: EdgeKey::new(&edge.on_channel(channel)).unwrap(),
            sends,
            doorbells: Doorbells::local(),
        }
    }

    fn is_registered(token: Token) -> bool {
        lock().as_ref().is_some_and(|all| all.contains_key(&token))
    }

    #[test]
    fn whoever_connects_first_makes_both_ends() {
        for sender_first in [true, false] {
            let send = Registered::new(half(true, 0, 64)).unwrap();
            let recv = Registered::new(half(false, 0, 64)).unwrap();
            let tokens = [send.token(), recv.token()];
            let (send, recv) = if sender_first {
                let send = send.connect(tokens[1]).unwrap();
                (send, recv.connect(tokens[0]).unwrap())
            } else {
                let recv = recv.connect(tokens[0]).unwrap();
                (send.connect(tokens[1]).unwrap(), recv)
            };
            let (ConnInfo::MemorySend(mut send), ConnInfo::MemoryRecv(mut recv)) = (send, recv)
            else {
                panic!("each end gets its own role")
            };
            assert!(send.carries_offers() && recv.carries_offers());
            assert!(send.try_send_small(b"hello", 1).unwrap());
            assert!(recv.try_step().unwrap().is_some());
            assert!(!tokens.into_iter().any(is_registered));
        }
    }

    #[test]
    fn a_set_up_that_is_dropped_leaves_nothing_and_closes_what_was_left_for_it() {
        let send = Registered::new(half(true, 0, 64)).unwrap();
        let recv = Registered::new(half(false, 0, 64)).unwrap();
        let tokens = [send.token(), recv.token()];
        let ConnInfo::MemorySend(mut end) = send.connect(recv.token()).unwrap() else {
            panic!("a sending end")
        };
        drop(recv);
        assert!(!tokens.into_iter().any(is_registered));
        assert!(end.try_send_small(b"x", 1).unwrap(), "there is credit");
        assert_eq!(
            end.is_acknowledged().unwrap_err().kind(),
            ErrorKind::PeerDied
        );
    }

    #[test]
    fn ends_that_do_not_belong_together_are_refused_and_removed() {
        for (other, kind) in [
            (half(true, 0, 64), ErrorKind::Protocol),
            (half(false, 1, 64), ErrorKind::Protocol),
            (half(false, 0, 128), ErrorKind::Protocol),
        ] {
            let send = Registered::new(half(true, 0, 64)).unwrap();
            let other = Registered::new(other).unwrap();
            let token = send.token();
            assert_eq!(send.connect(other.token()).unwrap_err().kind(), kind);
            assert!(!is_registered(token));
            assert!(is_registered(other.token()), "the other edge is unharmed");
        }
        let send = Registered::new(half(true, 0, 64)).unwrap();
        let error = send.connect(Token::new().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn an_end_that_was_made_for_another_peer_is_not_handed_out() {
        let send = Registered::new(half(true, 0, 64)).unwrap();
        let recv = Registered::new(half(false, 0, 64)).unwrap();
        let _end = send.connect(recv.token()).unwrap();
        let error = recv.connect(Token::new().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
