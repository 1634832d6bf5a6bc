//! What a process tells about itself, and which edges follow from it.
//!
//! Equal [`HostId`](comm_core::HostId)s are a claim (a user can set them); the boot id is the
//! proof that two processes share a kernel. Descriptors travel over an abstract Unix socket, which
//! only processes of one network namespace can reach, and only between processes of one user. Named
//! segments need one `/dev/shm` instead, that is one mount of it, whatever the namespaces.

use std::os::unix::fs::MetadataExt;

use bytes::{BufMut, Bytes, BytesMut};
use comm_core::{Edge, Error, ErrorKind, PeerInfo, Result, Verdict};

use crate::NAME;

/// Version of the facts and of the handles; processes of different versions do not connect.
pub(crate) const VERSION: u8 = 2;

/// Version, boot id, network namespace, user, file system of named segments.
const BYTES: usize = 1 + 16 + 8 + 4 + 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The kernel's boot id: equal exactly for processes of one running kernel.
    boot: [u8; 16],
    /// Inode of the network namespace.
    network: u64,
    /// Effective user.
    user: u32,
    /// The file system of named segments, if the process uses those; 0 if it does not.
    named: u64,
}

impl Facts {
    /// The facts of this process, which uses named segments in the file system `named` if there is
    /// one.
    pub(crate) fn of_this_process(named: Option<u64>) -> Result<Self> {
        let read = |path: &'static str| {
            std::fs::read_to_string(path).map_err(|error| {
                Error::system("reading the kernel's boot id, which needs /proc", error)
                    .with("path", path)
            })
        };
        let text = read("/proc/sys/kernel/random/boot_id")?;
        let boot = parse_uuid(text.trim()).ok_or_else(|| {
            Error::new(ErrorKind::System, "the kernel's boot id is no UUID").with("boot_id", &text)
        })?;
        // Zero where the kernel has no namespaces; then there is only one network anyway.
        let network = std::fs::metadata("/proc/self/ns/net").map_or(0, |file| file.ino());
        let user = rustix::process::geteuid().as_raw();
        Ok(Self {
            boot,
            network,
            user,
            named: named.unwrap_or(0),
        })
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(BYTES);
        bytes.put_u8(VERSION);
        bytes.put_slice(&self.boot);
        bytes.put_u64_le(self.network);
        bytes.put_u32_le(self.user);
        bytes.put_u64_le(self.named);
        bytes.freeze()
    }

    /// The facts, or why they cannot be used.
    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some((&version, rest)) = bytes.split_first() else {
            return Err("published no facts about shared memory");
        };
        if version != VERSION {
            return Err("speaks another version of the shared memory transport");
        }
        let mut rest = rest;
        let malformed = "published malformed facts about shared memory";
        let facts = Self {
            boot: take(&mut rest).ok_or(malformed)?,
            network: u64::from_le_bytes(take(&mut rest).ok_or(malformed)?),
            user: u32::from_le_bytes(take(&mut rest).ok_or(malformed)?),
            named: u64::from_le_bytes(take(&mut rest).ok_or(malformed)?),
        };
        if rest.is_empty() {
            Ok(facts)
        } else {
            Err(malformed)
        }
    }
}

/// Whether shared memory can serve `edge`: a function of the exchanged facts alone.
pub(crate) fn verdict(edge: &Edge<'_>) -> Verdict {
    match check(edge) {
        Ok(()) => Verdict::Yes,
        Err(reason) => Verdict::No(reason),
    }
}

fn check(edge: &Edge<'_>) -> Result<(), String> {
    let (sender, receiver) = (edge.sender, edge.receiver);
    if sender.host != receiver.host {
        return Err("the ranks are on different hosts".to_owned());
    }
    let facts = |info: &PeerInfo| {
        let bytes = info.transport_facts(NAME).ok_or_else(|| {
            format!(
                "rank {} has no shared memory transport, or it is disabled there",
                info.rank
            )
        })?;
        Facts::decode(bytes).map_err(|reason| format!("rank {} {reason}", info.rank))
    };
    let (first, second) = (facts(sender)?, facts(receiver)?);
    if first.boot != second.boot {
        return Err(
            "the host ids are equal but the kernels are not: give each host its own \
                    COMM_HOSTID"
                .to_owned(),
        );
    }
    if sender.process == receiver.process {
        return Ok(());
    }
    match (first.named, second.named) {
        (0, 0) if first.network != second.network => {
            return Err(
                "the ranks are in different network namespaces (containers), between which \
                 memory cannot be passed; start them with one network, or with one /dev/shm and \
                 COMM_SHM_NAMED=1"
                    .to_owned(),
            );
        }
        (0, 0) => {}
        (0, _) | (_, 0) => {
            let without = if first.named == 0 { sender } else { receiver };
            return Err(format!(
                "COMM_SHM_NAMED=1 is not set, or has no effect, on rank {}",
                without.rank
            ));
        }
        (one, other) if one != other => {
            return Err(
                "the ranks have different /dev/shm file systems (containers), so named memory is \
                 not shared; mount the same one in both (`docker run --ipc=container:...`)"
                    .to_owned(),
            );
        }
        _ => {}
    }
    if first.user != second.user {
        return Err(format!(
            "the ranks belong to different users (user ids {} and {})",
            first.user, second.user
        ));
    }
    Ok(())
}

/// Splits the first `N` bytes off.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|&character| character != '-')
        .map(|character| character.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect();
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use comm_core::{ConnectionIndex, HostId, ProcessId};
    use proptest::prelude::*;

    use super::*;

    fn example() -> Facts {
        Facts {
            boot: [7; 16],
            network: 4_026_531_840,
            user: 1000,
            named: 0,
        }
    }

    fn ranks(facts: [Facts; 2], processes: [u8; 2]) -> [PeerInfo; 2] {
        [0, 1].map(|rank| {
            let process = ProcessId([processes[rank]; 16]);
            let mut info = PeerInfo::new(rank as u32, HostId([1; 16]), process);
            info.transports
                .insert(NAME.to_owned(), facts[rank].encode());
            info
        })
    }

    fn answer(ranks: &[PeerInfo; 2]) -> Verdict {
        let there = Edge::new(&ranks[0], &ranks[1], ConnectionIndex::Collective, 64);
        verdict(&there)
    }

    fn assert_no(ranks: &[PeerInfo; 2], because: &str) {
        let Verdict::No(reason) = answer(ranks) else {
            panic!("expected a no: {because}")
        };
        assert!(reason.contains(because), "{reason}");
    }

    #[test]
    fn processes_of_one_user_and_kernel_connect() {
        assert_eq!(answer(&ranks([example(); 2], [1, 2])), Verdict::Yes);
    }

    #[test]
    fn every_obstacle_has_its_reason() {
        let mut hosts = ranks([example(); 2], [1, 2]);
        hosts[1].host = HostId([2; 16]);
        assert_no(&hosts, "different hosts");

        let mut absent = ranks([example(); 2], [1, 2]);
        absent[1].transports.clear();
        assert_no(&absent, "rank 1 has no shared memory");

        let boot = Facts {
            boot: [8; 16],
            ..example()
        };
        assert_no(&ranks([example(), boot], [1, 2]), "COMM_HOSTID");
        let network = Facts {
            network: 1,
            ..example()
        };
        assert_no(&ranks([network, example()], [1, 2]), "network namespaces");
        let user = Facts {
            user: 0,
            ..example()
        };
        assert_no(&ranks([example(), user], [1, 2]), "user ids 1000 and 0");

        let mut version = ranks([example(); 2], [1, 2]);
        let mut bytes = example().encode().to_vec();
        bytes[0] = VERSION + 1;
        version[0].transports.insert(NAME.to_owned(), bytes.into());
        assert_no(&version, "rank 0 speaks another version");
    }

    #[test]
    fn named_memory_needs_one_file_system_and_no_common_network() {
        let one = Facts {
            named: 5,
            network: 1,
            ..example()
        };
        let other = Facts { network: 2, ..one };
        assert_eq!(answer(&ranks([one, other], [1, 2])), Verdict::Yes);
        let elsewhere = Facts { named: 6, ..one };
        assert_no(&ranks([one, elsewhere], [1, 2]), "different /dev/shm");
        assert_no(
            &ranks([one, example()], [1, 2]),
            "is not set, or has no effect, on rank 1",
        );
    }

    #[test]
    fn threads_of_one_process_need_no_descriptor_socket() {
        let network = Facts {
            network: 1,
            ..example()
        };
        assert_eq!(answer(&ranks([example(), network], [3, 3])), Verdict::Yes);
    }

    #[test]
    fn a_boot_id_is_parsed_whole() {
        let id = parse_uuid("01234567-89ab-cdef-0123-456789abcdef").unwrap();
        assert_eq!(id[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(parse_uuid("0123"), None);
        assert_eq!(parse_uuid("z1234567-89ab-cdef-0123-456789abcdef"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_bytes_are_facts_or_a_reason(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(facts) = Facts::decode(&bytes) {
                prop_assert_eq!(&facts.encode()[..], &bytes[..]);
            }
        }
    }
}
