//! Every plan of every collective gives the right result.

use comm_core::{Algorithm, DType, OperationKind, ReduceOp};

use super::player::{Player, Value, play};
use crate::plan::{Extent, Extents, PlanConfig, Planner, RankOrder, Request};

/// Three bits for each rank's share of a sum are enough for this many ranks.
const MOST_RANKS: usize = 17;

/// What has not been written.
const UNTOUCHED: Value = Value {
    element: 0,
    ranks: 0,
    finished: 99,
};

/// One collective call of all ranks.
#[derive(Clone, Copy, Debug)]
struct Call {
    kind: OperationKind,
    algorithm: Algorithm,
    ranks: usize,
    root: usize,
    count: usize,
    chunk: usize,
    channels: u32,
    in_place: bool,
    /// Whether the ranks stand in another order than that of their numbers.
    mixed: bool,
}

impl Call {
    fn reduces(&self) -> bool {
        matches!(
            self.kind,
            OperationKind::AllReduce | OperationKind::Reduce | OperationKind::ReduceScatter
        )
    }

    fn is_rooted(kind: OperationKind) -> bool {
        matches!(
            kind,
            OperationKind::Broadcast
                | OperationKind::Reduce
                | OperationKind::Gather
                | OperationKind::Scatter
        )
    }

    fn extents(&self, rank: usize) -> Extents {
        Extents::new(self.kind, rank == self.root)
    }

    fn elements(&self, extent: Extent) -> usize {
        extent.blocks(self.ranks as u32) * self.count
    }

    /// What `rank` puts into its input.
    fn input(&self, rank: usize) -> Vec<Value> {
        (0..self.elements(self.extents(rank).input))
            .map(|element| Value::of(rank, element))
            .collect()
    }

    /// What must be in the output of `rank`.
    fn expected(&self, rank: usize) -> Vec<Value> {
        let count = self.count;
        let sum = |element: usize| Value {
            element: (element as u64 + 1) * self.ranks as u64,
            ranks: (0..self.ranks).map(|rank| 1 << (3 * rank)).sum(),
            // The only rank of a world reduces nothing.
            finished: u32::from(self.ranks > 1),
        };
        let block = |element: usize| (element / count.max(1), element % count.max(1));
        let value = |element: usize| match self.kind {
            OperationKind::AllReduce | OperationKind::Reduce => sum(element),
            OperationKind::ReduceScatter => sum(rank * count + element),
            OperationKind::Broadcast => Value::of(self.root, element),
            OperationKind::AllGather | OperationKind::Gather => {
                let (owner, element) = block(element);
                Value::of(owner, element)
            }
            OperationKind::AllToAll => {
                let (owner, element) = block(element);
                Value::of(owner, rank * count + element)
            }
            OperationKind::Scatter => Value::of(self.root, rank * count + element),
            other => panic!("{other} is no collective on data"),
        };
        (0..self.elements(self.extents(rank).output))
            .map(value)
            .collect()
    }

    fn order(&self) -> RankOrder {
        let mut ranks: Vec<u32> = (0..self.ranks as u32).collect();
        if self.mixed {
            // Even numbers up, odd ones down: no neighbour keeps its neighbour.
            ranks.sort_by_key(|rank| (rank % 2, if rank % 2 == 0 { *rank } else { 99 - rank }));
        }
        RankOrder::new(ranks)
    }

    fn player(&self, rank: usize) -> Player {
        let config = PlanConfig {
            step_bytes: self.chunk * size_of::<i64>(),
            tree_chunk_bytes: size_of::<i64>(),
            channels: self.channels,
            algorithms: vec![self.algorithm],
            ..PlanConfig::default()
        };
        let request = Request {
            kind: self.kind,
            dtype: Some(DType::I64),
            op: self.reduces().then_some(ReduceOp::Sum),
            root: self.root as u32,
            count: self.count,
            in_place: self.in_place,
        };
        let plan = Planner::new(rank as u32, self.ranks as u32, config)
            .in_order(self.order())
            .plan(&request)
            .unwrap();
        assert_eq!(plan.algorithm(), self.algorithm);
        let extents = self.extents(rank);
        let input = self.input(rank);
        if self.in_place {
            let (from, to) = extents.in_place_offsets(rank as u32, self.count);
            let mut memory = vec![UNTOUCHED; self.elements(extents.in_place())];
            memory[from..from + input.len()].copy_from_slice(&input);
            Player::new(plan, memory, from, to)
        } else {
            let output = input.len();
            let mut memory = input;
            memory.resize(output + self.elements(extents.output), UNTOUCHED);
            Player::new(plan, memory, 0, output)
        }
    }

    fn check(&self) {
        let mut players: Vec<_> = (0..self.ranks).map(|rank| self.player(rank)).collect();
        play(&mut players);
        for (rank, player) in players.iter().enumerate() {
            let extents = self.extents(rank);
            let (input, expected) = (self.input(rank), self.expected(rank));
            let (from, to) = if self.in_place {
                extents.in_place_offsets(rank as u32, self.count)
            } else {
                (0, input.len())
            };
            let output = &player.memory[to..to + expected.len()];
            assert_eq!(output, expected, "output of rank {rank} in {self:?}");
            if !self.in_place || extents.output == Extent::Nothing {
                let kept = &player.memory[from..from + input.len()];
                assert_eq!(kept, input, "input of rank {rank} in {self:?}");
            }
        }
    }
}

/// Checks a collective by an algorithm for all world sizes, roots, and many counts.
fn check(kind: OperationKind, algorithm: Algorithm) {
    for ranks in 1..=MOST_RANKS {
        let roots: Vec<usize> = match (Call::is_rooted(kind), ranks) {
            (false, _) => vec![0],
            (true, ..=9) => (0..ranks).collect(),
            (true, _) => vec![0, 1, ranks / 2, ranks - 1],
        };
        for root in roots {
            for (turn, count) in [0, 1, 2, 15, 16, 17, 64, 131, 400].into_iter().enumerate() {
                // Large counts for small worlds only, each count with several chunk sizes.
                if count > 131 && ranks > 9 {
                    continue;
                }
                for in_place in [false, true] {
                    Call {
                        kind,
                        algorithm,
                        ranks,
                        root,
                        count,
                        chunk: [16, 5, 20, 48][(turn + root + ranks) % 4],
                        channels: [1, 3, 2][(turn + ranks) % 3],
                        in_place,
                        mixed: (turn + root) % 2 == 1,
                    }
                    .check();
                }
            }
        }
    }
}

macro_rules! plays {
    ($($name:ident: $kind:ident by $algorithm:ident;)*) => {$(
        #[test]
        fn $name() {
            check(OperationKind::$kind, Algorithm::$algorithm);
        }
    )*};
}

plays! {
    a_ring_all_reduce_takes_every_input_once: AllReduce by Ring;
    a_one_shot_all_reduce_takes_every_input_once: AllReduce by OneShot;
    a_tree_all_reduce_takes_every_input_once: AllReduce by DoubleTree;
    a_ring_reduce_takes_every_input_once: Reduce by Ring;
    a_one_shot_reduce_takes_every_input_once: Reduce by OneShot;
    a_tree_reduce_takes_every_input_once: Reduce by DoubleTree;
    a_ring_reduce_scatter_takes_every_input_once: ReduceScatter by Ring;
    a_one_shot_reduce_scatter_takes_every_input_once: ReduceScatter by OneShot;
    a_ring_broadcast_gives_everybody_the_roots_buffer: Broadcast by Ring;
    a_one_shot_broadcast_gives_everybody_the_roots_buffer: Broadcast by OneShot;
    a_tree_broadcast_gives_everybody_the_roots_buffer: Broadcast by DoubleTree;
    a_ring_all_gather_puts_every_block_in_its_place: AllGather by Ring;
    a_one_shot_all_gather_puts_every_block_in_its_place: AllGather by OneShot;
    a_ring_all_to_all_puts_every_block_in_its_place: AllToAll by Ring;
    a_one_shot_all_to_all_puts_every_block_in_its_place: AllToAll by OneShot;
    a_ring_gather_puts_every_block_in_its_place: Gather by Ring;
    a_one_shot_gather_puts_every_block_in_its_place: Gather by OneShot;
    a_ring_scatter_gives_everybody_its_block: Scatter by Ring;
    a_one_shot_scatter_gives_everybody_its_block: Scatter by OneShot;
}

#[test]
fn ranks_may_differ_in_whether_they_work_in_place() {
    for kind in [
        OperationKind::AllReduce,
        OperationKind::AllGather,
        OperationKind::ReduceScatter,
        OperationKind::AllToAll,
        OperationKind::Broadcast,
    ] {
        for algorithm in [Algorithm::Ring, Algorithm::OneShot] {
            let call = |in_place| Call {
                kind,
                algorithm,
                ranks: 4,
                root: 1,
                count: 50,
                chunk: 16,
                channels: 1,
                in_place,
                mixed: false,
            };
            let mut players: Vec<_> = (0..4)
                .map(|rank| call(rank % 2 == 0).player(rank))
                .collect();
            play(&mut players);
        }
    }
}

#[test]
fn a_barrier_comes_to_an_end() {
    for ranks in 1..=MOST_RANKS as u32 {
        let barrier = Request {
            kind: OperationKind::Barrier,
            dtype: None,
            op: None,
            root: 0,
            count: 0,
            in_place: true,
        };
        let player = |rank| {
            let planner = Planner::new(rank, ranks, PlanConfig::default());
            Player::new(planner.plan(&barrier).unwrap(), Vec::new(), 0, 0)
        };
        play(&mut (0..ranks).map(player).collect::<Vec<_>>());
    }
}
