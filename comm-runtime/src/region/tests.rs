//! Clauses of the tables that two processes have of each other, with both in one.

use std::os::fd::OwnedFd;

use comm_core::ErrorKind;
use comm_core::memory::SealedMemory;

use super::pair::MAX_REGIONS;
use super::*;

const PAGE: usize = 4096;

fn memory(bytes: usize) -> SealedMemory {
    SealedMemory::create_exclusive("test", bytes).unwrap()
}

fn fd_of(memory: &SealedMemory) -> OwnedFd {
    memory.fd().try_clone_to_owned().unwrap()
}

fn span(start: u64, bytes: usize) -> Span {
    Span::new(start, bytes).unwrap()
}

/// The first byte of what was found.
fn first(found: &PeerBytes) -> u8 {
    // SAFETY: at least one byte was asked for, which stays mapped, and nobody writes it now.
    unsafe { found.as_ptr().read_volatile() }
}

fn fill(memory: &SealedMemory, byte: u8) {
    // SAFETY: the mapping is as long, and nobody else accesses it at the same time.
    unsafe { memory.as_ptr().write_bytes(byte, memory.len_bytes()) };
}

fn route() -> Route {
    Route {
        core: Weak::new(),
        rank: 1,
    }
}

#[test]
fn an_address_of_the_peer_is_found_if_all_of_the_range_is_in_one_region() {
    let pair = Pair::new();
    let (low, high) = (memory(2 * PAGE), memory(PAGE));
    fill(&low, 1);
    fill(&high, 2);
    // In the wrong order, and next to each other.
    let at = 0x10_000;
    let behind = at + 2 * PAGE as u64;
    pair.import(RegionId(2), span(behind, PAGE), fd_of(&high))
        .unwrap();
    pair.import(RegionId(1), span(at, 2 * PAGE), fd_of(&low))
        .unwrap();
    let found = |address, bytes| pair.find(address, bytes).map(|found| first(&found));
    assert_eq!(found(at, 2 * PAGE), Some(1));
    assert_eq!(found(behind - 1, 1), Some(1));
    assert_eq!(found(behind, PAGE), Some(2));
    assert_eq!(found(behind + 100, 5), Some(2));
    for (address, bytes) in [
        (at - 1, 1),
        (at - 1, 2 * PAGE),
        (behind - 1, 2),
        (behind, PAGE + 1),
        (behind + PAGE as u64, 1),
        (at, 0),
        (u64::MAX, 1),
        (at, usize::MAX),
    ] {
        assert_eq!(found(address, bytes), None, "{address:#x}, {bytes}");
    }
}

#[test]
fn what_is_being_read_stays_mapped_when_its_region_is_withdrawn() {
    let pair = Pair::new();
    let owner = memory(PAGE);
    fill(&owner, 7);
    let at = 0x10_000;
    pair.import(RegionId(1), span(at, PAGE), fd_of(&owner))
        .unwrap();
    let reading = pair.find(at, PAGE).unwrap();
    pair.forget(RegionId(1));
    drop(owner);
    assert_eq!(first(&reading), 7);
    assert!(pair.find(at, PAGE).is_none());
    assert_eq!(pair.usage(), (0, 0, 0));
    pair.forget(RegionId(1));
}

#[test]
fn a_region_replaces_those_that_cannot_exist_beside_it() {
    let pair = Pair::new();
    let (old, new) = (memory(2 * PAGE), memory(PAGE));
    fill(&old, 1);
    fill(&new, 2);
    let at = 0x10_000;
    pair.import(RegionId(1), span(at, 2 * PAGE), fd_of(&old))
        .unwrap();
    // The peer's address was used again before it was heard that the first region is gone.
    let inside = at + PAGE as u64;
    pair.import(RegionId(2), span(inside, PAGE), fd_of(&new))
        .unwrap();
    assert!(pair.find(at, 1).is_none());
    assert_eq!(first(&pair.find(inside, PAGE).unwrap()), 2);
    // What is heard late concerns the old one only.
    pair.forget(RegionId(1));
    assert!(pair.find(inside, PAGE).is_some());
}

#[test]
fn a_file_that_is_not_as_announced_is_refused() {
    let pair = Pair::new();
    let owner = memory(PAGE);
    let wrong_size = pair.import(RegionId(1), span(0x10_000, 2 * PAGE), fd_of(&owner));
    assert_eq!(wrong_size.unwrap_err().kind(), ErrorKind::Protocol);
    let writable = SealedMemory::create("test", PAGE).unwrap();
    let not_sealed = pair.import(RegionId(1), span(0x10_000, PAGE), fd_of(&writable));
    assert_eq!(not_sealed.unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(pair.usage().0, 0);
}

#[test]
fn a_peer_gets_a_clear_no_beyond_the_limits() {
    let pair = Pair::new();
    let owner = memory(PAGE);
    let at = |index: usize| span((1 + index as u64) << 20, PAGE);
    for index in 0..MAX_REGIONS {
        pair.import(RegionId(index as u64), at(index), fd_of(&owner))
            .unwrap();
    }
    let one_more = pair.import(RegionId(5000), at(MAX_REGIONS), fd_of(&owner));
    let error = one_more.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert!(error.message().contains("1024"), "{error}");
    // One that takes the place of another is none more.
    pair.import(RegionId(5001), at(3), fd_of(&owner)).unwrap();
    pair.forget(RegionId(7));
    pair.import(RegionId(5002), at(MAX_REGIONS), fd_of(&owner))
        .unwrap();

    let whole = span(1 << 42, (1 << 40) + 1);
    let error = Pair::new().import(RegionId(1), whole, fd_of(&owner));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert!(error.message().contains("1 TiB"), "{error}");
}

#[test]
fn own_memory_counts_as_read_by_the_peer_while_the_peer_has_it_in_this_table() {
    let (pair, there) = (Pair::new(), Pair::new());
    let (at, generation) = (0x10_000, there.generation());
    let part = span(at + 10, 20);
    assert!(!pair.has_exported(part, generation));
    pair.export(RegionId(1), span(at, PAGE), generation);
    assert!(pair.has_exported(part, generation));
    assert!(pair.has_exported(span(at, PAGE), generation));
    for (start, bytes) in [(at - 1, 2), (at, PAGE + 1), (at + PAGE as u64, 1)] {
        assert!(!pair.has_exported(span(start, bytes), generation));
    }
    // Another table, as after all communicators with the peer had ended.
    assert!(!pair.has_exported(part, Pair::new().generation()));
    pair.withdraw(RegionId(1));
    assert!(!pair.has_exported(part, generation));
}

#[test]
fn the_last_communicator_unmaps_everything_and_what_was_confirmed_is_void() {
    let pair = Arc::new(Pair::new());
    let owner = memory(PAGE);
    let route = route();
    pair.begin_use(route.clone());
    let confirmed = pair
        .import(RegionId(1), span(0x10_000, PAGE), fd_of(&owner))
        .unwrap();
    assert_eq!(confirmed, pair.generation());
    pair.end_use(&route);
    assert_eq!(pair.usage().0, 0);
    assert_ne!(confirmed, pair.generation());
}

#[test]
fn an_answer_counts_if_its_process_was_asked_and_the_region_lives() {
    let regions = Arc::new(Regions::default());
    let (asked, other) = (ProcessId([1; 16]), ProcessId([2; 16]));
    let pair = regions.pair(asked);
    let generation = pair.generation();
    let region = regions.add(span(0x10_000, PAGE));
    region.answer(asked, Some(generation));
    assert!(!pair.has_exported(region.span(), generation), "not asked");
    region.expect(asked, &pair, route());
    assert!(region.is_expected(asked) && !region.is_expected(other));
    region.answer(other, Some(generation));
    assert!(!pair.has_exported(region.span(), generation));
    region.answer(asked, Some(generation));
    assert!(pair.has_exported(region.span(), generation));
    assert_eq!(regions.stats().allocated_bytes, PAGE as u64);
    region.withdraw();
    assert!(!pair.has_exported(region.span(), generation));
    assert!(regions.get(region.id()).is_none());
    assert_eq!(regions.stats(), MemStats::default());

    // Asked, withdrawn, and answered late.
    let late = regions.add(span(0x20_000, PAGE));
    late.expect(asked, &pair, route());
    late.withdraw();
    late.answer(asked, Some(generation));
    assert!(!pair.has_exported(late.span(), generation));
}

#[test]
fn waiting_ends_with_the_last_answer_or_when_none_will_come() {
    let regions = Arc::new(Regions::default());
    let region = regions.add(span(0x10_000, PAGE));
    let now = std::time::Instant::now;
    assert!(region.wait(now()).is_empty(), "nobody was asked");
    let processes = [1, 2, 3].map(|process| ProcessId([process; 16]));
    for (rank, process) in processes.into_iter().enumerate() {
        let rank = rank as Rank;
        let core = Weak::new();
        region.expect(process, &regions.pair(process), Route { core, rank });
    }
    assert_eq!(region.wait(now()), processes, "by the deadline");
    region.answer(processes[0], None);
    region.give_up(&Weak::new(), |rank| rank == 1);
    assert_eq!(region.wait(now()), processes[2..]);
    let soon = now() + std::time::Duration::from_secs(60);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| region.wait(soon));
        region.answer(processes[2], None);
        assert!(waiting.join().unwrap().is_empty());
    });
}

#[test]
fn what_travels_comes_back_and_nonsense_is_an_error() {
    let message = RegionMessage::Map {
        id: RegionId(3),
        span: span(4096, 10),
    };
    let bytes = postcard::to_allocvec(&message).unwrap();
    assert!(matches!(
        postcard::from_bytes(&bytes).unwrap(),
        RegionMessage::Map { id: RegionId(3), span: got } if got == span(4096, 10)
    ));
    for length in 0..bytes.len() {
        assert!(postcard::from_bytes::<RegionMessage>(&bytes[..length]).is_err());
    }
}
