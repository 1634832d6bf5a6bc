//! From an algorithm to the flows and programs of one rank.

use comm_core::{Algorithm, Error, ErrorKind, OperationKind, Rank, Result};

use super::{Flow, Method, RankOrder, Request};
use crate::operation::Fold;
use crate::operation::program::{
    Circulate, Dissemination, Exchange, Part, Peers, Phases, Pipe, Program, Relay, Ring,
};

/// Parts of a buffer start at multiples of this many elements, so that kernels work on whole
/// vectors.
pub(super) const ALIGN_ELEMENTS: usize = 16;

/// What a schedule depends on.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    pub(super) request: &'a Request,
    pub(super) rank: Rank,
    pub(super) world_size: u32,
    /// How the ranks stand in rings and trees.
    pub(super) order: &'a RankOrder,
    /// Channels over which large messages are spread.
    pub(super) channels: u32,
    /// Elements in one step.
    pub(super) chunk_elements: usize,
    /// Least number of elements in one step of a tree.
    pub(super) least_tree_chunk: usize,
}

/// Programs with their flows, under construction.
#[derive(Debug, Default)]
pub(super) struct Lines {
    flows: Vec<Flow>,
    programs: Vec<Program>,
}

impl Lines {
    pub(super) fn add(
        &mut self,
        channel: usize,
        sends_to: impl IntoIterator<Item = Rank>,
        receives_from: impl IntoIterator<Item = Rank>,
        program: Program,
    ) {
        self.flows.push(Flow {
            channel: u32::try_from(channel).unwrap_or(u32::MAX),
            sends_to: sends_to.into_iter().collect(),
            receives_from: receives_from.into_iter().collect(),
        });
        self.programs.push(program);
    }

    pub(super) fn done(self) -> (Vec<Flow>, Method) {
        (self.flows, Method::Programs(self.programs))
    }
}

impl Schedule<'_> {
    /// The flows and how the data moves on them.
    ///
    /// # Errors
    ///
    /// If the algorithm cannot carry the operation out, which [`choose`](super::choose) excludes.
    pub(super) fn make(&self, algorithm: Algorithm) -> Result<(Vec<Flow>, Method)> {
        use OperationKind as Kind;
        if self.world_size == 1 {
            return Ok(self.alone());
        }
        let kind = self.request.kind;
        Ok(match (algorithm, kind) {
            (Algorithm::OneShot, Kind::AllReduce | Kind::ReduceScatter | Kind::Reduce) => {
                self.fold()
            }
            (Algorithm::OneShot, _) => self.exchange()?,
            (Algorithm::Ring, Kind::AllReduce) => self.ring(Phases::AllReduce),
            (Algorithm::Ring, Kind::ReduceScatter) => self.ring(Phases::ReduceScatter),
            (Algorithm::Ring, Kind::AllGather) => self.ring(Phases::AllGather),
            (Algorithm::Ring, Kind::Broadcast) => self.line(false),
            (Algorithm::Ring, Kind::Reduce) => self.line(true),
            (Algorithm::Ring, Kind::Gather) => self.relay(true),
            (Algorithm::Ring, Kind::Scatter) => self.relay(false),
            (Algorithm::Ring, Kind::AllToAll) => self.circulate(),
            (Algorithm::DoubleTree, Kind::AllReduce) => self.trees()?,
            (Algorithm::DoubleTree, Kind::Broadcast) => self.rooted_trees(false)?,
            (Algorithm::DoubleTree, Kind::Reduce) => self.rooted_trees(true)?,
            (Algorithm::DirectShared | Algorithm::DirectMapped, Kind::AllReduce) => {
                let (flows, _) = self.fold();
                (flows, Method::Direct)
            }
            (Algorithm::Dissemination, Kind::Barrier) => self.dissemination(),
            _ => {
                return Err(
                    Error::new(ErrorKind::Internal, "no program for this algorithm")
                        .with("operation", kind)
                        .with("algorithm", algorithm),
                );
            }
        })
    }

    pub(super) fn is_root(&self) -> bool {
        self.rank == self.request.root
    }

    /// Whether a rank's own data has to be copied from input to output.
    pub(super) const fn copies(&self) -> bool {
        !self.request.in_place
    }

    /// The whole buffer or block.
    const fn whole(&self) -> Part {
        Part {
            start: 0,
            count: self.request.count,
            chunk: self.chunk_elements,
        }
    }

    /// Equal parts, one for each channel, but no more than `useful` ones; the last may be shorter.
    pub(super) fn parts(&self, channels: u32, useful: usize) -> Vec<Part> {
        let count = self.request.count;
        let channels = (channels.max(1) as usize).min(useful.max(1));
        let each = count.div_ceil(channels).next_multiple_of(ALIGN_ELEMENTS);
        let part = |channel: usize| {
            let start = (channel * each).min(count);
            Part {
                start,
                count: each.min(count - start),
                chunk: self.chunk_elements,
            }
        };
        // All ranks leave out the same empty parts; an empty message still has one.
        (0..channels)
            .map(part)
            .enumerate()
            .filter(|(channel, part)| *channel == 0 || part.count > 0)
            .map(|(_, part)| part)
            .collect()
    }

    /// The place of a rank in rings.
    pub(super) fn position_of(&self, rank: Rank) -> u32 {
        u32::try_from(self.order.position_of(rank)).unwrap_or(u32::MAX)
    }

    /// The rank at a place, which may be beyond the last one.
    pub(super) fn rank_at(&self, position: u32) -> Rank {
        let rank = self.order.rank_at((position % self.world_size) as usize);
        Rank::try_from(rank).unwrap_or(Rank::MAX)
    }

    /// The ranks after and before this one.
    fn neighbours(&self) -> (Rank, Rank) {
        let position = self.position_of(self.rank);
        let before = position + self.world_size - 1;
        (self.rank_at(position + 1), self.rank_at(before))
    }

    /// One rank keeps what it has.
    fn alone(&self) -> (Vec<Flow>, Method) {
        let mut lines = Lines::default();
        let pipe = Pipe {
            receives: 0,
            sends: 0,
            contributes: true,
            keeps: self.copies(),
            finishes: false,
            part: self.whole(),
        };
        lines.add(0, None, None, Program::Pipe(pipe));
        lines.done()
    }

    fn fold(&self) -> (Vec<Flow>, Method) {
        let others: Vec<Rank> = (1..self.world_size)
            .map(|distance| (self.rank + distance) % self.world_size)
            .collect();
        let rooted = self.request.kind == OperationKind::Reduce;
        let folds = !rooted || self.is_root();
        let sends_to = match (rooted, folds) {
            (false, _) => others.clone(),
            (true, true) => Vec::new(),
            (true, false) => vec![self.request.root],
        };
        let scatters = self.request.kind == OperationKind::ReduceScatter;
        let flow = Flow {
            channel: 0,
            sends_to,
            receives_from: if folds { others } else { Vec::new() },
        };
        let fold = Fold {
            source_stride: if scatters { self.request.count } else { 0 },
            folds,
        };
        (vec![flow], Method::Fold(fold))
    }

    fn exchange(&self) -> Result<(Vec<Flow>, Method)> {
        let count = self.request.count;
        let root = Peers::One(self.request.root as usize);
        let (nobody, all) = (Peers::Nobody, Peers::All);
        let (sends, receives, source_stride, target_stride) =
            match (self.request.kind, self.is_root()) {
                (OperationKind::AllGather, _) => (all, all, 0, count),
                (OperationKind::AllToAll, _) => (all, all, count, count),
                (OperationKind::Broadcast, true) => (all, nobody, 0, 0),
                (OperationKind::Broadcast, false) => (nobody, root, 0, 0),
                (OperationKind::Gather, true) => (nobody, all, 0, count),
                (OperationKind::Gather, false) => (root, nobody, 0, 0),
                (OperationKind::Scatter, true) => (all, nobody, count, 0),
                (OperationKind::Scatter, false) => (nobody, root, 0, 0),
                (kind, _) => {
                    return Err(Error::new(ErrorKind::Internal, "no exchange does this")
                        .with("operation", kind));
                }
            };
        // Elsewhere than at the root, rooted operations leave the own block to the root.
        let has_own = (sends, receives) == (all, all) || self.is_root();
        let exchange = Exchange {
            size: self.world_size as usize,
            rank: self.rank as usize,
            sends,
            receives,
            copies: self.copies() && has_own,
            source_stride,
            target_stride,
            part: self.whole(),
        };
        let rank = |peer| Rank::try_from(peer).ok();
        let mut lines = Lines::default();
        lines.add(
            0,
            exchange.sends_to().filter_map(rank),
            exchange.receives_from().filter_map(rank),
            Program::Exchange(exchange),
        );
        Ok(lines.done())
    }

    fn ring(&self, phases: Phases) -> (Vec<Flow>, Method) {
        let per_loop = match phases {
            Phases::AllReduce => self.chunk_elements.saturating_mul(self.world_size as usize),
            Phases::ReduceScatter | Phases::AllGather => self.chunk_elements,
        };
        let useful = self.request.count.div_ceil(per_loop);
        let (next, previous) = self.neighbours();
        let mut lines = Lines::default();
        for (channel, part) in self.parts(self.channels, useful).into_iter().enumerate() {
            let ring = Ring {
                phases,
                size: self.world_size as usize,
                position: self.order.position_of(self.rank),
                order: self.order.clone(),
                part,
                block: self.request.count,
            };
            lines.add(channel, [next], [previous], Program::Ring(ring));
        }
        lines.done()
    }

    /// A line of ranks that begins at the root (broadcast) or ends there (reduce).
    fn line(&self, reduces: bool) -> (Vec<Flow>, Method) {
        let n = self.world_size;
        let root = self.position_of(self.request.root);
        let first = if reduces { (root + 1) % n } else { root };
        let place = (self.position_of(self.rank) + n - first) % n;
        let (receives, sends) = (place > 0, place < n - 1);
        let (next, previous) = self.neighbours();
        let useful = self
            .request
            .count
            .div_ceil(self.chunk_elements * n as usize);
        let mut lines = Lines::default();
        for (channel, part) in self.parts(self.channels, useful).into_iter().enumerate() {
            let pipe = Pipe {
                receives: usize::from(receives),
                sends: usize::from(sends),
                contributes: reduces || !receives,
                keeps: if reduces {
                    !sends
                } else {
                    receives || self.copies()
                },
                finishes: reduces && !sends,
                part,
            };
            lines.add(
                channel,
                sends.then_some(next),
                receives.then_some(previous),
                Program::Pipe(pipe),
            );
        }
        lines.done()
    }

    fn relay(&self, to_root: bool) -> (Vec<Flow>, Method) {
        let n = self.world_size;
        let root = self.position_of(self.request.root);
        let position = self.position_of(self.rank);
        let distance = if to_root {
            (root + n - position) % n
        } else {
            (position + n - root) % n
        };
        let (next, previous) = self.neighbours();
        let farthest = distance == n - 1;
        let sends = if to_root { distance > 0 } else { !farthest };
        let receives = if to_root { !farthest } else { distance > 0 };
        let relay = Relay {
            to_root,
            size: n as usize,
            root: root as usize,
            order: self.order.clone(),
            distance: distance as usize,
            copies: self.copies(),
            block: self.request.count,
            part: self.whole(),
        };
        let mut lines = Lines::default();
        lines.add(
            0,
            sends.then_some(next),
            receives.then_some(previous),
            Program::Relay(relay),
        );
        lines.done()
    }

    fn circulate(&self) -> (Vec<Flow>, Method) {
        let (next, previous) = self.neighbours();
        let circulate = Circulate {
            size: self.world_size as usize,
            position: self.order.position_of(self.rank),
            order: self.order.clone(),
            copies: self.copies(),
            block: self.request.count,
            part: self.whole(),
        };
        let mut lines = Lines::default();
        lines.add(0, [next], [previous], Program::Circulate(circulate));
        lines.done()
    }

    fn dissemination(&self) -> (Vec<Flow>, Method) {
        let (n, rank) = (self.world_size, self.rank);
        let rounds = n.next_power_of_two().trailing_zeros();
        let ahead: Vec<Rank> = (0..rounds).map(|k| (rank + (1 << k)) % n).collect();
        let behind: Vec<Rank> = (0..rounds).map(|k| (rank + n - (1 << k)) % n).collect();
        let program = Dissemination {
            rounds: rounds as usize,
        };
        let mut lines = Lines::default();
        lines.add(0, ahead, behind, Program::Dissemination(program));
        lines.done()
    }
}
