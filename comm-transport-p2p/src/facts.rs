//! What a process tells about itself, and which edges follow from it.
//!
//! Two ranks reach each other's memory if they are threads of one process. Equal process ids say
//! so; a random number made by this copy of the crate says that both use the same registry.

use std::sync::OnceLock;

use bytes::{BufMut, Bytes, BytesMut};
use comm_core::{Edge, PeerInfo, Result, Verdict};

use crate::NAME;
use crate::handle::{VERSION, random};

/// Length of a registry's number.
const REGISTRY_BYTES: usize = 16;

/// The number of the registry of this copy of the crate.
static REGISTRY: OnceLock<Result<[u8; REGISTRY_BYTES]>> = OnceLock::new();

pub(crate) fn of_this_process() -> Result<Bytes> {
    let registry = REGISTRY.get_or_init(random).clone()?;
    let mut bytes = BytesMut::with_capacity(1 + REGISTRY_BYTES);
    bytes.put_u8(VERSION);
    bytes.put_slice(&registry);
    Ok(bytes.freeze())
}

/// Whether `edge` can be served: a function of the exchanged facts alone.
pub(crate) fn verdict(edge: &Edge<'_>) -> Verdict {
    match check(edge) {
        Ok(()) => Verdict::Yes,
        Err(reason) => Verdict::No(reason),
    }
}

fn check(edge: &Edge<'_>) -> Result<(), String> {
    let (first, second) = (registry(edge.sender)?, registry(edge.receiver)?);
    if edge.sender.process != edge.receiver.process {
        return Err("the ranks are in different processes".to_owned());
    }
    if first != second {
        return Err("the ranks use different copies of the library in one process".to_owned());
    }
    Ok(())
}

/// The number of a rank's registry, or why it has none.
fn registry(info: &PeerInfo) -> Result<&[u8], String> {
    let rank = info.rank;
    let facts = info
        .transport_facts(NAME)
        .ok_or_else(|| format!("rank {rank} has no p2p transport, or it is disabled there"))?;
    match facts.split_first() {
        Some((&VERSION, registry)) if registry.len() == REGISTRY_BYTES => Ok(registry),
        Some((&VERSION, _)) | None => Err(format!("rank {rank} published malformed p2p facts")),
        Some(_) => Err(format!(
            "rank {rank} speaks another version of the p2p transport"
        )),
    }
}

#[cfg(test)]
mod tests {
    use comm_core::{ConnectionIndex, HostId, ProcessId};

    use super::*;

    fn ranks() -> [PeerInfo; 2] {
        [0, 1].map(|rank| {
            let mut info = PeerInfo::new(rank, HostId([1; 16]), ProcessId([2; 16]));
            let facts = of_this_process().unwrap();
            info.transports.insert(NAME.to_owned(), facts);
            info
        })
    }

    fn assert_no(ranks: &[PeerInfo; 2], because: &str) {
        for [from, to] in [[0, 1], [1, 0]] {
            let edge = Edge::new(&ranks[from], &ranks[to], ConnectionIndex::Collective, 64);
            let Verdict::No(reason) = verdict(&edge) else {
                panic!("expected a no: {because}")
            };
            assert!(reason.contains(because), "{reason}");
        }
    }

    #[test]
    fn threads_of_one_process_connect() {
        let [first, second] = ranks();
        let edge = Edge::new(&first, &second, ConnectionIndex::Collective, 64);
        assert_eq!(verdict(&edge), Verdict::Yes);
    }

    #[test]
    fn every_obstacle_has_its_reason() {
        let mut processes = ranks();
        processes[1].process = ProcessId([3; 16]);
        assert_no(&processes, "different processes");

        let mut absent = ranks();
        absent[1].transports.clear();
        assert_no(&absent, "rank 1 has no p2p transport");

        for (at, because) in [(0, "another version"), (1, "different copies")] {
            let mut changed = ranks();
            let mut facts = of_this_process().unwrap().to_vec();
            facts[at] ^= 0xff;
            changed[0].transports.insert(NAME.to_owned(), facts.into());
            assert_no(&changed, because);
        }
        for malformed in [Bytes::new(), of_this_process().unwrap().slice(..5)] {
            let mut changed = ranks();
            changed[1].transports.insert(NAME.to_owned(), malformed);
            assert_no(&changed, "malformed");
        }
    }
}
