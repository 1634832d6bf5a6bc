//! The bytes that the two ends of an edge exchange.
//!
//! ```text
//! offset  0  magic "CSHM"        16  sender rank      32  step bytes (u64)
//!         4  version (u32)       20  receiver rank    40  total bytes (u64)
//!         8  role (u32)          24  channel
//!        12  slots (u32)         28  connection index
//! ```
//!
//! Everything is little-endian. Both ends know all values beforehand, apart from the role; a
//! difference means that the ends disagree about the edge or about the layout of a FIFO, and is
//! refused with the name of the field.

use bytes::{BufMut, Bytes, BytesMut};
use comm_core::fifo::{FifoLayout, SLOTS};
use comm_core::{Edge, Error, ErrorKind, Rank, Result};

use crate::facts::{VERSION, take};

const MAGIC: [u8; 4] = *b"CSHM";

/// Length of an encoded handle.
pub(crate) const BYTES: usize = 48;

/// Which end of the edge made a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Sender = 1,
    Receiver = 2,
}

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

    pub(crate) const fn layout(&self) -> FifoLayout {
        self.layout
    }

    /// The handle of the end that has this role.
    pub(crate) fn encode(&self, role: Role) -> Bytes {
        let mut bytes = BytesMut::with_capacity(BYTES);
        bytes.put_slice(&MAGIC);
        for (_, value) in self.words(role) {
            bytes.put_u32_le(value);
        }
        for (_, value) in self.sizes() {
            bytes.put_u64_le(value);
        }
        bytes.freeze()
    }

    /// Checks the handle of the end that has this role.
    pub(crate) fn check(&self, role: Role, bytes: &[u8]) -> Result<()> {
        if bytes.len() != BYTES || !bytes.starts_with(&MAGIC) {
            return Err(Error::new(
                ErrorKind::Protocol,
                "a peer sent something that is no shared memory handle",
            )
            .with("bytes", bytes.len()));
        }
        let mut rest = &bytes[MAGIC.len()..];
        for (field, expected) in self.words(role) {
            let actual = take(&mut rest).map_or(0, u32::from_le_bytes);
            compare(field, u64::from(expected), u64::from(actual))?;
        }
        for (field, expected) in self.sizes() {
            compare(
                field,
                expected,
                take(&mut rest).map_or(0, u64::from_le_bytes),
            )?;
        }
        Ok(())
    }

    fn words(&self, role: Role) -> [(&'static str, u32); 7] {
        [
            ("version", u32::from(VERSION)),
            ("role", role as u32),
            ("slots", SLOTS as u32),
            ("sender", self.sender),
            ("receiver", self.receiver),
            ("channel", self.channel),
            ("connection_index", self.index),
        ]
    }

    const fn sizes(&self) -> [(&'static str, u64); 2] {
        [
            ("step_bytes", self.layout.step_bytes() as u64),
            ("total_bytes", self.layout.total_bytes() as u64),
        ]
    }
}

fn compare(field: &'static str, expected: u64, actual: u64) -> Result<()> {
    if expected == actual {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Protocol,
        "the two ends of a shared memory edge disagree; all ranks must run the same version with \
         the same configuration",
    )
    .with("field", field)
    .with("expected", expected)
    .with("actual", actual))
}

#[cfg(test)]
mod tests {
    use comm_core::{ConnectionIndex, HostId, PeerInfo, ProcessId};
    use proptest::prelude::*;

    use super::*;

    fn key(step_bytes: usize, channel: u32) -> EdgeKey {
        let [first, second] =
            [3, 4].map(|rank| PeerInfo::new(rank, HostId([0; 16]), ProcessId([0; 16])));
        let edge = Edge::new(&first, &second, ConnectionIndex::PointToPoint, step_bytes);
        EdgeKey::new(&edge.on_channel(channel)).unwrap()
    }

    #[test]
    fn a_handle_fits_its_own_edge_and_role_only() {
        let ours = key(4096, 1);
        let handle = ours.encode(Role::Sender);
        assert_eq!(handle.len(), BYTES);
        ours.check(Role::Sender, &handle).unwrap();
        for (other, role, field) in [
            (ours, Role::Receiver, "role"),
            (key(4096, 2), Role::Sender, "channel"),
            (key(8192, 1), Role::Sender, "step_bytes"),
        ] {
            let error = other.check(role, &handle).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
            assert!(
                error.context().any(|pair| pair == ("field", field)),
                "{error}"
            );
        }
    }

    #[test]
    fn a_step_size_that_no_fifo_has_is_refused_before_anything_is_acquired() {
        let info = PeerInfo::new(0, HostId([0; 16]), ProcessId([0; 16]));
        let edge = Edge::new(&info, &info, ConnectionIndex::Collective, 100);
        assert_eq!(
            EdgeKey::new(&edge).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn every_change_of_a_handle_is_refused(at in 0..BYTES, change in 1..=u8::MAX) {
            let key = key(4096, 1);
            let mut bytes = key.encode(Role::Receiver).to_vec();
            bytes[at] ^= change;
            prop_assert_eq!(
                key.check(Role::Receiver, &bytes).unwrap_err().kind(),
                ErrorKind::Protocol
            );
        }

        #[test]
        fn other_lengths_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assume!(bytes.len() != BYTES);
            let refused = key(64, 0).check(Role::Sender, &bytes).unwrap_err();
            prop_assert_eq!(refused.kind(), ErrorKind::Protocol);
        }
    }
}
