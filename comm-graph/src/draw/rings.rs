//! Rings below the machine: one lane per distinct ring, aligned with the devices above.

use crate::model::{NodeId, NodeKind, System};
use crate::plan::Plan;

use super::blocks::{Block, SHARE, SMALL, What};
use super::scene::{Anchor, COLORS, Rect, Scene, Shape};
use super::text;
use super::wires;

/// More lanes than this are counted, not drawn.
const MOST_LANES: usize = 64;
const RADIUS: f32 = 8.5;

/// Channels that run alike.
struct Lane {
    channels: Vec<usize>,
    devices: Vec<NodeId>,
    /// Ports by which the ring enters and leaves the node.
    ports: Option<[NodeId; 2]>,
    port_names: Option<[String; 2]>,
    domain: usize,
    gbps: f32,
}

/// Draws the lanes from `top` on; returns where the sheet ends.
pub(super) fn lanes(
    scene: &mut Scene,
    system: &System,
    plan: &Plan,
    blocks: &[Block],
    top: f32,
) -> f32 {
    let positions = wires::positions(blocks);
    let mut device_x = vec![None; system.node_count()];
    let mut port_x = vec![None; system.node_count()];
    for (node, rect) in &positions {
        device_x[node.index()] = Some(rect.middle());
    }
    for block in blocks {
        if let What::Nic(_) = block.what {
            for port in block.lines.iter().filter_map(|(_, node)| *node) {
                port_x[port.index()] = Some(block.rect.middle());
            }
        }
    }
    let found = distinct(plan);
    let mut y = top;
    scene.label(16.0, y, 12.0, Anchor::Start, "rings".to_owned());
    for block in blocks {
        if let (What::Device(_), Some((name, _))) = (block.what, block.lines.first()) {
            let name = text::fit(name, SMALL, block.rect.w);
            scene.label(block.rect.middle(), y, SMALL, Anchor::Middle, name);
        }
    }
    y += 8.0;
    let start = y;
    for (number, lane) in found.iter().take(MOST_LANES).enumerate() {
        let stops = stops(&lane.devices, &device_x);
        let height = draw_lane(scene, lane, number, plan, &stops, &port_x, y);
        y += height;
    }
    // Behind the dots: guides from lane to lane.
    let guides = positions.iter().map(|(_, rect)| Shape::Path {
        path: format!("M{0:.1} {start:.1}L{0:.1} {y:.1}", rect.middle()),
        width: 0.6,
        color: "#cccccc",
        dashed: true,
        arrow: None,
    });
    scene.shapes.splice(0..0, guides);
    if found.len() > MOST_LANES {
        y += 18.0;
        let rest = format!("and {} more rings", found.len() - MOST_LANES);
        scene.label(16.0, y, SMALL, Anchor::Start, rest);
    }
    y + 20.0
}

/// Where the dots of a ring are: in the middle below each device, side by side for several ranks.
fn stops(devices: &[NodeId], device_x: &[Option<f32>]) -> Vec<f32> {
    let mut visits = vec![0_usize; device_x.len()];
    devices
        .iter()
        .for_each(|device| visits[device.index()] += 1);
    let total = visits.clone();
    let stops = devices.iter().filter_map(|device| {
        let index = device.index();
        let from_middle = visits[index] as f32 - 1.0 - (total[index] as f32 - 1.0) / 2.0;
        visits[index] -= 1;
        Some(device_x[index]? - from_middle * SHARE)
    });
    stops.collect()
}

/// Rings of the plan's domains, channels with equal ones together.
fn distinct(plan: &Plan) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = Vec::new();
    for (domain, class) in plan.domains().iter().enumerate() {
        let system = class.topology.system();
        let endpoints = system.of_kind(NodeKind::Endpoint);
        let nets = system.of_kind(NodeKind::Net);
        let name = |net: usize| match system.net(net) {
            Some(net) if !net.name.is_empty() => net.name.clone(),
            Some(net) => format!("net {}", net.dev),
            None => String::new(),
        };
        let first = lanes.len();
        for (channel, ring) in class.ring.channels.iter().enumerate() {
            let devices: Vec<NodeId> = ring
                .endpoints
                .iter()
                .filter_map(|endpoint| Some(system.device_of(*endpoints.get(*endpoint)?)?.0))
                .collect();
            let ports = ring
                .nets
                .and_then(|[enter, leave]| Some([*nets.get(enter)?, *nets.get(leave)?]));
            let same = |lane: &&mut Lane| lane.devices == devices && lane.ports == ports;
            match lanes[first..].iter_mut().find(same) {
                Some(lane) => lane.channels.push(channel),
                None => lanes.push(Lane {
                    channels: vec![channel],
                    devices,
                    ports,
                    port_names: ring.nets.map(|nets| nets.map(name)),
                    domain,
                    gbps: class.ring.bw_intra,
                }),
            }
        }
    }
    lanes
}

fn draw_lane(
    scene: &mut Scene,
    lane: &Lane,
    number: usize,
    plan: &Plan,
    stops: &[f32],
    port_x: &[Option<f32>],
    top: f32,
) -> f32 {
    let color_index = number % COLORS.len();
    let color = COLORS[color_index];
    let ports = lane
        .ports
        .map(|ports| ports.map(|port| port_x.get(port.index()).copied().flatten().unwrap_or(0.0)));
    let mut hops: Vec<(f32, f32)> = stops.windows(2).map(|pair| (pair[0], pair[1])).collect();
    if let (Some(first), Some(last)) = (stops.first(), stops.last()) {
        match ports {
            Some([enter, leave]) => hops.extend([(enter, *first), (*last, leave)]),
            None if stops.len() > 1 => hops.push((*last, *first)),
            None => {}
        }
    }
    // Hops to the right pass above, hops to the left below; long ones farther out.
    let rise = |hop: &(f32, f32)| 8.0 + 2.5 * ((hop.0 - hop.1).abs() / 110.0).min(10.0);
    let tallest = |right: bool| {
        let heights = hops.iter().filter(|hop| (hop.0 < hop.1) == right).map(rise);
        heights.fold(4.0, f32::max)
    };
    let (above, below) = (tallest(true), tallest(false));
    let middle = top + above + RADIUS + 4.0;
    let height = above + below + 2.0 * RADIUS + 8.0;
    for hop in &hops {
        let sign = if hop.0 < hop.1 { -1.0 } else { 1.0 };
        let bend = middle + sign * (RADIUS + rise(hop) * 4.0 / 3.0);
        arc(
            scene,
            hop.0,
            hop.1,
            middle + sign * RADIUS,
            bend,
            color_index,
        );
    }
    if let Some([enter, leave]) = ports {
        let same = enter == leave;
        let squares = if same {
            vec![(enter, "in+out")]
        } else {
            vec![(enter, "in"), (leave, "out")]
        };
        for (x, label) in squares {
            let w = if same { 44.0 } else { 28.0 };
            let rect = Rect {
                x: x - w / 2.0,
                y: middle - RADIUS,
                w,
                h: 2.0 * RADIUS,
            };
            scene.rect(rect, "#ffffff", color);
            scene.label(x, middle + 3.5, SMALL, Anchor::Middle, label.to_owned());
        }
    }
    for (step, x) in stops.iter().enumerate() {
        scene.shapes.push(Shape::Dot {
            x: *x,
            y: middle,
            radius: RADIUS,
            color,
        });
        scene.shapes.push(Shape::Text {
            x: *x,
            y: middle + 3.2,
            size: 9.0,
            bold: false,
            anchor: Anchor::Middle,
            color: "#ffffff",
            text: step.to_string(),
            node: None,
        });
    }
    let channels: Vec<String> = lane.channels.iter().map(usize::to_string).collect();
    let mut name = format!("channel {}", channels.join(", "));
    if plan.domains().len() > 1 {
        name = format!("domain {}: {name}", lane.domain);
    }
    let room = super::machine::MARGIN - 44.0;
    let speed = format!(" · {} GB/s", text::gbps(lane.gbps));
    let name = text::fit(&name, SMALL, room - text::width(&speed, SMALL));
    let ports = match &lane.port_names {
        Some([enter, leave]) if enter == leave => enter.clone(),
        Some([enter, leave]) => format!("{enter} → {leave}"),
        None => "inside the host".to_owned(),
    };
    let ports = text::fit(&ports, SMALL, room);
    scene.line((16.0, middle), (30.0, middle), 4.0, color);
    for (line, y) in [(name + &speed, middle - 2.0), (ports, middle + 11.0)] {
        scene.label(36.0, y, SMALL, Anchor::Start, line);
    }
    height
}

fn arc(scene: &mut Scene, from: f32, to: f32, y: f32, bend: f32, color: usize) {
    // Ends beside the middle of the dot keep in and out apart.
    let shift = if from < to { 3.5 } else { -3.5 };
    let (x1, x2) = (from + shift, to - shift);
    let path = format!("M{x1:.1} {y:.1}C{x1:.1} {bend:.1} {x2:.1} {bend:.1} {x2:.1} {y:.1}");
    scene.shapes.push(Shape::Path {
        path,
        width: 1.6,
        color: COLORS[color],
        dashed: false,
        arrow: Some(color),
    });
}
