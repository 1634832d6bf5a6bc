//! What one rank sees: its neighbours per channel.

use crate::pattern::double_tree;
use crate::search::Pattern;

use super::nodes::{DomainClass, Plan};

/// The neighbours of a rank in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingView {
    /// The rank it receives from.
    pub prev: u32,
    /// The rank it sends to.
    pub next: u32,
}

/// The neighbours of a rank in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TreeView {
    /// The parent; `None` at the root.
    pub up: Option<u32>,
    /// The children: at most one of the same node and two of other nodes. Free places are `None`
    /// and come last, except that a rank without any child has none at all.
    pub down: [Option<u32>; 3],
}

/// The neighbours of a rank in one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelView {
    /// In the ring.
    pub ring: RingView,
    /// In the tree.
    pub tree: TreeView,
}

impl Plan {
    /// The neighbours of a rank in a channel; `None` for a rank or channel that does not exist.
    #[must_use]
    pub fn view(&self, rank: u32, channel: usize) -> Option<ChannelView> {
        Some(ChannelView {
            ring: self.ring(rank, channel)?,
            tree: self.tree(rank, channel)?,
        })
    }

    /// The neighbours of a rank in the ring of a channel.
    #[must_use]
    pub fn ring(&self, rank: u32, channel: usize) -> Option<RingView> {
        let (node, endpoint) = *self.place.get(rank as usize)?;
        let (searched, _) = *self.channels.get(channel)?;
        let class = self.class(node);
        let own = self.ring_channel(node, searched);
        let order = &class.ring.channels[own].endpoints;
        let at = class.ring_place[own][endpoint as usize] as usize;
        let count = self.nodes.len() as u32;
        let next = match order.get(at + 1) {
            Some(endpoint) => self.rank(node, *endpoint),
            None => self.ring_end((node + 1) % count, searched, true),
        };
        let prev = match at.checked_sub(1) {
            Some(before) => self.rank(node, order[before]),
            None => self.ring_end((node + count - 1) % count, searched, false),
        };
        Some(RingView { prev, next })
    }

    /// The neighbours of a rank in the tree of a channel.
    #[must_use]
    pub fn tree(&self, rank: u32, channel: usize) -> Option<TreeView> {
        let (node, endpoint) = *self.place.get(rank as usize)?;
        let (searched, which) = *self.channels.get(channel)?;
        let class = self.class(node);
        let order = &class.tree.channels[searched as usize].endpoints;
        let at = class.tree_place[searched as usize][endpoint as usize] as usize;
        let mut up = at
            .checked_sub(1)
            .map(|before| self.rank(node, order[before]));
        let local = order.get(at + 1).map(|endpoint| self.rank(node, *endpoint));
        if at > TreeEnds::LAST {
            return Some(TreeView {
                up,
                down: [local, None, None],
            });
        }
        let count = self.nodes.len() as u32;
        let between = double_tree(node, count)?.trees[usize::from(which)];
        let ends = TreeEnds::of(class);
        if at == TreeEnds::PARENT
            && let (Some(parent), Some(side)) = (between.parent, between.side)
        {
            let parents = self.class(parent);
            let index = TreeEnds::of(parents).children[usize::from(side)];
            let chain = &parents.tree.channels[searched as usize].endpoints;
            up = Some(self.rank(parent, chain[index]));
        }
        let remote = (0..2)
            .filter(|side| ends.children[*side] == at)
            .filter_map(|side| {
                let child = between.children[side]?;
                let chain = &self.class(child).tree.channels[searched as usize].endpoints;
                Some(self.rank(child, chain[TreeEnds::PARENT]))
            });
        let mut down = [None; 3];
        for (place, child) in down.iter_mut().zip(local.into_iter().chain(remote)) {
            *place = Some(child);
        }
        Some(TreeView { up, down })
    }

    /// The ring of a channel in travel order from rank 0.
    #[must_use]
    pub fn ring_order(&self, channel: usize) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.ranks());
        let mut at = 0;
        while let Some(view) = self.ring(at, channel) {
            order.push(at);
            at = view.next;
            if at == 0 || order.len() == self.ranks() {
                break;
            }
        }
        order
    }

    pub(super) fn class(&self, node: u32) -> &DomainClass {
        &self.classes[self.nodes[node as usize].class as usize]
    }

    pub(super) fn rank(&self, node: u32, endpoint: usize) -> u32 {
        let place = self.nodes[node as usize];
        self.table[(place.first + self.class(node).slots[endpoint]) as usize]
    }

    /// Where rings alternate in pairs, odd nodes swap the pair: what leaves on one rail arrives on
    /// the same rail.
    fn ring_channel(&self, node: u32, searched: u32) -> usize {
        let count = self.ring.channels.min(self.tree.channels);
        let swap = self.ring.cross_nic == 2 && node % 2 == 1 && count.is_multiple_of(2);
        (if swap { searched ^ 1 } else { searched }) as usize
    }

    /// First (or last) rank of a node in a ring channel.
    fn ring_end(&self, node: u32, searched: u32, first: bool) -> u32 {
        let channel = self.ring_channel(node, searched);
        let order = &self.class(node).ring.channels[channel].endpoints;
        let end = if first { order.first() } else { order.last() };
        self.rank(node, end.copied().unwrap_or(0))
    }
}

/// Which places of a chain talk to other nodes.
struct TreeEnds {
    children: [usize; 2],
}

impl TreeEnds {
    /// The first of the chain talks to the parent node.
    const PARENT: usize = 0;

    /// No place after this one talks to other nodes.
    const LAST: usize = 1;

    fn of(class: &DomainClass) -> Self {
        let second = usize::from(class.slots.len() > 1);
        Self {
            children: match class.tree.pattern {
                Pattern::BalancedTree => [second, 0],
                Pattern::SplitTree => [second, second],
                _ => [0, 0],
            },
        }
    }
}
