//! The two ends of an edge in a named segment, between set-up and connection.
//!
//! A handle is that of a sealed edge (module [`handle`](crate::handle)) without descriptors, followed
//! by names: from the receiving end those of its segment and of its doorbells, from the sending end
//! that of its doorbells.

use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use comm_core::fifo::{FifoLayout, FifoMemory};
use comm_core::{
    ConnInfo, ConnectHandle, Edge, Error, ErrorKind, RecvSetup, Result, SendSetup, async_trait,
};

use super::{NAME_BYTES, NamedDoorbells, NamedSegment, ring_target};
use crate::handle::{self, EdgeKey, Role};

/// The sending end: holds nothing until the name of the receiving end's segment arrives.
#[derive(Debug)]
pub(crate) struct NamedSendSetup {
    key: EdgeKey,
    own: NamedDoorbells,
}

impl NamedSendSetup {
    pub(crate) fn new(edge: &Edge<'_>, own: &NamedDoorbells) -> Result<Self> {
        Ok(Self {
            key: EdgeKey::new(edge)?,
            own: own.clone(),
        })
    }
}

#[async_trait]
impl SendSetup for NamedSendSetup {
    fn handle(&mut self) -> Result<ConnectHandle> {
        let names = [self.own.name()];
        Ok(with_names(self.key.encode(Role::Sender), &names))
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, _: Instant) -> Result<ConnInfo> {
        let [segment, doorbells] = names(&self.key, Role::Receiver, &remote)?;
        let layout = self.key.layout();
        let segment = NamedSegment::open(segment, layout.total_bytes())?;
        // Both ends have the memory now.
        segment.remove_name();
        let target = ring_target(&self.own, doorbells)?;
        Ok(ConnInfo::MemorySend(
            fifo(segment, layout)?.into_sender(target),
        ))
    }
}

/// The receiving end: makes the memory of the edge.
#[derive(Debug)]
pub(crate) struct NamedRecvSetup {
    key: EdgeKey,
    own: NamedDoorbells,
    segment: NamedSegment,
}

impl NamedRecvSetup {
    pub(crate) fn new(edge: &Edge<'_>, own: &NamedDoorbells, job: &str) -> Result<Self> {
        let key = EdgeKey::new(edge)?;
        let segment = NamedSegment::create(job, key.layout().total_bytes())?;
        Ok(Self {
            key,
            own: own.clone(),
            segment,
        })
    }
}

#[async_trait]
impl RecvSetup for NamedRecvSetup {
    fn handle(&mut self) -> Result<ConnectHandle> {
        let names = [self.segment.name(), self.own.name()];
        Ok(with_names(self.key.encode(Role::Receiver), &names))
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, _: Instant) -> Result<ConnInfo> {
        let [doorbells] = names(&self.key, Role::Sender, &remote)?;
        let target = ring_target(&self.own, doorbells)?;
        let layout = self.key.layout();
        Ok(ConnInfo::MemoryRecv(
            fifo(self.segment, layout)?.mapping().into_receiver(target),
        ))
    }
}

fn with_names(key: Bytes, names: &[&str]) -> ConnectHandle {
    let mut bytes = BytesMut::from(&key[..]);
    for name in names {
        bytes.put_slice(name.as_bytes());
    }
    ConnectHandle::from_bytes(bytes.freeze())
}

/// The names in a peer's handle, which are not checked yet.
fn names<'a, const N: usize>(
    key: &EdgeKey,
    role: Role,
    remote: &'a ConnectHandle,
) -> Result<[&'a [u8]; N]> {
    let invalid = || {
        Error::new(
            ErrorKind::Protocol,
            "a handle of a named shared memory edge has another length or brings descriptors",
        )
        .with("bytes", remote.bytes.len())
    };
    let (own, names) = remote
        .bytes
        .split_at_checked(handle::BYTES)
        .ok_or_else(invalid)?;
    key.check(role, own)?;
    if names.len() != N * NAME_BYTES || !remote.fds.is_empty() {
        return Err(invalid());
    }
    let mut names = names.chunks_exact(NAME_BYTES);
    Ok(std::array::from_fn(|_| names.next().unwrap_or_default()))
}

/// The FIFO in an edge's segment.
fn fifo(segment: NamedSegment, layout: FifoLayout) -> Result<FifoMemory> {
    let (base, len_bytes) = (segment.as_ptr()?, segment.len_bytes());
    // SAFETY: the mapping is writable and lives in its owner. It was made for this end of this edge,
    // so this process makes one end of it, and no other way leads to it.
    unsafe { FifoMemory::from_raw(base, len_bytes, layout, Arc::new(segment)) }
}

#[cfg(test)]
mod tests {
    use comm_core::{ConnectionIndex, HostId, PeerInfo, ProcessId};
    use proptest::prelude::*;

    use super::*;

    fn key() -> EdgeKey {
        let [first, second] =
            [0, 1].map(|rank| PeerInfo::new(rank, HostId([0; 16]), ProcessId([0; 16])));
        let edge = Edge::new(&first, &second, ConnectionIndex::Collective, 64);
        EdgeKey::new(&edge).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_handle_of_another_length_is_refused(extra in 0..3 * NAME_BYTES) {
            let mut bytes = key().encode(Role::Receiver).to_vec();
            bytes.resize(handle::BYTES + extra, b'a');
            let remote = ConnectHandle::from_bytes(bytes.into());
            let names = names::<2>(&key(), Role::Receiver, &remote);
            prop_assert_eq!(names.is_ok(), extra == 2 * NAME_BYTES);
        }
    }
}
