//! Clauses of ends whose peer has mapped memory, with both processes in one: addresses are those of the
//! owner's mapping, and what is read is another mapping of the same file.

use std::sync::Arc;

use comm_core::doorbell::{Doorbells, RingTarget};
use comm_core::fifo::{FifoLayout, FifoMemory};
use comm_core::memory::SealedMemory;
use comm_core::{
    Algorithm, ConnInfo, DType, ErrorKind, OperationKind, ProcessId, Result, Signature,
};

use super::{Identity, RecvEnd, SendEnd, Taken};
use crate::region::{Region, Regions, Route, Span};

const BYTES: usize = 100_000;
const READER: ProcessId = ProcessId([2; 16]);

/// Owner and reader with an edge between them.
struct Rig {
    memory: SealedMemory,
    region: Arc<Region>,
    send: SendEnd,
    recv: RecvEnd,
}

impl Rig {
    /// An edge whose receiver looks regions up, or not; nothing is announced yet.
    fn new(looks_up: bool) -> Self {
        let bells = RingTarget::Local(Doorbells::local());
        let layout = FifoLayout::new(64 << 10).unwrap();
        // Two mappings of one file, as two processes have them.
        let file = SealedMemory::create("test", layout.total_bytes()).unwrap();
        let fd = file.fd().try_clone_to_owned().unwrap();
        let other = SealedMemory::map(fd, layout.total_bytes()).unwrap();
        let [sending, receiving] = [file, other].map(|file| {
            let (base, len_bytes) = (file.as_ptr(), file.len_bytes());
            // SAFETY: the mapping lives in its owner, and one end of the FIFO is made of it.
            unsafe { FifoMemory::from_raw(base, len_bytes, layout, Arc::new(file)) }.unwrap()
        });
        let receiving = if looks_up {
            receiving.mapping()
        } else {
            receiving
        };
        let conn = ConnInfo::MemorySend(sending.into_sender(bells.clone()));
        let send = SendEnd::new(1, "test", conn).unwrap();
        let conn = ConnInfo::MemoryRecv(receiving.into_receiver(bells));
        let recv = RecvEnd::new(1, 0, "test", conn).unwrap();

        // Each process has its own registry.
        let (owner, reader) = (Arc::new(Regions::default()), Regions::default());
        let reading = reader.pair(ProcessId([1; 16]));
        let send = send.with_regions(owner.pair(READER), reading.generation());
        let recv = recv.with_regions(reading);
        let memory = SealedMemory::create_exclusive("test", BYTES).unwrap();
        let start = memory.as_ptr().addr().get() as u64;
        let region = owner.add(Span::new(start, BYTES).unwrap());
        let (core, rank) = (std::sync::Weak::new(), 1);
        region.expect(READER, &owner.pair(READER), Route { core, rank });
        Self {
            memory,
            region,
            send,
            recv,
        }
    }

    /// The reader maps the region and answers.
    fn announce(&self) {
        let fd = self.memory.fd().try_clone_to_owned().unwrap();
        let pair = self.recv.regions.as_ref().unwrap();
        let mapped = pair
            .import(self.region.id(), self.region.span(), fd)
            .unwrap();
        self.region.answer(READER, Some(mapped));
    }

    fn at(&self, offset: usize) -> *const u8 {
        self.memory.as_ptr().as_ptr().wrapping_add(offset)
    }

    fn fill(&self, byte: u8) {
        // SAFETY: the mapping is as long, and nobody else accesses it at the same time.
        unsafe { self.memory.as_ptr().write_bytes(byte, BYTES) };
    }

    /// Offers bytes of the region, whether it was announced or not.
    fn offer(&mut self, offset: usize, bytes: usize) -> comm_core::fifo::Offers {
        let at = self.at(offset);
        let mut offers = self.send.region_offers().unwrap();
        let identity = identity(bytes);
        // SAFETY: the memory lives as long as the rig.
        let offered = unsafe {
            self.send
                .try_offer_readable(&mut offers, at, bytes, &identity)
        };
        assert!(offered.unwrap());
        let arrived = self
            .recv
            .try_take_or_offer(&identity, bytes, bytes)
            .unwrap();
        assert!(matches!(arrived, Some(Taken::Offer)));
        offers
    }

    fn pull(&self, bytes: usize) -> Result<Option<Vec<u8>>> {
        let mut got = vec![0; bytes];
        // SAFETY: the vector is as long, and a mapping overlaps nothing.
        let stands = unsafe { self.recv.pull(0, got.as_mut_ptr(), bytes, false) }?;
        Ok(stands.then_some(got))
    }
}

fn identity(bytes: usize) -> Identity {
    Identity::new(Signature {
        sequence: 1,
        kind: OperationKind::AllGather,
        algorithm: Algorithm::Ring,
        dtype: Some(DType::U8),
        op: None,
        root: 0,
        count: bytes as u64,
    })
}

#[test]
fn memory_is_readable_by_the_peer_from_its_answer_until_the_withdrawal() {
    let rig = Rig::new(true);
    let readable = |offset, bytes| rig.send.is_readable_by_peer(rig.at(offset), bytes);
    assert!(!readable(0, BYTES), "not announced");
    rig.announce();
    assert!(readable(0, BYTES));
    assert!(readable(BYTES - 1, 1));
    assert!(!readable(0, BYTES + 1));
    assert!(!readable(0, 0));
    let plain = [0; 100];
    assert!(!rig.send.is_readable_by_peer(plain.as_ptr(), 100));
    rig.region.withdraw();
    assert!(!readable(0, BYTES));
}

#[test]
fn over_an_edge_whose_peer_does_not_look_regions_up_nothing_is_readable() {
    let rig = Rig::new(false);
    rig.announce();
    assert!(!rig.send.is_readable_by_peer(rig.at(0), BYTES));
    assert!(rig.send.region_offers().is_none());
}

#[test]
fn the_peers_bytes_are_where_its_region_is_mapped() {
    let rig = Rig::new(true);
    let address = rig.at(10).addr() as u64;
    assert!(rig.recv.peer_bytes(address, 1).is_none());
    rig.announce();
    rig.fill(7);
    let bytes = rig.recv.peer_bytes(address, BYTES - 10).unwrap();
    assert_ne!(
        bytes.as_ptr(),
        rig.at(10),
        "another mapping of the same memory"
    );
    // SAFETY: mapped while `bytes` lives, and nobody writes now.
    assert_eq!(unsafe { bytes.as_ptr().read_volatile() }, 7);
    assert!(rig.recv.peer_bytes(address, BYTES - 9).is_none());
}

#[test]
fn an_offer_of_readable_memory_is_pulled_from_the_mapping() {
    let mut rig = Rig::new(true);
    rig.announce();
    rig.fill(9);
    let _offers = rig.offer(100, 50_000);
    let found = rig.recv.offered_bytes(0, 50_000).unwrap().unwrap();
    assert_ne!(found.as_ptr(), rig.at(100));
    assert_eq!(rig.pull(50_000).unwrap().unwrap(), vec![9; 50_000]);
    assert!(rig.recv.offer_stands());
    rig.recv.consume().unwrap();
    assert!(rig.send.is_acknowledged().unwrap());
}

#[test]
fn an_offer_of_memory_that_was_not_announced_is_a_breach_of_the_protocol() {
    let mut rig = Rig::new(true);
    let _offers = rig.offer(0, 1000);
    let error = rig.pull(1000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.to_string().contains("peer=0"), "{error}");
    assert!(rig.recv.offered_bytes(0, 1000).is_err());

    // Or one that reaches beyond what was.
    let mut rig = Rig::new(true);
    rig.announce();
    let _offers = rig.offer(BYTES - 10, 11);
    assert_eq!(rig.pull(11).unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn a_revoked_offer_is_void_also_when_its_region_is_gone() {
    let mut rig = Rig::new(true);
    rig.announce();
    let mut offers = rig.offer(0, 1000);
    offers.revoke();
    assert_eq!(rig.pull(1000).unwrap(), None);
    let id = rig.region.id();
    rig.recv.regions.as_ref().unwrap().forget(id);
    assert_eq!(rig.pull(1000).unwrap(), None);
}
