//! From an algorithm to the flows and programs of one rank.

use comm_core::{Algorithm, Error, ErrorKind, OperationKind, Rank, Result};
use comm_graph::pattern::{DoubleTree, TreeNode, double_tree};

use super::{Flow, Method, Request};
use crate::operation::Fold;
use crate::operation::program::{
    Circulate, Dissemination, Exchange, Part, Peers, Phases, Pipe, Program, Relay, Ring,
};

/// Parts of a buffer start at multiples of this many elements, so that kernels work on whole
/// vectors.
const ALIGN_ELEMENTS: usize = 16;

/// Chunks of a tree that are under way together, where the message is long enough.
const TREE_CHUNKS: usize = 8;

/// Channels are numbered in 64 bits, and a double tree takes two.
const MOST_TREE_PAIRS: u32 = 32;

/// What a schedule depends on.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    pub(super) request: &'a Request,
    pub(super) rank: Rank,
    pub(super) world_size: u32,
    /// Channels over which large messages are spread.
    pub(super) channels: u32,
    /// Elements in one step.
    pub(super) chunk_elements: usize,
    /// Least number of elements in one step of a tree.
    pub(super) least_tree_chunk: usize,
}

/// Programs with their flows, under construction.
#[derive(Debug, Default)]
struct Lines {
    flows: Vec<Flow>,
    programs: Vec<Program>,
}

impl Lines {
    fn add(
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

    fn done(self) -> (Vec<Flow>, Method) {
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

    fn is_root(&self) -> bool {
        self.rank == self.request.root
    }

    /// Whether a rank's own data has to be copied from input to output.
    const fn copies(&self) -> bool {
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
    fn parts(&self, channels: u32, useful: usize) -> Vec<Part> {
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

    /// The ranks after and before this one.
    const fn neighbours(&self) -> (Rank, Rank) {
        let n = self.world_size;
        ((self.rank + 1) % n, (self.rank + n - 1) % n)
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
                position: self.rank as usize,
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
        let first = if reduces {
            (self.request.root + 1) % n
        } else {
            self.request.root
        };
        let place = (self.rank + n - first) % n;
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
        let (n, root) = (self.world_size, self.request.root);
        let distance = if to_root {
            (root + n - self.rank) % n
        } else {
            (self.rank + n - root) % n
        };
        let (next, previous) = self.neighbours();
        let farthest = distance == n - 1;
        let sends = if to_root { distance > 0 } else { !farthest };
        let receives = if to_root { !farthest } else { distance > 0 };
        let relay = Relay {
            to_root,
            size: n as usize,
            root: root as usize,
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
            rank: self.rank as usize,
            copies: self.copies(),
            block: self.request.count,
            part: self.whole(),
        };
        let mut lines = Lines::default();
        lines.add(0, [next], [previous], Program::Circulate(circulate));
        lines.done()
    }

    /// The parts of a double tree: two for each pair of trees, with chunks short enough that
    /// several are under way.
    fn tree_parts(&self) -> Vec<Part> {
        let useful = self.request.count.div_ceil(self.chunk_elements).max(2);
        let pairs = self.channels.clamp(1, MOST_TREE_PAIRS);
        let mut parts = self.parts(2 * pairs, useful);
        for part in &mut parts {
            part.chunk = (part.count / TREE_CHUNKS)
                .max(self.least_tree_chunk)
                .next_multiple_of(ALIGN_ELEMENTS)
                .min(self.chunk_elements);
        }
        parts
    }

    /// All-reduce: up each tree to its root and down again.
    fn trees(&self) -> Result<(Vec<Flow>, Method)> {
        let mut lines = Lines::default();
        for (channel, part) in self.tree_parts().into_iter().enumerate() {
            let node = place(self.rank, self.world_size)?.trees[channel % 2];
            let children: Vec<Rank> = node.children.into_iter().flatten().collect();
            let up = Pipe {
                receives: children.len(),
                sends: 1,
                contributes: true,
                keeps: false,
                finishes: false,
                part,
            };
            match node.parent {
                None => {
                    let both = Pipe {
                        sends: children.len(),
                        keeps: true,
                        finishes: true,
                        ..up
                    };
                    lines.add(channel, children.clone(), children, Program::Pipe(both));
                }
                Some(parent) => {
                    let down = Pipe {
                        receives: 1,
                        sends: children.len(),
                        contributes: false,
                        keeps: true,
                        ..up
                    };
                    lines.add(channel, [parent], children.clone(), Program::Pipe(up));
                    lines.add(channel, children, [parent], Program::Pipe(down));
                }
            }
        }
        Ok(lines.done())
    }

    /// Broadcast and reduce: the trees span all ranks but the root, which is the parent of both
    /// trees' roots.
    fn rooted_trees(&self, reduces: bool) -> Result<(Vec<Flow>, Method)> {
        let (n, root) = (self.world_size, self.request.root);
        // Nodes of the trees count from the rank after the root.
        let rank_of = |node: u32| (node + root + 1) % n;
        let mut lines = Lines::default();
        for (channel, part) in self.tree_parts().into_iter().enumerate() {
            let tree = channel % 2;
            let (parent, children): (Vec<Rank>, Vec<Rank>) = if self.is_root() {
                (Vec::new(), vec![rank_of(tree_root(tree, n - 1)?)])
            } else {
                let node = (self.rank + n - root - 1) % n;
                let node = place(node, n - 1)?.trees[tree];
                let children = node.children.into_iter().flatten().map(rank_of);
                (vec![node.parent.map_or(root, rank_of)], children.collect())
            };
            let at_root = self.is_root();
            let (sends_to, receives_from) = if reduces {
                (parent, children)
            } else {
                (children, parent)
            };
            let pipe = Pipe {
                receives: receives_from.len(),
                sends: sends_to.len(),
                contributes: reduces || at_root,
                keeps: if reduces {
                    at_root
                } else {
                    !at_root || self.copies()
                },
                finishes: reduces && at_root,
                part,
            };
            lines.add(channel, sends_to, receives_from, Program::Pipe(pipe));
        }
        Ok(lines.done())
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

/// The place of a node in the double binary tree of Sanders, Speck and Träff (2009).
fn place(node: u32, count: u32) -> Result<DoubleTree> {
    double_tree(node, count).ok_or_else(|| {
        Error::new(ErrorKind::Internal, "a rank has no place in the trees")
            .with("node", node)
            .with("count", count)
    })
}

/// The root of a tree over `count` nodes.
fn tree_root(tree: usize, count: u32) -> Result<u32> {
    let mut node = 0;
    while let TreeNode {
        parent: Some(parent),
        ..
    } = place(node, count)?.trees[tree]
    {
        node = parent;
    }
    Ok(node)
}
