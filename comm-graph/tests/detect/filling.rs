//! Filling a topology file: what the file says wins, what it lacks is added.

use comm_graph::detect::{C2c, Gpu, GpuLink, GpuProbe, PciDevice, Slots, SystemFiles};
use comm_graph::model::{NodeKind, build};
use comm_graph::xml::{BusId, Document, parse, validate};

use super::tree::{Tree, server};

fn fill(tree: &Tree, file: &str) -> Document {
    let mut document = parse("base.xml", file.as_bytes()).unwrap();
    tree.machine().fill(&mut document, Slots::Auto);
    let report = validate(&document);
    assert!(report.is_usable(), "{report}");
    document
}

fn elements<'a>(document: &'a Document, name: &str) -> Vec<&'a comm_graph::xml::Element> {
    let order = document.walk().into_iter().map(|id| document.element(id));
    order.filter(|element| element.name == name).collect()
}

#[test]
fn attributes_of_the_file_win_and_missing_ones_are_filled() {
    let document = fill(
        &server(),
        r#"<system version="1">
             <cpu numaid="1" vendor="AuthenticAMD">
               <pci busid="0000:16:00.0" link_width="4"><gpu dev="7" sm="90"/></pci>
             </cpu>
           </system>"#,
    );
    let cpus = elements(&document, "cpu");
    assert_eq!(cpus.len(), 2);
    assert_eq!(cpus[0].attribute("vendor"), Some("AuthenticAMD"));
    assert_eq!(cpus[0].attribute("modelid"), Some("143"));
    let device = elements(&document, "pci")
        .into_iter()
        .find(|pci| pci.attribute("busid") == Some("0000:16:00.0"))
        .unwrap();
    assert_eq!(device.attribute("link_width"), Some("4"));
    assert_eq!(device.attribute("class"), Some("0x030200"));
    let parent = document.element(device.parent.unwrap());
    assert_eq!(parent.name, "cpu", "the file's place wins");
    let gpus = elements(&document, "gpu");
    assert_eq!(gpus.len(), 8);
    assert_eq!(gpus[0].attribute("dev"), Some("7"));
    assert_eq!(gpus[0].attribute("gdr"), Some("1"));
}

#[test]
fn filling_twice_changes_nothing() {
    for tree in [
        server(),
        Tree::new("node 0 0-3 10\n net eth0 - operstate=up"),
    ] {
        let document = tree.document();
        let mut again = document.clone();
        tree.machine().fill(&mut again, Slots::Auto);
        assert_eq!(document, again);
        assert_eq!(
            document,
            tree.document(),
            "equal trees give equal documents"
        );
    }
}

#[test]
fn devices_go_below_the_switches_of_the_file() {
    let document = fill(
        &server(),
        r#"<system version="1">
             <cpu numaid="0">
               <pci busid="0000:11:00.0" class="0x060400" link_width="8"/>
             </cpu>
           </system>"#,
    );
    let switch = elements(&document, "pci")[0];
    assert_eq!(switch.children.len(), 4, "two GPUs and two cards");
    assert_eq!(switch.attribute("link_width"), Some("8"));
    assert_eq!(switch.attribute("link_speed"), Some("32.0 GT/s PCIe"));
}

#[test]
fn networks_of_the_file_are_matched_by_name() {
    let document = fill(
        &server(),
        r#"<system version="1">
             <cpu numaid="0"><nic>
               <net name="mlx5_2" dev="0" port="1" speed="100000"/>
               <net name="other" dev="1"/>
             </nic></cpu>
           </system>"#,
    );
    let nets = elements(&document, "net");
    assert_eq!(nets.len(), 9);
    assert_eq!(nets[0].attribute("speed"), Some("100000"));
    assert_eq!(nets[0].attribute("guid"), Some("0xb83fd20300aa0002"));
    assert_eq!(nets[1].attribute("speed"), None, "not of this machine");
}

#[test]
fn slots_are_added_only_where_they_are_wanted() {
    let tree = server();
    assert!(elements(&tree.document(), "endpoint").is_empty());
    let mut document = Document::new("new");
    tree.machine().fill(&mut document, Slots::PerNode(3));
    assert_eq!(elements(&document, "endpoint").len(), 6);
    let file = r#"<system version="1"><cpu numaid="0"><endpoint dev="5"/></cpu></system>"#;
    let tree = Tree::new("node 0 0-3 10");
    let document = fill(&tree, file);
    assert_eq!(elements(&document, "endpoint").len(), 1);
}

struct Library;

impl GpuProbe for Library {
    fn gpus(&self, files: &SystemFiles, pci: &[PciDevice]) -> Vec<Gpu> {
        assert!(files.exists("sys/bus/pci/devices"));
        let gpus = pci.iter().filter(|device| device.class == 0x03_0200);
        let gpus = gpus.zip(0..).map(|(device, dev)| Gpu {
            bus_id: device.bus_id,
            dev,
            compute_capability: Some(90),
            gdr: Some(true),
            links: vec![GpuLink {
                target: BusId::parse("0000:c3:00.0").unwrap(),
                target_class: 0x06_8000,
                count: 18,
            }],
            c2c: Some(C2c {
                megabytes_per_second: 44_712,
                count: 10,
            }),
        });
        gpus.collect()
    }
}

#[test]
fn a_probe_adds_what_sysfs_does_not_show() {
    let mut document = Document::new("new");
    server()
        .machine_with(&Library)
        .fill(&mut document, Slots::Auto);
    let gpus = elements(&document, "gpu");
    assert_eq!(gpus[0].attribute("sm"), Some("90"));
    assert_eq!(elements(&document, "nvlink").len(), 8);
    let system = build(&document).unwrap();
    assert_eq!(system.of_kind(NodeKind::NvSwitch).len(), 1);
}
