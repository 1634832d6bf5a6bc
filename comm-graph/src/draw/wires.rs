//! Links between boxes, as wide as their bandwidth.

use crate::model::{LOCAL_GBPS, LinkKind, NodeId, NodeKind, System};

use super::blocks::{BAR, Block, What};
use super::scene::{Anchor, Rect, Scene};
use super::text;

pub(super) const PCI: &str = "#8a97a6";
pub(super) const NVLINK: &str = "#76a832";
pub(super) const SYSTEM: &str = "#c08a3e";
pub(super) const C2C: &str = "#a05ab0";

/// Size of the bandwidths beside wires.
const TINY: f32 = 8.5;

/// Pixels for a bandwidth; the root keeps 1 GB/s and 1 TB/s on one sheet.
///
/// A virtual card hangs on its CPU by a line that stands for no wire.
pub(super) fn width(gbps: f32) -> f32 {
    if gbps >= LOCAL_GBPS {
        return 0.8;
    }
    (0.75 * gbps.max(0.0).sqrt()).clamp(0.8, 16.0)
}

/// Wires from each box to the bar of the box around it.
pub(super) fn tree(scene: &mut Scene, system: &System, blocks: &[Block]) {
    for outer in blocks.iter().filter(|block| block.is_container()) {
        let bar = outer.rect.y + BAR;
        let host = outer.what == What::Host;
        // One NUMA node has nobody to talk to.
        if host && outer.columns.len() < 2 {
            continue;
        }
        for column in &outer.columns {
            let wires: Vec<(Rect, f32)> = column
                .iter()
                .filter_map(|index| {
                    let block = &blocks[*index];
                    let gbps = match block.what {
                        What::Container(cpu) if host => between_cpus(system, cpu),
                        _ => block.up_gbps,
                    };
                    Some((block.rect, gbps?))
                })
                .collect();
            let color = if host { SYSTEM } else { PCI };
            let Some((first, gbps)) = wires.first().copied() else {
                continue;
            };
            let x = if column.len() == 1 {
                scene.line(
                    (first.middle(), bar),
                    (first.middle(), first.y),
                    width(gbps),
                    color,
                );
                first.middle()
            } else {
                let trunk = first.x - 6.0;
                for (rect, gbps) in &wires {
                    let y = rect.y + rect.h / 2.0;
                    scene.line((trunk, bar), (trunk, y), width(*gbps).min(5.0), color);
                    scene.line((trunk, y), (rect.x, y), width(*gbps).min(5.0), color);
                }
                trunk
            };
            if gbps >= LOCAL_GBPS {
                continue;
            }
            let label = text::gbps(gbps);
            let x = x + width(gbps) / 2.0 + 2.0;
            scene.label(x, bar + 12.0, TINY, Anchor::Start, label);
        }
    }
}

/// GB/s from a CPU to the others of its host.
fn between_cpus(system: &System, cpu: NodeId) -> Option<f32> {
    let mut links = system.links_of(cpu);
    links
        .find(|(_, link)| link.kind == LinkKind::System)
        .map(|(_, link)| link.gbps)
}

/// How much room below the boxes links between devices need.
pub(super) fn room_below(system: &System, blocks: &[Block]) -> f32 {
    let positions = positions(blocks);
    let switch = if system.of_kind(NodeKind::NvSwitch).is_empty() {
        0.0
    } else {
        36.0 + SWITCH
    };
    let pairs = pairs(system, &positions);
    let spans = pairs.iter().map(|(a, b, _)| arc_depth(b - a));
    let deepest = spans.fold(0.0, f32::max);
    switch + if deepest > 0.0 { deepest + 8.0 } else { 0.0 }
}

/// Height of the bar of the NVSwitches.
const SWITCH: f32 = 24.0;

fn arc_depth(positions_apart: usize) -> f32 {
    10.0 + 9.0 * (positions_apart.min(16) as f32)
}

/// Devices from left to right.
pub(super) fn positions(blocks: &[Block]) -> Vec<(NodeId, Rect)> {
    let devices = blocks.iter().filter_map(|block| match block.what {
        What::Device(node) => Some((node, block.rect)),
        _ => None,
    });
    let mut devices: Vec<(NodeId, Rect)> = devices.collect();
    devices.sort_by(|a, b| a.1.x.total_cmp(&b.1.x));
    devices
}

/// Pairs of devices with NVLinks between them, as positions from left to right.
fn pairs(system: &System, positions: &[(NodeId, Rect)]) -> Vec<(usize, usize, f32)> {
    let mut place = vec![None; system.node_count()];
    for (position, (node, _)) in positions.iter().enumerate() {
        place[node.index()] = Some(position);
    }
    let mut found = Vec::new();
    for (a, (node, _)) in positions.iter().enumerate() {
        for (_, link) in system.links_of(*node) {
            if let Some(b) = place[link.to.index()]
                && link.kind == LinkKind::NvLink
                && a < b
            {
                found.push((a, b, link.gbps));
            }
        }
    }
    found
}

/// NVLinks: arcs between devices, lines to the bar of the switches; and links to CPUs.
///
/// `floor` is where the boxes end; returns the bar's rectangle.
pub(super) fn device_links(
    scene: &mut Scene,
    system: &System,
    blocks: &[Block],
    floor: f32,
) -> Option<(NodeId, Rect)> {
    let positions = positions(blocks);
    for (a, b, gbps) in &pairs(system, &positions) {
        let (from, to) = (positions[*a].1, positions[*b].1);
        // Links of one device leave it side by side.
        let shift = |near: usize, far: usize| {
            let apart = far as f32 - near as f32;
            (apart * 5.0).clamp(-40.0, 40.0)
        };
        let (x1, x2) = (from.middle() + shift(*a, *b), to.middle() + shift(*b, *a));
        let (y1, y2) = (from.bottom(), to.bottom());
        // A curve reaches three quarters of the way to its control points.
        let deep = (floor + arc_depth(b - a) - 0.25 * y1.max(y2)) / 0.75;
        let path = format!("M{x1:.1} {y1:.1}C{x1:.1} {deep:.1} {x2:.1} {deep:.1} {x2:.1} {y2:.1}");
        scene.path(path, width(*gbps), NVLINK);
    }
    for (node, rect) in &positions {
        for (_, link) in system.links_of(*node) {
            let color = match link.kind {
                LinkKind::NvLink => NVLINK,
                LinkKind::C2c => C2C,
                _ => continue,
            };
            if system.node(link.to).kind() != NodeKind::Cpu {
                continue;
            }
            let mut boxes = blocks.iter();
            if let Some(cpu) = boxes.find(|block| block.what == What::Container(link.to)) {
                let x = rect.middle() + 24.0;
                let bar = cpu.rect.y + BAR;
                scene.line((x, bar), (x, rect.y), width(link.gbps), color);
            }
        }
    }
    let switch = *system.of_kind(NodeKind::NvSwitch).first()?;
    let depth = room_below(system, blocks);
    let linked = || {
        positions.iter().filter_map(|(node, rect)| {
            let mut links = system.links_of(*node);
            let link = links.find(|(_, link)| link.to == switch)?.1;
            Some((*rect, link.gbps))
        })
    };
    let left = linked().map(|(rect, _)| rect.x).fold(f32::MAX, f32::min);
    let right = linked().map(|(rect, _)| rect.right()).fold(0.0, f32::max);
    let bar = Rect {
        x: left,
        y: floor + depth - SWITCH,
        w: right - left,
        h: SWITCH,
    };
    for (rect, gbps) in linked() {
        let x = rect.middle();
        scene.line((x, rect.bottom()), (x, bar.y), width(gbps), NVLINK);
        let label = text::gbps(gbps);
        let x = x + width(gbps) / 2.0 + 3.0;
        scene.label(x, bar.y - 6.0, TINY, Anchor::Start, label);
    }
    Some((switch, bar))
}
