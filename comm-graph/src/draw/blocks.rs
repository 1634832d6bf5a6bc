//! The machine as boxes inside boxes: which box holds which, and how large they are.
//!
//! Boxes are stored parents first, so sizes are one pass backwards and places one pass forwards;
//! nothing recurses, however deep a file nests its switches.

use crate::model::{DeviceKind, NodeId, NodeKind, NodeRole, System};

use super::scene::Rect;
use super::text;

/// Height of the bar with a container's name; what is inside hangs on it.
pub(super) const BAR: f32 = 20.0;
/// Room for the wires between a container's bar and what hangs on it.
const WIRES: f32 = 18.0;
const PADDING: f32 = 8.0;
const GAP: f32 = 10.0;
/// Room left of stacked cards for the wire they share.
const TRUNK: f32 = 12.0;
/// Network cards stand on top of each other, so that many fit.
const STACK: usize = 2;
/// Height of a line of text in a box.
pub(super) const LINE: f32 = 13.0;
/// Width of a device that each of several ranks on it takes.
pub(super) const SHARE: f32 = 20.0;
/// Size of texts in boxes.
pub(super) const SMALL: f32 = 10.0;

/// What a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Host,
    Container(NodeId),
    Device(NodeId),
    Nic(NodeId),
}

/// One box.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) what: What,
    /// Texts from top to bottom, each with the node it stands for if that has no box of its own.
    pub(super) lines: Vec<(String, Option<NodeId>)>,
    /// Boxes inside, in columns from left to right.
    pub(super) columns: Vec<Vec<usize>>,
    /// Whether the last column holds network cards.
    stacks: bool,
    /// GB/s of the link to the box around it.
    pub(super) up_gbps: Option<f32>,
    pub(super) rect: Rect,
}

/// All boxes of a system, parents before children.
pub(super) fn layout(system: &System, left: f32, top: f32) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut hosts = Vec::new();
    for host in 0..system.hosts() {
        let cpus: Vec<NodeId> = system
            .of_kind(NodeKind::Cpu)
            .iter()
            .copied()
            .filter(|cpu| system.node(*cpu).host == host)
            .collect();
        hosts.push(blocks.len());
        let title = if system.hosts() == 1 {
            "host".to_owned()
        } else {
            format!("host {host}")
        };
        blocks.push(Block::new(What::Host, vec![(title, None)], None));
        let mut pending: Vec<(usize, NodeId)> = cpus
            .into_iter()
            .rev()
            .map(|cpu| (blocks.len() - 1, cpu))
            .collect();
        while let Some((parent, node)) = pending.pop() {
            let index = blocks.len();
            let block = describe(system, node);
            blocks[parent].hold(index, matches!(block.what, What::Nic(_)));
            blocks.push(block);
            let below = system.below(node);
            pending.extend(below.into_iter().rev().map(|child| (index, child)));
        }
    }
    for index in (0..blocks.len()).rev() {
        let (w, h) = size(&blocks, index);
        blocks[index].rect = Rect {
            w,
            h,
            ..Rect::default()
        };
    }
    let mut x = left;
    for host in hosts {
        blocks[host].rect.x = x;
        blocks[host].rect.y = top;
        x = blocks[host].rect.right() + 2.0 * GAP;
    }
    for index in 0..blocks.len() {
        place_inside(&mut blocks, index);
    }
    blocks
}

impl Block {
    fn new(what: What, lines: Vec<(String, Option<NodeId>)>, up_gbps: Option<f32>) -> Self {
        Self {
            what,
            lines,
            columns: Vec::new(),
            stacks: false,
            up_gbps,
            rect: Rect::default(),
        }
    }

    /// Whether boxes can be inside.
    pub(super) fn is_container(&self) -> bool {
        matches!(self.what, What::Host | What::Container(_))
    }

    /// Takes a box in: as a column of its own, or on top of the last one if both are cards.
    fn hold(&mut self, index: usize, card: bool) {
        let stacks = card && self.stacks;
        let last = self.columns.last_mut();
        let stacked = last.filter(|column| stacks && column.len() < STACK);
        match stacked {
            Some(column) => column.push(index),
            None => self.columns.push(vec![index]),
        }
        self.stacks = card;
    }
}

/// The box of a node, without what is inside.
fn describe(system: &System, node: NodeId) -> Block {
    let up = system.up_link(node).map(|link| link.gbps);
    match &system.node(node).role {
        NodeRole::Device(device) => {
            let mut lines = vec![match device.kind {
                DeviceKind::Gpu { .. } => (format!("GPU {}", device.dev), None),
                DeviceKind::HostSlot => (format!("slot {}", device.dev), None),
            }];
            for id in system.endpoints_of(node) {
                if let NodeRole::Endpoint(endpoint) = &system.node(id).role {
                    lines.push((format!("rank {}", endpoint.rank), Some(id)));
                }
            }
            if let Some(sm) = device.compute_capability() {
                lines.push((format!("sm {sm}"), None));
            }
            lines.extend(device.bus_id.map(|id| (id.to_string(), None)));
            Block::new(What::Device(node), lines, up)
        }
        NodeRole::Nic(nic) => {
            let ports = system.ports_of(node);
            let mut lines = Vec::new();
            for port in &ports {
                if let NodeRole::Net(net) = &system.node(*port).role {
                    let name = match net.name.as_str() {
                        "" => format!("net {}", net.dev),
                        name => name.to_owned(),
                    };
                    lines.push((name, Some(*port)));
                    lines.push((format!("{} Gb/s", text::gbps(net.gbps * 8.0)), None));
                }
            }
            if ports.is_empty() {
                lines.push(("network card".to_owned(), None));
                lines.extend(nic.bus_id.map(|id| (id.to_string(), None)));
            }
            Block::new(What::Nic(node), lines, up)
        }
        NodeRole::Cpu(cpu) => {
            let vendor = match cpu.vendor {
                crate::model::CpuVendor::Intel { .. } => " · Intel",
                crate::model::CpuVendor::Amd => " · AMD",
                crate::model::CpuVendor::Zhaoxin { .. } => " · Zhaoxin",
                crate::model::CpuVendor::Other => "",
            };
            let numa = match cpu.numa {
                -1 => "CPU".to_owned(),
                numa => format!("NUMA {numa}"),
            };
            let title = vec![(format!("{numa}{vendor}"), None)];
            Block::new(What::Container(node), title, None)
        }
        NodeRole::Pci(pci) => {
            let title = vec![(format!("PCI {}", pci.bus_id), None)];
            Block::new(What::Container(node), title, up)
        }
        // Neither is inside a tree of boxes.
        NodeRole::Endpoint(_) | NodeRole::Net(_) | NodeRole::NvSwitch => {
            Block::new(What::Container(node), Vec::new(), up)
        }
    }
}

/// Width and height of a box whose insides are known.
fn size(blocks: &[Block], index: usize) -> (f32, f32) {
    let block = &blocks[index];
    let lines = block.lines.len() as f32 * LINE + 8.0;
    match block.what {
        What::Device(_) if block.lines.len() <= 2 => (64.0, lines),
        What::Device(_) => {
            let ranks = block.lines.iter().filter(|(_, node)| node.is_some());
            (96.0_f32.max(ranks.count() as f32 * SHARE), lines)
        }
        What::Nic(_) => (96.0, lines),
        What::Host | What::Container(_) => {
            let title = block
                .lines
                .first()
                .map_or(0.0, |(title, _)| text::width(title, SMALL) + 2.0 * PADDING);
            let columns = &block.columns;
            let inside: f32 = columns
                .iter()
                .map(|column| column_width(blocks, column))
                .sum();
            let gaps = GAP * columns.len().saturating_sub(1) as f32;
            let tallest = columns.iter().map(|column| column_height(blocks, column));
            let tallest = tallest.fold(0.0, f32::max);
            let w = (inside + gaps + 2.0 * PADDING).max(title);
            if columns.is_empty() {
                return (w, BAR);
            }
            // Nothing hangs on the bar of a host with one NUMA node.
            let alone = block.what == What::Host && columns.len() == 1;
            let wires = if alone { PADDING } else { WIRES };
            (w, BAR + wires + tallest + PADDING)
        }
    }
}

fn column_width(blocks: &[Block], column: &[usize]) -> f32 {
    let widest = column.iter().map(|index| blocks[*index].rect.w);
    widest.fold(0.0, f32::max) + if column.len() > 1 { TRUNK } else { 0.0 }
}

fn column_height(blocks: &[Block], column: &[usize]) -> f32 {
    let boxes: f32 = column.iter().map(|index| blocks[*index].rect.h).sum();
    boxes + GAP * column.len().saturating_sub(1) as f32
}

/// Puts the boxes inside a placed box: columns side by side in the middle, standing on its bottom,
/// so that what links devices from below meets no other box.
fn place_inside(blocks: &mut [Block], index: usize) {
    let outer = blocks[index].rect;
    let columns = std::mem::take(&mut blocks[index].columns);
    let widths = columns.iter().map(|column| column_width(blocks, column));
    let inside = widths.sum::<f32>() + GAP * columns.len().saturating_sub(1) as f32;
    let mut x = outer.x + (outer.w - inside) / 2.0;
    for column in &columns {
        let width = column_width(blocks, column);
        let mut y = outer.bottom() - PADDING - column_height(blocks, column);
        for child in column {
            let rect = &mut blocks[*child].rect;
            rect.x = x + width - rect.w;
            rect.y = y;
            y += rect.h + GAP;
        }
        x += width + GAP;
    }
    blocks[index].columns = columns;
}
