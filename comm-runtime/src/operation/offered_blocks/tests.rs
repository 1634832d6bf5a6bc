//! Clauses of blocks that are offered whole: the state machines of all ranks played against each other on
//! one thread, over FIFOs on the heap.

use std::sync::Arc;

use comm_core::doorbell::{Doorbells, RingTarget};
use comm_core::fifo::{FifoLayout, FifoMemory, PeerMemory};
use comm_core::memory::SealedMemory;
use comm_core::{ConnInfo, DType, OperationKind, Result};

use super::super::{Buffers, Ends, HostOperation, Progress};
use super::*;
use crate::edge::ends::{Identity, RecvEnd, SendEnd};
use crate::plan::{PlanConfig, Planner, Request};
use crate::region::Pair;

const STEP_BYTES: usize = 16 << 10;

/// Bytes of a block: several slices, and no multiple of a step.
const BLOCK_BYTES: usize = 300_001;

/// Written to memory that its owner got back; no result contains it.
const POISON: u8 = 0xee;

/// How the peers reach the memory of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Not at all.
    Slots,
    /// By the system.
    Pulled,
    /// Where it is mapped.
    Mapped,
    /// Where it is, under a claim.
    Claimed,
}

use Reach::{Claimed, Mapped, Pulled, Slots};

/// Reads addresses of this process.
#[derive(Debug)]
struct OwnMemory;

// SAFETY: tests offer addresses that live; only the target is written.
unsafe impl PeerMemory for OwnMemory {
    unsafe fn read(&self, address: u64, target: *mut u8, bytes: usize) -> Result<()> {
        let source: *const u8 = std::ptr::with_exposed_provenance(address as usize);
        // SAFETY: the offered bytes live, and the caller vouches for the target.
        unsafe { std::ptr::copy_nonoverlapping(source, target, bytes) };
        Ok(())
    }
}

struct Rank {
    ends: Ends,
    run: Option<HostOperation>,
    input: SealedMemory,
    /// `None` in place.
    output: Option<SealedMemory>,
    expected: Vec<u8>,
}

impl Rank {
    fn buffers(&self) -> Buffers {
        let output = self.output.as_ref().unwrap_or(&self.input);
        Buffers {
            input: self.input.as_ptr().as_ptr(),
            output: output.as_ptr().as_ptr(),
        }
    }

    fn is_right(&self) -> bool {
        // SAFETY: the mapping is as long as the result at least, and nobody writes to it now.
        let result =
            unsafe { std::slice::from_raw_parts(self.buffers().output, self.expected.len()) };
        result == self.expected
    }

    /// Gives the operation up and the memory back, which the owner then uses for something else.
    fn give_up(&mut self) {
        self.run = None;
        for memory in std::iter::once(&self.input).chain(&self.output) {
            // SAFETY: the mapping is as long; what is read of it by others at the same time is void.
            unsafe { memory.as_ptr().write_bytes(POISON, memory.len_bytes()) };
        }
    }
}

struct World {
    kind: OperationKind,
    ranks: Vec<Rank>,
}

/// A byte of the block that goes from one rank to another one.
fn byte(from: usize, to: usize, at: usize) -> u8 {
    ((from * 31 + to * 17 + at * 7 + at / 251) % 233) as u8
}

impl World {
    /// All-gathers or all-to-alls; the latter in place where `in_place` says so.
    fn new(kind: OperationKind, reaches: &[Reach], in_place: &[bool]) -> Self {
        let n = reaches.len();
        let exchanges = kind == OperationKind::AllToAll;
        let memories: Vec<_> = (0..n)
            .map(|rank| {
                let allocate = || SealedMemory::create_exclusive("test", n * BLOCK_BYTES).unwrap();
                let input = allocate();
                let value = |at: usize| {
                    let to = if exchanges { at / BLOCK_BYTES } else { 0 };
                    byte(rank, to, at % BLOCK_BYTES)
                };
                let contents: Vec<u8> = (0..n * BLOCK_BYTES).map(value).collect();
                let start = input.as_ptr().as_ptr();
                // SAFETY: the mapping is as long as the contents.
                unsafe { start.copy_from_nonoverlapping(contents.as_ptr(), contents.len()) };
                (input, (!in_place[rank]).then(allocate))
            })
            .collect();
        let regions = reaches.iter().zip(&memories);
        let regions = regions.filter(|(reach, _)| **reach == Mapped);
        let (pair, generation) = Pair::with_itself(regions.map(|(_, (input, _))| input));
        let ends = connect(reaches, |send, recv| {
            let send = send.with_regions(Arc::clone(&pair), generation);
            (send, recv.with_regions(Arc::clone(&pair)))
        });
        let ranks = memories.into_iter().zip(ends).enumerate();
        let ranks = ranks.map(|(rank, ((input, output), ends))| Rank {
            ends,
            run: None,
            input,
            output,
            expected: (0..n * BLOCK_BYTES)
                .map(|at| {
                    let to = if exchanges { rank } else { 0 };
                    byte(at / BLOCK_BYTES, to, at % BLOCK_BYTES)
                })
                .collect(),
        });
        let mut world = Self {
            kind,
            ranks: ranks.collect(),
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let n = self.ranks.len() as u32;
        for (number, rank) in (0..).zip(&mut self.ranks) {
            let config = PlanConfig {
                step_bytes: STEP_BYTES,
                algorithms: vec![comm_core::Algorithm::OneShot],
                ..PlanConfig::default()
            };
            let request = Request {
                kind: self.kind,
                dtype: Some(DType::U8),
                op: None,
                root: 0,
                count: BLOCK_BYTES,
                in_place: rank.output.is_none(),
            };
            let plan = Planner::new(number, n, config).plan(&request).unwrap();
            let flow = &plan.flows()[0];
            let ends = &rank.ends;
            let send = flow.sends_to.iter().map(|peer| ends.send_to(*peer, 0));
            let recv = flow
                .receives_from
                .iter()
                .map(|peer| ends.recv_from(*peer, 0));
            plan.resolve(vec![Resolved {
                send: send.map(Option::unwrap).collect(),
                recv: recv.map(Option::unwrap).collect(),
            }]);
            let identity = Identity::new(plan.signature(0));
            let run = HostOperation::collective(plan, identity, rank.buffers(), ends);
            rank.run = Some(run);
        }
    }

    fn step(&mut self, rank: usize, budget_bytes: usize) -> Option<Progress> {
        let Rank { ends, run, .. } = &mut self.ranks[rank];
        Some(run.as_mut()?.advance(ends, budget_bytes).unwrap())
    }

    /// Plays until all are done or nobody moves; who is done.
    fn play(&mut self, budget_bytes: usize, mut state: u64) -> Vec<bool> {
        let n = self.ranks.len();
        let mut done = vec![false; n];
        let mut idle = 0;
        while idle < 100 * n && !done.iter().all(|done| *done) {
            // Ranks in an order that a linear congruential generator names (Knuth's MMIX constants).
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let rank = (state >> 33) as usize % n;
            idle += 1;
            if done[rank] {
                continue;
            }
            match self.step(rank, budget_bytes) {
                Some(Progress::Done) => (done[rank], idle) = (true, 0),
                Some(Progress::Moved) => idle = 0,
                Some(Progress::Blocked) => self.waits_for_something(rank),
                None => {}
            }
        }
        done
    }

    /// A rank that is blocked names at least one edge.
    fn waits_for_something(&self, rank: usize) {
        let mut count = 0;
        if let Some(run) = &self.ranks[rank].run {
            run.blocked_on(&mut |_| count += 1);
        }
        assert!(count > 0, "rank {rank}");
    }

    /// Steps that a rank has published to all its peers.
    fn published(&mut self, rank: usize) -> u64 {
        let ends = self.ranks[rank].ends.send.iter_mut();
        ends.map(|end| end.fifo().unwrap().published()).sum()
    }

    fn is_right(&self) -> bool {
        self.ranks.iter().all(Rank::is_right)
    }
}

/// The ends of all ranks, whose receivers reach the sender's memory as it says.
fn connect(
    reaches: &[Reach],
    with_regions: impl Fn(SendEnd, RecvEnd) -> (SendEnd, RecvEnd),
) -> Vec<Ends> {
    let n = reaches.len();
    let mut ends: Vec<Ends> = (0..n).map(|_| Ends::default()).collect();
    for (from, to) in (0..n).flat_map(|from| (0..n).map(move |to| (from, to))) {
        if from == to {
            continue;
        }
        let bells = RingTarget::Local(Doorbells::local());
        let layout = FifoLayout::new(STEP_BYTES).unwrap();
        let memory = match reaches[from] {
            Slots => FifoMemory::heap(layout),
            Pulled => FifoMemory::heap(layout).pulling(Arc::new(OwnMemory)),
            Mapped => FifoMemory::heap(layout).mapping(),
            Claimed => FifoMemory::heap_with_offers(layout),
        };
        let (sender, receiver) = memory.into_ends(bells.clone(), bells);
        let send = SendEnd::new(to as u32, "test", ConnInfo::MemorySend(sender)).unwrap();
        let conn = ConnInfo::MemoryRecv(receiver);
        let recv = RecvEnd::new(to as u32, from as u32, "test", conn).unwrap();
        let (send, recv) = with_regions(send, recv);
        ends[from].add_send(0, send);
        ends[to].add_recv(0, recv);
    }
    ends
}

const BUDGETS: [usize; 3] = [1, 100_000, usize::MAX];

#[test]
fn a_block_is_one_step_where_the_peer_reaches_it_and_steps_elsewhere() {
    let steps = BLOCK_BYTES.div_ceil(STEP_BYTES) as u64;
    for kind in [OperationKind::AllGather, OperationKind::AllToAll] {
        for (reach, each) in [(Slots, steps), (Pulled, 1), (Mapped, 1), (Claimed, 1)] {
            for ranks in [2, 3] {
                for budget_bytes in BUDGETS {
                    let mut world = World::new(kind, &vec![reach; ranks], &vec![false; ranks]);
                    let done = world.play(budget_bytes, 1);
                    assert!(done.into_iter().all(|done| done), "{kind} {reach:?}");
                    assert!(world.is_right(), "{kind} {reach:?}");
                    for rank in 0..ranks {
                        let peers = ranks as u64 - 1;
                        assert_eq!(world.published(rank), peers * each, "{kind} {reach:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn ranks_may_differ_in_how_they_are_reached_and_in_whether_they_work_in_place() {
    let (all, some) = ([true; 4], [true, false, true, false]);
    for reaches in [
        [Pulled, Slots, Mapped, Claimed],
        [Slots, Pulled, Claimed, Mapped],
        [Pulled; 4],
    ] {
        for in_place in [all, some, [false; 4]] {
            for (seed, budget_bytes) in (0..).zip(BUDGETS) {
                let mut world = World::new(OperationKind::AllToAll, &reaches, &in_place);
                let done = world.play(budget_bytes, seed);
                assert!(done.into_iter().all(|done| done), "{reaches:?}");
                assert!(world.is_right(), "{reaches:?} {in_place:?}");
            }
        }
    }
}

#[test]
fn what_may_be_overwritten_goes_in_steps() {
    let steps = BLOCK_BYTES.div_ceil(STEP_BYTES) as u64;
    let in_place = [true, false];
    let mut world = World::new(OperationKind::AllToAll, &[Pulled, Pulled], &in_place);
    let done = world.play(usize::MAX, 0);
    assert!(done.into_iter().all(|done| done) && world.is_right());
    assert_eq!([world.published(0), world.published(1)], [steps, 1]);
}

#[test]
fn what_a_rank_takes_back_is_in_no_result() {
    for reach in [Pulled, Mapped, Claimed] {
        // As many pieces as there are slices, and some more.
        for pieces in 0..12 {
            let mut world = World::new(OperationKind::AllGather, &[reach; 3], &[false; 3]);
            let mut done = [false; 3];
            for _ in 0..pieces {
                for (rank, done) in done.iter_mut().enumerate() {
                    *done = *done || world.step(rank, 1) == Some(Progress::Done);
                }
            }
            world.ranks[2].give_up();
            let later = world.play(1, 0);
            for rank in [0, 1] {
                if done[rank] || later[rank] {
                    assert!(world.ranks[rank].is_right(), "{reach:?}, {pieces}");
                } else {
                    world.waits_for_something(rank);
                }
            }
            assert!(pieces > 0 || !later[0] && !later[1], "nothing was offered");
        }
    }
}

#[test]
fn operations_follow_each_other_on_the_same_edges() {
    let mut world = World::new(
        OperationKind::AllGather,
        &[Pulled, Slots, Mapped],
        &[false; 3],
    );
    for seed in 0..5 {
        let done = world.play(100_000, seed);
        assert!(done.into_iter().all(|done| done) && world.is_right());
        world.start();
    }
}
