//! Proving a plan: one linear pass over all ranks, without building the plan's tables.

use comm_core::{Error, ErrorKind};

use super::nodes::Plan;

impl Plan {
    /// Checks every channel of every rank.
    ///
    /// Rings lead through every rank exactly once; neighbours agree on both ends; trees have one
    /// root and reach every rank. Time is linear in `ranks x channels`, memory is one bit per
    /// rank and the open branches of one tree. Copies of a channel are checked once.
    ///
    /// # Errors
    ///
    /// `Internal`, naming the channel and the rank: plans made by this crate always pass.
    pub fn validate(&self) -> Result<(), Error> {
        let mut seen = Bits::new(self.ranks());
        for channel in 0..self.channels() {
            let first = self
                .channels
                .iter()
                .position(|other| *other == self.channels[channel]);
            if first == Some(channel) {
                self.validate_tree(channel, &mut seen)?;
            }
            let ring = self.channels[channel].0;
            if self.channels.iter().position(|other| other.0 == ring) == Some(channel) {
                self.validate_ring(channel, &mut seen)?;
            }
        }
        Ok(())
    }

    fn validate_ring(&self, channel: usize, seen: &mut Bits) -> Result<(), Error> {
        let broken = |message, rank| Err(broken(message, channel, rank));
        seen.clear();
        let mut at = 0;
        let mut here = self.ring(at, channel);
        for _ in 0..self.ranks() {
            if !seen.set(at) {
                return broken("a ring visits a rank twice", at);
            }
            let Some(next) = here.map(|view| view.next) else {
                return broken("a ring leads to a rank that does not exist", at);
            };
            here = self.ring(next, channel);
            if here.map(|view| view.prev) != Some(at) {
                return broken("ring neighbours do not agree", at);
            }
            at = next;
        }
        if at == 0 {
            Ok(())
        } else {
            broken("a ring does not close", at)
        }
    }

    fn validate_tree(&self, channel: usize, seen: &mut Bits) -> Result<(), Error> {
        let broken = |message, rank| Err(broken(message, channel, rank));
        let mut root = 0;
        for _ in 0..self.ranks() {
            match self.tree(root, channel).map(|view| view.up) {
                Some(Some(parent)) => root = parent,
                Some(None) => break,
                None => return broken("a rank has no place in a tree", root),
            }
        }
        // Whoever is reached once, from a parent it agrees with, hangs on the one root.
        seen.clear();
        let mut reached = 0;
        let mut pending: Vec<_> = self
            .tree(root, channel)
            .map(|view| (root, view))
            .into_iter()
            .collect();
        while let Some((rank, view)) = pending.pop() {
            if !seen.set(rank) {
                return broken("a tree reaches a rank twice", rank);
            }
            reached += 1;
            for child in view.down.into_iter().flatten() {
                match self.tree(child, channel) {
                    Some(view) if view.up == Some(rank) => pending.push((child, view)),
                    _ => return broken("a child names another parent", child),
                }
            }
        }
        if reached == self.ranks() {
            Ok(())
        } else {
            broken("a tree misses ranks", root)
        }
    }

    /// A hash of everything that ranks must agree on: equal plans have equal hashes.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Fnv::new();
        hash.add(self.ranks() as u64);
        for (channel, tree) in &self.channels {
            hash.add(u64::from(*channel) << 1 | u64::from(*tree));
        }
        hash.add(u64::from(self.ring.cross_nic));
        for class in &self.classes {
            for graph in [&class.ring, &class.tree, &class.nvls] {
                hash.add(graph.pattern as u64);
                for channel in &graph.channels {
                    channel
                        .endpoints
                        .iter()
                        .for_each(|endpoint| hash.add(*endpoint as u64));
                    let nets = channel.nets.into_iter().flatten();
                    nets.for_each(|net| hash.add(net as u64));
                }
            }
            class
                .slots
                .iter()
                .for_each(|slot| hash.add(u64::from(*slot)));
        }
        for node in &self.nodes {
            hash.add(u64::from(node.class) << 32 | u64::from(node.first));
        }
        self.table
            .iter()
            .for_each(|rank| hash.add(u64::from(*rank)));
        hash.0
    }
}

fn broken(message: &'static str, channel: usize, rank: u32) -> Error {
    Error::new(ErrorKind::Internal, message)
        .with("channel", channel)
        .with("rank", rank)
}

/// FNV-1a over 64-bit words: the same on every platform.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Sets a bit; `false` when it was set already.
    fn set(&mut self, index: u32) -> bool {
        let word = &mut self.0[index as usize / 64];
        let bit = 1 << (index % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}
