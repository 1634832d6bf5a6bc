//! Double binary trees: two trees over the same nodes such that the inner nodes of one are leaves
//! of the other, so that both together load every node evenly.
//!
//! The first tree is the in-order binary tree by lowest set bit; the second is its mirror image
//! (even sizes) or the same tree shifted by one (odd sizes). Source: P. Sanders, J. Speck,
//! J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009), in
//! the numbering NCCL uses.

/// The neighbours of one node in one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TreeNode {
    /// The parent; `None` for the root.
    pub parent: Option<u32>,
    /// First (left) and second (right) child.
    pub children: [Option<u32>; 2],
    /// Which child of its parent the node is: 0 or 1; `None` for the root.
    pub side: Option<u8>,
}

/// The neighbours of one node in both trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DoubleTree {
    /// First and second tree.
    pub trees: [TreeNode; 2],
}

/// The place of `node` in the double binary tree over `count` nodes.
///
/// `None` when `node` is not below `count`.
#[must_use]
pub fn double_tree(node: u32, count: u32) -> Option<DoubleTree> {
    if node >= count {
        return None;
    }
    let second = if count.is_multiple_of(2) {
        let mirror = |n: u32| count - 1 - n;
        binary_tree(mirror(node), count).map(mirror)
    } else {
        let back = |n: u32| if n == count - 1 { 0 } else { n + 1 };
        binary_tree(node.checked_sub(1).unwrap_or(count - 1), count).map(back)
    };
    Some(DoubleTree {
        trees: [binary_tree(node, count), second],
    })
}

impl TreeNode {
    fn map(self, rename: impl Fn(u32) -> u32) -> Self {
        Self {
            parent: self.parent.map(&rename),
            children: self.children.map(|child| child.map(&rename)),
            side: self.side,
        }
    }
}

/// The in-order tree: a node's height is the position of its lowest set bit.
fn binary_tree(node: u32, count: u32) -> TreeNode {
    if node == 0 {
        let top = count
            .checked_sub(1)
            .filter(|last| *last > 0)
            .map(|last| 1 << last.ilog2());
        return TreeNode {
            parent: None,
            children: [None, top],
            side: None,
        };
    }
    let bit = node & node.wrapping_neg();
    let above = u64::from(node ^ bit) | u64::from(bit) << 1;
    let parent = match u32::try_from(above) {
        Ok(above) if above < count => above,
        _ => node ^ bit,
    };
    let left = (bit > 1).then(|| node - (bit >> 1));
    let mut step = bit >> 1;
    while step > 0 && node.checked_add(step).is_none_or(|child| child >= count) {
        step >>= 1;
    }
    let right = (step > 0).then(|| node + step);
    let side = u8::from(node > parent);
    TreeNode {
        parent: Some(parent),
        children: [left, right],
        side: Some(side),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_and_children_agree_and_there_is_one_root() {
        for count in 1..200 {
            for tree in 0..2 {
                let at = |node| double_tree(node, count).unwrap().trees[tree];
                let roots = (0..count).filter(|node| at(*node).parent.is_none()).count();
                assert_eq!(roots, 1, "{count}");
                for node in 0..count {
                    let here = at(node);
                    if let (Some(parent), Some(side)) = (here.parent, here.side) {
                        assert_eq!(at(parent).children[usize::from(side)], Some(node));
                    }
                    for child in here.children.into_iter().flatten() {
                        assert_eq!(at(child).parent, Some(node), "{count}");
                    }
                }
            }
        }
    }

    #[test]
    fn inner_nodes_of_one_tree_are_leaves_of_the_other() {
        for count in 2..200 {
            for node in 0..count {
                let trees = double_tree(node, count).unwrap().trees;
                let inner = trees.map(|tree| tree.children.iter().flatten().count() == 2);
                assert_ne!(inner, [true, true], "{node} of {count}");
            }
        }
    }

    #[test]
    fn depth_is_logarithmic() {
        for count in [100_000, 4095, 4096, 4097] {
            for tree in 0..2 {
                for node in (0..count).step_by(997) {
                    let mut at = node;
                    let mut depth = 0;
                    while let Some(parent) = double_tree(at, count).unwrap().trees[tree].parent {
                        (at, depth) = (parent, depth + 1);
                    }
                    assert!(depth <= count.ilog2() + 1, "{depth} for {node} of {count}");
                }
            }
        }
    }

    #[test]
    fn nodes_outside_have_no_place() {
        assert_eq!(double_tree(3, 3), None);
        assert!(double_tree(u32::MAX - 1, u32::MAX).is_some());
    }
}
