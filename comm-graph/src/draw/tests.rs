//! What holds for every picture, checked on the shapes and on the SVG.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::blocks::{What, layout};
use super::scene::{Rect, Scene, Shape, text_rect};
use crate::Options;
use crate::model::{NodeKind, System, build};
use crate::plan::Plan;
use crate::xml::parse;

/// Eight GPUs on switches with two cards each, behind NVSwitches.
fn dense() -> String {
    let mut text = String::from("<system version=\"1\">");
    for numa in 0..2 {
        let _ = write!(
            text,
            "<cpu numaid=\"{numa}\" arch=\"x86_64\" vendor=\"GenuineIntel\" modelid=\"143\">"
        );
        for slot in 0..4 {
            let gpu = numa * 4 + slot;
            let _ = write!(
                text,
                "<pci busid=\"{gpu:04x}:00:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s\">\
                 <pci busid=\"{gpu:04x}:01:00.0\" class=\"0x030200\"><gpu dev=\"{gpu}\" sm=\"90\">\
                 <nvlink target=\"0000:c3:00.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>"
            );
            for port in 0..2 {
                let dev = gpu * 2 + port;
                let _ = write!(
                    text,
                    "<pci busid=\"{gpu:04x}:0{}:00.0\" class=\"0x020000\"><nic><net dev=\"{dev}\" \
                     name=\"a-card-with-a-long-name{dev}\" speed=\"200000\" guid=\"{dev}\"/></nic></pci>",
                    port + 2
                );
            }
            text.push_str("</pci>");
        }
        text.push_str("</cpu>");
    }
    text + "</system>"
}

/// GPUs in a ring of NVLinks; a second rank on one of them, and a card with two ports.
fn meshed() -> String {
    let mut text = String::from("<system version=\"1\"><cpu numaid=\"0\">");
    for gpu in 0..4 {
        let second = if gpu == 0 {
            "<gpu dev=\"0\" rank=\"4\"/>"
        } else {
            ""
        };
        let _ = write!(
            text,
            "<pci busid=\"0000:0{gpu}:00.0\" class=\"0x030200\"><gpu dev=\"{gpu}\" rank=\"{gpu}\" \
             sm=\"70\"><nvlink target=\"0000:0{}:00.0\" count=\"2\" tclass=\"0x030200\"/>\
             <nvlink target=\"0000:0{}:00.0\" count=\"2\" tclass=\"0x030200\"/></gpu>{second}</pci>",
            (gpu + 1) % 4,
            (gpu + 3) % 4
        );
    }
    text + "<pci busid=\"0000:09:00.0\" class=\"0x020000\"><nic><net dev=\"0\" name=\"p0\"/>\
            <net dev=\"1\" name=\"p&lt;1&gt;\"/></nic></pci></cpu></system>"
}

fn slots() -> String {
    let mut text = String::from("<system version=\"1\">");
    for numa in 0..4 {
        let _ = write!(text, "<cpu numaid=\"{numa}\">");
        for slot in 0..5 {
            let _ = write!(text, "<endpoint dev=\"{}\"/>", numa * 5 + slot);
        }
        text.push_str("<nic><net dev=\"");
        let _ = write!(text, "{numa}\" name=\"eth{numa}\"/></nic></cpu>");
    }
    text + "</system>"
}

fn machines() -> Vec<(String, System)> {
    let mut files = vec![
        ("dense".to_owned(), dense().into_bytes()),
        ("meshed".to_owned(), meshed().into_bytes()),
        ("slots".to_owned(), slots().into_bytes()),
    ];
    let shared = std::env::var_os("COMM_SHARED_DIR").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        Into::into,
    );
    match std::fs::read_dir(shared.join("topo/xml")) {
        Ok(entries) => files.extend(entries.map(|entry| {
            let path = entry.unwrap().path();
            (path.display().to_string(), std::fs::read(path).unwrap())
        })),
        Err(_) => println!("skipped real machines' files: no folder shared/topo"),
    }
    files
        .into_iter()
        .map(|(name, bytes)| {
            let system = build(&parse(name.as_str(), &bytes).unwrap()).unwrap();
            (name, system)
        })
        .collect()
}

fn plan(system: &System, hosts: usize) -> Plan {
    Plan::uniform(system.clone(), hosts, &Options::default()).unwrap()
}

fn scenes(system: &System) -> Vec<Scene> {
    [1, 2]
        .map(|hosts| super::machine::scene("title", system, &plan(system, hosts)))
        .into()
}

#[test]
fn every_node_appears_once() {
    for (name, system) in machines() {
        for scene in scenes(&system) {
            let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
            for shape in &scene.shapes {
                if let Shape::Box { node, .. } | Shape::Text { node, .. } = shape {
                    *seen.entry(node.unwrap_or(usize::MAX)).or_default() += 1;
                }
            }
            for kind in NodeKind::ALL {
                for node in system.of_kind(kind) {
                    let times = seen.get(&node.index());
                    assert_eq!(times, Some(&1), "{name}: {kind:?} {}", node.index());
                }
            }
        }
    }
}

#[test]
fn boxes_lie_inside_their_parents_and_never_overlap_beside_them() {
    for (name, system) in machines() {
        let blocks = layout(&system, 0.0, 0.0);
        let mut inside = vec![0; blocks.len()];
        for block in &blocks {
            let children: Vec<usize> = block.columns.iter().flatten().copied().collect();
            for (position, child) in children.iter().enumerate() {
                inside[*child] += 1;
                let rect = blocks[*child].rect;
                assert!(block.rect.contains(&rect), "{name}: {block:?} {rect:?}");
                for other in &children[position + 1..] {
                    assert!(!rect.overlaps(&blocks[*other].rect), "{name}: {rect:?}");
                }
            }
        }
        for (block, times) in blocks.iter().zip(inside) {
            assert_eq!(times, usize::from(block.what != What::Host), "{name}");
        }
        let leaves: Vec<Rect> = blocks
            .iter()
            .filter(|block| !block.is_container())
            .map(|block| block.rect)
            .collect();
        for (position, leaf) in leaves.iter().enumerate() {
            for other in &leaves[position + 1..] {
                assert!(!leaf.overlaps(other), "{name}: {leaf:?} {other:?}");
            }
        }
    }
}

#[test]
fn texts_stay_on_the_sheet_and_do_not_cover_each_other() {
    for (name, system) in machines() {
        for scene in scenes(&system) {
            let texts: Vec<(Rect, &str)> = scene
                .shapes
                .iter()
                .filter_map(|shape| match shape {
                    Shape::Text {
                        x,
                        y,
                        size,
                        anchor,
                        text,
                        ..
                    } => Some((text_rect(*x, *y, *size, *anchor, text), text.as_str())),
                    _ => None,
                })
                .collect();
            let sheet = Rect {
                x: 0.0,
                y: 0.0,
                w: scene.width,
                h: scene.height,
            };
            for (position, (rect, text)) in texts.iter().enumerate() {
                assert!(sheet.contains(rect), "{name}: {text} {rect:?}");
                for (other, covered) in &texts[position + 1..] {
                    assert!(!rect.overlaps(other), "{name}: {text} over {covered}");
                }
            }
        }
    }
}

#[test]
fn texts_of_boxes_fit_into_them() {
    for (name, system) in machines() {
        for scene in scenes(&system) {
            // Texts of nodes without a box of their own are lines of the box that was drawn for
            // the device or card around them.
            let boxes: Vec<Rect> = scene
                .shapes
                .iter()
                .filter_map(|shape| match shape {
                    Shape::Box { rect, node, .. } => node.map(|_| *rect),
                    _ => None,
                })
                .collect();
            for shape in &scene.shapes {
                if let Shape::Text {
                    x,
                    y,
                    size,
                    anchor,
                    text,
                    node: Some(_),
                    ..
                } = shape
                {
                    let room = text_rect(*x, *y, *size, *anchor, text);
                    let holds = boxes.iter().any(|rect| rect.contains(&room));
                    assert!(holds, "{name}: {text} {room:?}");
                }
            }
        }
    }
}

/// Reads the document to its end and counts its elements.
fn elements(svg: &str) -> usize {
    let mut reader = Reader::from_str(svg);
    reader.config_mut().check_end_names = true;
    let (mut count, mut depth) = (0, 0);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) => {
                start.attributes().for_each(|a| drop(a.unwrap()));
                (count, depth) = (count + 1, depth + 1);
            }
            Event::Empty(start) => {
                start.attributes().for_each(|a| drop(a.unwrap()));
                count += 1;
            }
            Event::End(_) => depth -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    count
}

#[test]
fn pictures_are_well_formed_xml() {
    for (_, system) in machines() {
        for hosts in [1, 3] {
            let plan = plan(&system, hosts);
            let svg = super::machine("<&\"\u{1}>", &system, &plan);
            assert!(elements(&svg) > system.node_count());
            let svg = super::trees("trees", &plan).unwrap();
            assert!(elements(&svg) > plan.ranks());
        }
    }
}

#[test]
fn trees_show_every_rank_once_per_picture_and_boxes_do_not_overlap() {
    for (name, system) in machines() {
        let plan = plan(&system, 5);
        let scene = super::trees::scene("trees", &plan).unwrap();
        let mut boxes = Vec::new();
        let mut ranks: BTreeMap<u32, usize> = BTreeMap::new();
        for shape in &scene.shapes {
            match shape {
                Shape::Box { rect, .. } => boxes.push(*rect),
                Shape::Text { text, .. } => {
                    if let Ok(rank) = text.parse() {
                        *ranks.entry(rank).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
        for (position, rect) in boxes.iter().enumerate() {
            let sheet = scene.width >= rect.right() && scene.height >= rect.bottom();
            assert!(sheet, "{name}: {rect:?}");
            for other in &boxes[position + 1..] {
                assert!(!rect.overlaps(other), "{name}: {rect:?} {other:?}");
            }
        }
        let pictures = boxes.len() / plan.nodes();
        assert_eq!(ranks.len(), plan.ranks(), "{name}");
        assert!(ranks.values().all(|times| *times == pictures), "{name}");
    }
}

#[test]
fn too_many_ranks_for_a_sheet_of_trees_are_refused() {
    let system = build(&parse("slots", slots().as_bytes()).unwrap()).unwrap();
    let error = super::trees("trees", &plan(&system, 200)).unwrap_err();
    assert!(error.to_string().contains("fewer hosts"), "{error}");
}

#[test]
fn switches_nested_very_deeply_are_drawn() {
    let depth = 3000;
    let mut text = String::from("<system version=\"1\"><cpu numaid=\"0\"><endpoint dev=\"0\"/>");
    for level in 0..depth {
        let _ = write!(text, "<pci busid=\"{level:x}:00:00.0\" class=\"0x060400\">");
    }
    text.push_str(&"</pci>".repeat(depth));
    text.push_str("</cpu></system>");
    let system = build(&parse("deep", text.as_bytes()).unwrap()).unwrap();
    let svg = super::machine("deep", &system, &plan(&system, 1));
    assert!(elements(&svg) > depth);
}
