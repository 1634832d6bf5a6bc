//! The sheet of trees: hosts as boxes with their ranks in chain order, over each other.

use comm_core::{Error, ErrorKind};

use crate::plan::Plan;

use super::scene::{Anchor, COLORS, Rect, Scene, Shape};
use super::text;

/// More ranks than this make no readable picture.
const MOST_RANKS: usize = 2048;
/// More distinct trees than this are counted, not drawn.
const MOST_TREES: usize = 32;

const CELL: f32 = 26.0;
const BOX: f32 = 28.0;
const GAP_X: f32 = 16.0;
const GAP_Y: f32 = 34.0;
const LEFT: f32 = 16.0;
const TOP: f32 = 64.0;
/// Room above a tree for the names of its channels.
const HEAD: f32 = 22.0;
/// Pictures stand side by side up to this width.
const SHEET: f32 = 1600.0;

/// Draws the trees of a plan over all hosts; channels with equal trees share a picture.
///
/// `title` is printed on top. Returns an SVG document.
///
/// # Errors
///
/// `InvalidArgument` for plans of more than 2048 ranks, which no sheet shows readably.
pub fn trees(title: &str, plan: &Plan) -> Result<String, Error> {
    Ok(scene(title, plan)?.to_svg())
}

/// One host's part of a tree.
struct Host {
    /// Its ranks from the one that talks to the parent down the chain.
    chain: Vec<u32>,
    /// The rank of the parent host it hangs on.
    up: Option<u32>,
    children: Vec<usize>,
    depth: usize,
    rect: Rect,
}

pub(super) fn scene(title: &str, plan: &Plan) -> Result<Scene, Error> {
    if plan.ranks() > MOST_RANKS {
        let error = Error::new(
            ErrorKind::InvalidArgument,
            "too many ranks for a readable picture of trees; draw fewer hosts",
        );
        return Err(error.with("ranks", plan.ranks()).with("most", MOST_RANKS));
    }
    let mut scene = Scene::default();
    let mut kinds: Vec<(Vec<usize>, Vec<Option<u32>>)> = Vec::new();
    for channel in 0..plan.channels() {
        let parents: Vec<Option<u32>> = (0..plan.ranks() as u32)
            .map(|rank| plan.tree(rank, channel).and_then(|view| view.up))
            .collect();
        match kinds.iter_mut().find(|(_, known)| *known == parents) {
            Some((channels, _)) => channels.push(channel),
            None => kinds.push((vec![channel], parents)),
        }
    }
    // Pictures stand side by side as far as a screen is wide.
    let (mut x, mut y, mut right, mut bottom) = (LEFT, TOP, LEFT + 560.0, TOP);
    for (number, (channels, parents)) in kinds.iter().take(MOST_TREES).enumerate() {
        let color = number % COLORS.len();
        let mut hosts = hosts_of(plan, parents);
        let span = spans(&mut hosts);
        let width = span.first().copied().unwrap_or(0.0).max(160.0);
        if x > LEFT && x + width > LEFT + SHEET {
            (x, y) = (LEFT, bottom + 24.0);
        }
        place(&mut hosts, &span, x, y + HEAD);
        let names: Vec<String> = channels.iter().map(usize::to_string).collect();
        let name = format!("channel {}", names.join(", "));
        scene.line((x, y + 8.0), (x + 14.0, y + 8.0), 4.0, COLORS[color]);
        let name = text::fit(&name, 10.0, width - 20.0);
        scene.label(x + 20.0, y + 12.0, 10.0, Anchor::Start, name);
        draw(&mut scene, plan, &hosts, color);
        let lowest = hosts.iter().map(|host| host.rect.bottom());
        bottom = lowest.fold(bottom, f32::max);
        x += width + 40.0;
        right = right.max(x - 40.0);
    }
    y = bottom + 24.0;
    if kinds.len() > MOST_TREES {
        let rest = format!("and {} more trees", kinds.len() - MOST_TREES);
        scene.label(LEFT, y, 10.0, Anchor::Start, rest);
        y += 20.0;
    }
    let facts = format!(
        "trees over {} nodes with {} ranks, {} channels; boxes are nodes, numbers are ranks",
        plan.nodes(),
        plan.ranks(),
        plan.channels()
    );
    scene.shapes.push(Shape::Text {
        x: 16.0,
        y: 24.0,
        size: 16.0,
        bold: true,
        anchor: Anchor::Start,
        color: "#222222",
        text: text::fit(title, 18.0, right - 16.0),
        node: None,
    });
    let facts = text::fit(&facts, 11.0, right - 16.0);
    scene.label(16.0, 42.0, 11.0, Anchor::Start, facts);
    (scene.width, scene.height) = (right + 16.0, y);
    Ok(scene)
}

/// Groups ranks by node and finds each node's chain, parent and depth; parents come first.
fn hosts_of(plan: &Plan, parents: &[Option<u32>]) -> Vec<Host> {
    let node = |rank: u32| plan.node_of(rank).unwrap_or(0);
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); parents.len()];
    for (rank, parent) in (0..).zip(parents) {
        if let Some(parent) = parent {
            children[*parent as usize].push(rank);
        }
    }
    let root = (0..).zip(parents).find(|(_, parent)| parent.is_none());
    let mut hosts: Vec<Host> = Vec::new();
    let mut pending: Vec<(u32, Option<usize>)> =
        root.map(|(rank, _)| (rank, None)).into_iter().collect();
    while let Some((head, above)) = pending.pop() {
        let index = hosts.len();
        let mut chain = vec![head];
        let mut at = head;
        while let Some(next) = children[at as usize]
            .iter()
            .find(|rank| node(**rank) == node(at))
        {
            chain.push(*next);
            at = *next;
        }
        let outside = chain.iter().flat_map(|rank| &children[*rank as usize]);
        let outside = outside.filter(|child| node(**child) != node(head));
        // The stack turns the order round; the first child comes first on the sheet.
        let mut outside: Vec<(u32, Option<usize>)> =
            outside.map(|child| (*child, Some(index))).collect();
        outside.reverse();
        pending.extend(outside);
        if let Some(above) = above {
            hosts[above].children.push(index);
        }
        hosts.push(Host {
            chain,
            up: parents[head as usize],
            children: Vec::new(),
            depth: above.map_or(0, |above: usize| hosts[above].depth + 1),
            rect: Rect::default(),
        });
    }
    hosts
}

/// Width of the part of the sheet that each host and what hangs below it need.
fn spans(hosts: &mut [Host]) -> Vec<f32> {
    // Children have larger indices than their parents.
    let mut span = vec![0.0_f32; hosts.len()];
    for index in (0..hosts.len()).rev() {
        let host = &mut hosts[index];
        host.rect.w = host.chain.len() as f32 * CELL + 8.0;
        span[index] = host.rect.w.max(children_width(host, &span));
    }
    span
}

fn children_width(host: &Host, span: &[f32]) -> f32 {
    let below: f32 = host.children.iter().map(|child| span[*child]).sum();
    below + GAP_X * host.children.len().saturating_sub(1) as f32
}

/// Places boxes, parents over the middle of their children.
fn place(hosts: &mut [Host], span: &[f32], left: f32, top: f32) {
    let mut starts = vec![left; hosts.len()];
    for index in 0..hosts.len() {
        let host = &mut hosts[index];
        host.rect.h = BOX;
        host.rect.y = top + host.depth as f32 * (BOX + GAP_Y);
        host.rect.x = starts[index] + (span[index] - host.rect.w) / 2.0;
        let mut x = starts[index] + (span[index] - children_width(host, span)) / 2.0;
        for child in &host.children {
            starts[*child] = x;
            x += span[*child] + GAP_X;
        }
    }
}

fn cell(host: &Host, rank: u32) -> f32 {
    let at = host
        .chain
        .iter()
        .position(|other| *other == rank)
        .unwrap_or(0);
    host.rect.x + 4.0 + CELL * (at as f32 + 0.5)
}

fn draw(scene: &mut Scene, plan: &Plan, hosts: &[Host], color: usize) {
    let radius = 10.0;
    for host in hosts {
        let node = host.chain.first().and_then(|rank| plan.node_of(*rank));
        scene.shapes.push(Shape::Box {
            rect: host.rect,
            fill: "#f4f4f4",
            stroke: "#999999",
            node: None,
            title: format!("node {}", node.unwrap_or(0)),
        });
    }
    for host in hosts {
        for child in host.children.iter().map(|child| &hosts[*child]) {
            let (Some(up), Some(head)) = (child.up, child.chain.first()) else {
                continue;
            };
            let (x1, y1) = (cell(host, up), host.rect.y + BOX / 2.0 + radius);
            let (x2, y2) = (cell(child, *head), child.rect.y + BOX / 2.0 - radius);
            let bend = (y1 + y2) / 2.0;
            let path =
                format!("M{x1:.1} {y1:.1}C{x1:.1} {bend:.1} {x2:.1} {bend:.1} {x2:.1} {y2:.1}");
            scene.path(path, 1.6, COLORS[color]);
        }
        let y = host.rect.y + BOX / 2.0;
        for pair in host.chain.windows(2) {
            let (x1, x2) = (cell(host, pair[0]), cell(host, pair[1]));
            scene.line((x1, y), (x2, y), 1.6, COLORS[color]);
        }
        for rank in &host.chain {
            let x = cell(host, *rank);
            scene.shapes.push(Shape::Dot {
                x,
                y,
                radius,
                color: COLORS[color],
            });
            scene.shapes.push(Shape::Text {
                x,
                y: y + 3.0,
                size: if *rank < 1000 { 9.0 } else { 7.0 },
                bold: false,
                anchor: Anchor::Middle,
                color: "#ffffff",
                text: rank.to_string(),
                node: None,
            });
        }
    }
}
