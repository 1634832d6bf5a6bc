//! The sheet of a machine: boxes, links, legend, rings.

use crate::model::{LinkKind, NodeKind, System};
use crate::plan::Plan;

use super::blocks::{BAR, Block, LINE, SMALL, What, layout};
use super::rings;
use super::scene::{Anchor, Rect, Scene, Shape};
use super::text;
use super::wires;

/// Room on the left for the legend and the names of rings.
pub(super) const MARGIN: f32 = 190.0;
const TOP: f32 = 56.0;

/// Draws a machine and the rings that a plan has on it.
///
/// `title` is printed on top, usually the file's name. `system` is what was built from the file
/// and `plan` a plan over hosts of that kind: rings of all its domains are drawn. Returns an SVG
/// document.
///
/// ```
/// use comm_graph::{Options, draw, model, plan::Plan, xml};
///
/// let file = br#"<system version="1">
///   <cpu numaid="0"><endpoint dev="0"/><endpoint dev="1"/></cpu>
/// </system>"#;
/// let system = model::build(&xml::parse("two-slots.xml", file)?)?;
/// let plan = Plan::uniform(system.clone(), 1, &Options::default())?;
/// assert!(draw::machine("two slots", &system, &plan).starts_with("<?xml"));
/// # Ok::<(), comm_core::Error>(())
/// ```
#[must_use]
pub fn machine(title: &str, system: &System, plan: &Plan) -> String {
    scene(title, system, plan).to_svg()
}

pub(super) fn scene(title: &str, system: &System, plan: &Plan) -> Scene {
    let mut scene = Scene::default();
    let mut blocks = layout(system, MARGIN, TOP);
    let hosts = || 0..blocks.len();
    let floor = blocks.iter().map(|block| block.rect.bottom());
    let floor = floor.fold(TOP + BAR, f32::max);
    let right = blocks.iter().map(|block| block.rect.right());
    let right = right.fold(MARGIN + 300.0, f32::max);
    let below = wires::room_below(system, &blocks);
    // Links between devices of the only host belong inside its box.
    let single = system.hosts() == 1;
    for index in hosts() {
        if blocks[index].what == What::Host && single && below > 0.0 {
            blocks[index].rect.h += below + 8.0;
        }
    }
    for block in &blocks {
        draw_box(&mut scene, block);
    }
    wires::tree(&mut scene, system, &blocks);
    let inner = if single { floor - 8.0 } else { floor };
    if let Some((node, rect)) = wires::device_links(&mut scene, system, &blocks, inner) {
        scene.shapes.push(Shape::Box {
            rect,
            fill: "#e4efd3",
            stroke: wires::NVLINK,
            node: Some(node.index()),
            title: "NVSwitch".to_owned(),
        });
        let y = rect.y + 16.0;
        scene.label(
            rect.middle(),
            y,
            11.0,
            Anchor::Middle,
            "NVSwitch".to_owned(),
        );
    }
    for block in &blocks {
        write_lines(&mut scene, block);
    }
    let y = floor + if below > 0.0 { below + 8.0 } else { 0.0 };
    heading(&mut scene, title, system, plan, right);
    let legend = legend(&mut scene, system);
    scene.width = right + 16.0;
    scene.height = rings::lanes(&mut scene, system, plan, &blocks, y.max(legend) + 24.0);
    scene
}

fn heading(scene: &mut Scene, title: &str, system: &System, plan: &Plan, right: f32) {
    let count = |kind| system.of_kind(kind).len();
    let number = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let gpus = system.compute_capabilities().is_some();
    let facts = format!(
        "{}, {}, {}; plan over {} with {} and {}",
        number(count(NodeKind::Device), if gpus { "GPU" } else { "slot" }),
        number(count(NodeKind::Net), "network port"),
        number(count(NodeKind::Cpu), "NUMA node"),
        number(plan.nodes(), "node"),
        number(plan.ranks(), "rank"),
        number(plan.channels(), "channel"),
    );
    scene.shapes.push(Shape::Text {
        x: 16.0,
        y: 24.0,
        size: 16.0,
        bold: true,
        anchor: Anchor::Start,
        color: "#222222",
        // Bold letters are wider.
        text: text::fit(title, 18.0, right - 16.0),
        node: None,
    });
    let facts = text::fit(&facts, 11.0, right - 16.0);
    scene.label(16.0, 42.0, 11.0, Anchor::Start, facts);
}

/// Explains colours and widths; returns where it ends.
fn legend(scene: &mut Scene, system: &System) -> f32 {
    let mut y = TOP + 12.0;
    let title = "links, GB/s".to_owned();
    scene.label(16.0, y, SMALL, Anchor::Start, title);
    let links = || (0..system.node_count()).map(|index| crate::model::NodeId(index as u32));
    for (kind, name, color) in [
        (LinkKind::Pci, "PCI", wires::PCI),
        (LinkKind::NvLink, "NVLink", wires::NVLINK),
        (LinkKind::C2c, "C2C", wires::C2C),
        (LinkKind::System, "between CPUs", wires::SYSTEM),
        (LinkKind::Local, "host memory", wires::PCI),
    ] {
        let mut speeds: Vec<f32> = links()
            .flat_map(|node| system.links_of(node))
            .filter(|(_, link)| {
                let ends = [link.from, link.to].map(|end| system.node(end).kind());
                let drawn = kind != LinkKind::Local || ends.contains(&NodeKind::Cpu);
                // Virtual cards hang on their CPU without a wire of their own.
                link.kind == kind && drawn && link.gbps < crate::model::LOCAL_GBPS
            })
            .map(|(_, link)| link.gbps)
            .collect();
        speeds.sort_by(|a, b| b.total_cmp(a));
        speeds.dedup();
        for gbps in speeds.into_iter().take(4) {
            y += 18.0;
            scene.line((20.0, y - 3.0), (48.0, y - 3.0), wires::width(gbps), color);
            let label = format!("{name} {}", text::gbps(gbps));
            scene.label(62.0, y, SMALL, Anchor::Start, label);
        }
    }
    y
}

fn draw_box(scene: &mut Scene, block: &Block) {
    let (fill, stroke) = match block.what {
        What::Host => ("#fafafa", "#777777"),
        What::Container(_) if block.up_gbps.is_none() => ("#fdf6e9", wires::SYSTEM),
        What::Container(_) => ("#eef2f6", wires::PCI),
        What::Device(_) => ("#dcebc4", "#4f7a1d"),
        What::Nic(_) => ("#d6e6f7", "#2f6ea8"),
    };
    let lines: Vec<&str> = block.lines.iter().map(|(line, _)| line.as_str()).collect();
    let mut title = lines.join(", ");
    if let Some(gbps) = block.up_gbps {
        title.push_str(&format!(", {} GB/s upwards", text::gbps(gbps)));
    }
    scene.shapes.push(Shape::Box {
        rect: block.rect,
        fill,
        stroke,
        node: match block.what {
            What::Host => None,
            What::Container(node) | What::Device(node) | What::Nic(node) => Some(node.index()),
        },
        title,
    });
    if block.is_container() {
        let bar = Rect {
            h: BAR,
            ..block.rect
        };
        let fill = match block.what {
            What::Host => "#e6e6e6",
            _ if block.up_gbps.is_none() => "#f5e3c3",
            _ => "#d5dde6",
        };
        scene.rect(bar, fill, stroke);
    }
}

fn write_lines(scene: &mut Scene, block: &Block) {
    let room = block.rect.w - 6.0;
    for (number, (line, node)) in block.lines.iter().enumerate() {
        let head = number == 0;
        // Bold letters are wider.
        let text = text::fit(line, if head { SMALL * 1.12 } else { SMALL }, room);
        scene.shapes.push(Shape::Text {
            x: block.rect.middle(),
            y: block.rect.y + 14.0 + LINE * number as f32,
            size: SMALL,
            bold: head,
            anchor: Anchor::Middle,
            color: "#222222",
            text,
            node: node.map(crate::model::NodeId::index),
        });
    }
}
