//! Pictures: a machine with its rings, and trees over hosts, as SVG.
//!
//! # Contract
//!
//! * [`machine`] shows every node of the file's graph once: hosts, NUMA nodes, PCI switches, GPUs
//!   or process slots with their ranks, network cards with their ports, NVSwitches. Boxes lie
//!   inside each other as the hardware does; boxes of devices never overlap, and texts are
//!   shortened (with their full form as tooltip) where they do not fit.
//! * Links are as wide as their bandwidth tells, on a scale that the legend shows.
//! * Below the machine there is one lane per distinct ring: dots under the devices it visits,
//!   numbered in travel order, and squares under the ports it enters and leaves by.
//! * [`trees`] shows the trees over all hosts: one box per host, its ranks in chain order.
//! * Both are functions of their arguments and return a self-contained SVG document: no scripts,
//!   no references to anything outside. Time and size are linear in the graph.
//!
//! Elements that stand for a node carry `id="node-<number>"`, the node's number in its
//! [`System`](crate::model::System).

mod blocks;
mod machine;
mod rings;
mod scene;
#[cfg(test)]
mod tests;
mod text;
mod trees;
mod wires;

pub use machine::machine;
pub use trees::trees;
