//! Clauses of all-reduces on mapped memory: the state machines of all ranks played against each other on
//! one thread, over FIFOs on the heap and regions of this process.

use comm_core::doorbell::{Doorbells, RingTarget};
use comm_core::fifo::{FifoLayout, FifoMemory};
use comm_core::memory::SealedMemory;
use comm_core::{Algorithm, ConnInfo, DType, OperationKind, ReduceOp, Signature};
use comm_kernels::Reducer;

use super::super::{Buffers, Ends, HostOperation, Progress};
use super::*;
use crate::edge::ends::{RecvEnd, SendEnd};
use crate::plan::{PlanConfig, Planner, Request};
use crate::region::Pair;

/// Elements that no number of ranks divides, in more slices than one for each rank.
const COUNT: usize = 530_009;

/// Written to memory that its owner got back; no result contains it.
const POISON: u8 = 0xee;

/// The memory of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Regions, the result beside the input.
    Mapped,
    /// One region for both.
    InPlace,
    /// Nothing that others read.
    Plain,
    /// Only the input is a region.
    Half,
}

use Kind::{Half, InPlace, Mapped, Plain};

struct Rank {
    ends: Ends,
    run: Option<HostOperation>,
    input: SealedMemory,
    output: Option<SealedMemory>,
    /// For the operation's own way.
    plan: Arc<Plan>,
}

impl Rank {
    fn result(&self) -> Vec<u8> {
        let memory = self.output.as_ref().unwrap_or(&self.input);
        // SAFETY: the mapping is as long, and nobody writes to it now.
        unsafe { std::slice::from_raw_parts(memory.as_ptr().as_ptr(), memory.len_bytes()) }.to_vec()
    }

    /// Gives the operation up and the memory back, which the owner then uses for something else.
    fn give_up(&mut self) {
        self.run = None;
        for memory in [Some(&self.input), self.output.as_ref()]
            .into_iter()
            .flatten()
        {
            // SAFETY: the mapping is as long; what is read of it by others at the same time is void.
            unsafe { memory.as_ptr().write_bytes(POISON, memory.len_bytes()) };
        }
    }
}

struct World {
    ranks: Vec<Rank>,
    reducer: Reducer,
    op: ReduceOp,
    inputs: Vec<Vec<u8>>,
}

/// What a rank contributes.
fn contents(dtype: DType, rank: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(COUNT * dtype.size_bytes());
    for index in 0..COUNT {
        let small = ((rank * 5 + index * 7) % 23) as i8 - 9;
        let third = f32::from(small) / 3.0;
        match dtype {
            DType::I64 => bytes.extend(i64::from(small).to_ne_bytes()),
            DType::F64 => bytes.extend((f64::from(small) / 3.0).to_ne_bytes()),
            // The upper half of an f32.
            DType::Bf16 => bytes.extend(((third.to_bits() >> 16) as u16).to_ne_bytes()),
            // Below 1, with all bits of the fraction.
            DType::F16 => {
                bytes.extend((((rank * 7_919 + index * 131) % 0x3c00) as u16).to_ne_bytes());
            }
            _ => bytes.extend(third.to_ne_bytes()),
        }
    }
    bytes
}

impl World {
    fn new(dtype: DType, op: ReduceOp, kinds: &[Kind]) -> Self {
        let n = kinds.len();
        let bytes = COUNT * dtype.size_bytes();
        let inputs: Vec<Vec<u8>> = (0..n).map(|rank| contents(dtype, rank)).collect();
        let memories: Vec<_> = kinds
            .iter()
            .zip(&inputs)
            .map(|(kind, contents)| {
                let allocate = || SealedMemory::create_exclusive("test", bytes).unwrap();
                let input = allocate();
                // SAFETY: the mapping is as long as the contents.
                unsafe { input.as_ptr().as_ptr().copy_from(contents.as_ptr(), bytes) };
                (input, (*kind != InPlace).then(allocate))
            })
            .collect();
        let regions = kinds
            .iter()
            .zip(&memories)
            .flat_map(|(kind, (input, output))| {
                let input = (*kind != Plain).then_some(input);
                let output = output.as_ref().filter(|_| *kind == Mapped);
                input.into_iter().chain(output)
            });
        let (pair, generation) = Pair::with_itself(regions);
        let plans: Vec<_> = (0..n)
            .map(|rank| {
                let planner = Planner::new(rank as u32, n as u32, PlanConfig::default());
                let request = Request {
                    kind: OperationKind::AllReduce,
                    dtype: Some(dtype),
                    op: Some(op),
                    root: 0,
                    count: COUNT,
                    in_place: kinds[rank] == InPlace,
                };
                planner.mapping_memory(true).plan(&request).unwrap()
            })
            .collect();
        let mut ends: Vec<Ends> = (0..n).map(|_| Ends::default()).collect();
        for (rank, plan) in plans.iter().enumerate() {
            assert_eq!(plan.algorithm(), Algorithm::DirectMapped, "{plan}");
            for flow in plan.flows() {
                for peer in &flow.sends_to {
                    let channel = flow.channel;
                    if ends[rank].send_to(*peer, channel).is_some() {
                        continue;
                    }
                    let bells = RingTarget::Local(Doorbells::local());
                    let layout = FifoLayout::new(PlanConfig::default().step_bytes).unwrap();
                    let memory = FifoMemory::heap(layout).mapping();
                    let (sender, receiver) = memory.into_ends(bells.clone(), bells);
                    let own = rank as u32;
                    let send = SendEnd::new(*peer, "test", ConnInfo::MemorySend(sender)).unwrap();
                    let recv =
                        RecvEnd::new(*peer, own, "test", ConnInfo::MemoryRecv(receiver)).unwrap();
                    let send = send.with_regions(Arc::clone(&pair), generation);
                    ends[rank].add_send(channel, send);
                    let recv = recv.with_regions(Arc::clone(&pair));
                    ends[*peer as usize].add_recv(channel, recv);
                }
            }
        }
        let ranks = memories.into_iter().zip(plans).zip(ends);
        let ranks = ranks.map(|(((input, output), plan), ends)| {
            plan.resolve(
                plan.flows()
                    .iter()
                    .map(|flow| resolve(flow, &ends))
                    .collect(),
            );
            Rank {
                ends,
                run: None,
                input,
                output,
                plan,
            }
        });
        Self {
            ranks: ranks.collect(),
            reducer: Reducer::new(dtype, op).unwrap(),
            op,
            inputs,
        }
    }

    fn start(&mut self, plan: impl Fn(&Rank) -> Arc<Plan>) {
        for rank in &mut self.ranks {
            let plan = plan(rank);
            let signature: Signature = plan.signature(0);
            let output = rank.output.as_ref().unwrap_or(&rank.input).as_ptr();
            let buffers = Buffers {
                input: rank.input.as_ptr().as_ptr().cast_const(),
                output: output.as_ptr(),
            };
            rank.run = Some(HostOperation::collective(
                plan,
                Identity::new(signature),
                buffers,
                &rank.ends,
            ));
        }
    }

    /// Lets one rank do a piece of its work.
    fn step(&mut self, rank: usize, budget_bytes: usize) -> Option<Progress> {
        let Rank { ends, run, .. } = &mut self.ranks[rank];
        Some(run.as_mut()?.advance(ends, budget_bytes).unwrap())
    }

    /// Plays until all are done or nobody moves; who is done.
    fn play(&mut self, budget_bytes: usize, mut next: impl FnMut() -> usize) -> Vec<bool> {
        let n = self.ranks.len();
        let mut done = vec![false; n];
        let mut idle = 0;
        while idle < 100 * n && !done.iter().all(|done| *done) {
            let rank = next() % n;
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

    /// The left fold over the ranks, rounded once.
    fn expected(&self) -> Vec<u8> {
        let sources: Vec<_> = self.inputs.iter().map(|input| input.as_ptr()).collect();
        let mut result = vec![0; self.inputs[0].len()];
        let ranks = if self.op == ReduceOp::Avg {
            sources.len() as u32
        } else {
            1
        };
        let target = result.as_mut_ptr();
        // SAFETY: all vectors hold as many elements, and do not overlap.
        unsafe {
            self.reducer
                .reduce_many_scaled(target, &sources, COUNT, ranks)
        };
        result
    }
}

fn resolve(flow: &crate::plan::Flow, ends: &Ends) -> Resolved {
    let index = |found: Option<usize>| found.expect("an edge of the plan");
    Resolved {
        send: flow
            .sends_to
            .iter()
            .map(|peer| index(ends.send_to(*peer, flow.channel)))
            .collect(),
        recv: flow
            .receives_from
            .iter()
            .map(|peer| index(ends.recv_from(*peer, flow.channel)))
            .collect(),
    }
}

fn in_turn() -> impl FnMut() -> usize {
    let mut last = 0;
    move || {
        last += 1;
        last
    }
}

/// Ranks in an order that a linear congruential generator names (Knuth's MMIX constants).
fn at_random(mut state: u64) -> impl FnMut() -> usize {
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    }
}

fn read_directly(world: &World) -> bool {
    let direct = |rank: &Rank| match &rank.run {
        Some(HostOperation::MappedReduce(run)) => matches!(run.way, Way::Copy),
        _ => false,
    };
    world.ranks.iter().all(direct)
}

#[test]
fn every_rank_gets_the_left_fold_in_place_and_beside_in_every_order() {
    for (seed, kinds) in [
        &[Mapped, Mapped][..],
        &[InPlace, InPlace],
        &[InPlace, Mapped],
        &[Mapped, InPlace, Mapped],
        &[InPlace, InPlace, InPlace],
        &[Mapped, Mapped, InPlace, InPlace, Mapped],
    ]
    .into_iter()
    .enumerate()
    {
        for budget_bytes in [1, 100_000, usize::MAX] {
            let mut world = World::new(DType::F32, ReduceOp::Sum, kinds);
            world.start(|rank| Arc::clone(&rank.plan));
            let done = world.play(budget_bytes, at_random(seed as u64));
            assert!(done.into_iter().all(|done| done), "{kinds:?}");
            assert!(read_directly(&world));
            let expected = world.expected();
            for rank in &world.ranks {
                assert!(rank.result() == expected, "{kinds:?}");
            }
        }
    }
}

#[test]
fn every_type_is_rounded_once() {
    for dtype in [DType::I64, DType::F64, DType::Bf16, DType::F16] {
        for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max] {
            let mut world = World::new(dtype, op, &[Mapped, InPlace, Mapped]);
            world.start(|rank| Arc::clone(&rank.plan));
            let done = world.play(usize::MAX, in_turn());
            assert!(done.into_iter().all(|done| done));
            let expected = world.expected();
            for rank in &world.ranks {
                assert!(rank.result() == expected, "{dtype} {op}");
            }
        }
    }
}

#[test]
fn a_refusal_of_anybody_leads_all_to_the_other_way_and_its_result() {
    for kinds in [
        &[Plain, Plain][..],
        &[Mapped, Plain],
        &[Half, InPlace],
        &[Mapped, Mapped, Plain],
        &[Plain, InPlace, Mapped],
        &[Half, Plain, Plain, Mapped],
    ] {
        for op in [ReduceOp::Sum, ReduceOp::Avg] {
            let mut without = World::new(DType::F16, op, kinds);
            without.start(|rank| Arc::clone(rank.plan.instead_over(&rank.ends).unwrap()));
            let done = without.play(usize::MAX, in_turn());
            assert!(done.into_iter().all(|done| done), "{kinds:?}");
            for seed in 0..4 {
                let mut world = World::new(DType::F16, op, kinds);
                world.start(|rank| Arc::clone(&rank.plan));
                let done = world.play(usize::MAX, at_random(seed));
                assert!(done.into_iter().all(|done| done), "{kinds:?}");
                assert!(!read_directly(&world));
                for (rank, other) in world.ranks.iter().zip(&without.ranks) {
                    assert!(rank.result() == other.result(), "{kinds:?} {op}");
                }
            }
        }
    }
}

#[test]
fn who_refuses_begins_without_the_answers_that_it_does_not_need() {
    // Rank 0 receives from rank 3 only; rank 2 is not there yet.
    let mut world = World::new(DType::F32, ReduceOp::Sum, &[Plain; 4]);
    world.start(|rank| Arc::clone(&rank.plan));
    for rank in [0, 3, 0] {
        world.step(rank, usize::MAX);
    }
    let Some(HostOperation::MappedReduce(run)) = &world.ranks[0].run else {
        panic!("another operation");
    };
    assert!(!run.is_before_data(run.plan.edges(0)));
    assert!(run.peers.iter().any(|peer| peer.offered.is_none()));
    let done = world.play(usize::MAX, in_turn());
    assert!(done.into_iter().all(|done| done));
}

#[test]
fn what_a_rank_takes_back_is_in_no_result() {
    for kinds in [&[Mapped, InPlace][..], &[Mapped, Mapped, InPlace]] {
        let victim = kinds.len() - 1;
        // As many pieces as the victim's part has, and some more.
        for pieces in 0..30 {
            let mut world = World::new(DType::F32, ReduceOp::Max, kinds);
            world.start(|rank| Arc::clone(&rank.plan));
            let expected = world.expected();
            let mut done = vec![false; kinds.len()];
            for _ in 0..pieces {
                for (rank, done) in done.iter_mut().enumerate() {
                    *done = *done || world.step(rank, 1) == Some(Progress::Done);
                }
            }
            world.ranks[victim].give_up();
            let later = world.play(1, in_turn());
            for (rank, (before, later)) in done.iter().zip(&later).enumerate() {
                if rank != victim && (*before || *later) {
                    assert!(
                        world.ranks[rank].result() == expected,
                        "{kinds:?}, {pieces}"
                    );
                }
            }
        }
    }
}

#[test]
fn operations_follow_each_other_on_the_same_edges() {
    let mut world = World::new(DType::F32, ReduceOp::Max, &[Mapped, InPlace, InPlace]);
    let expected = world.expected();
    for seed in 0..5 {
        world.start(|rank| Arc::clone(&rank.plan));
        let done = world.play(100_000, at_random(seed));
        assert!(done.into_iter().all(|done| done));
        for rank in &world.ranks {
            assert!(rank.result() == expected);
        }
    }
}

#[test]
fn after_refusals_the_ranks_go_the_other_way_unasked_and_ask_again_later() {
    for kinds in [&[Mapped, Plain, Mapped][..], &[Plain, Mapped]] {
        let mut world = World::new(DType::I64, ReduceOp::Sum, kinds);
        let expected = world.expected();
        let mut asked = Vec::new();
        for seed in 0..8 {
            world.start(|rank| Arc::clone(&rank.plan));
            let done = world.play(100_000, at_random(seed));
            assert!(done.into_iter().all(|done| done));
            let asks = |rank: &Rank| match &rank.run {
                Some(HostOperation::MappedReduce(run)) => run.asks == Some(true),
                _ => panic!("another operation"),
            };
            let first = asks(&world.ranks[0]);
            assert!(world.ranks.iter().all(|rank| asks(rank) == first));
            asked.push(first);
            for rank in &world.ranks {
                assert!(rank.result() == expected);
            }
        }
        let expected = [true, false, true, false, false, true, false, false];
        assert_eq!(asked, expected);
    }
}
