//! Hostile and half-readable trees: detection leaves out what makes no sense and never panics.

use comm_graph::detect::Slots;
use comm_graph::model::{NodeKind, build};
use comm_graph::xml::{Document, validate};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::tree::{Tree, server};

#[test]
fn an_empty_tree_is_a_machine_with_one_slot() {
    let tree = Tree::new("");
    let system = build(&tree.document()).unwrap();
    assert_eq!(system.of_kind(NodeKind::Endpoint).len(), 1);
}

#[test]
fn nonsense_in_files_is_left_out() {
    let tree = Tree::new(
        "cpuinfo \u{1}\u{2} -6 99999999999
         node 0 0-4294967295,x,,9-1 ten -10
         file sys/devices/system/node/node99999999999/cpulist 0-3
         file sys/devices/system/node/node+1/cpulist 0-3
         file proc/self/cgroup 0::/../../../etc\\n:::\\ngarbage\\n5:cpuset:/x
         file sys/fs/cgroup/cpu.max 0 0
         pci 0000:01:00.0 class=zzz
         pci 0000:02:00.0 class=0x030200 vendor=0x10de speed=99999 width=-7 numa=123456789012
         pci 0000:03:00.0 class=0x020000 speed=Unknown width=4294967295 numa=77
         net eth0 0000:03:00.0 operstate=up speed=99999999999999
         net eth1 - operstate=
         file sys/class/infiniband/mlx5_0/node_guid zz:zz
         file sys/class/infiniband/mlx5_0/ports/99999999999/state 4: ACTIVE
         file sys/class/infiniband/mlx5_0/ports/x/state 4: ACTIVE",
    );
    let machine = tree.machine();
    assert_eq!(machine.gpus.len(), 1);
    assert_eq!(machine.quota, None);
    assert_eq!(machine.ports[0].megabits, None);
    let document = tree.document();
    let report = validate(&document);
    assert!(report.is_usable(), "{report}\n{}", document.to_xml());
}

#[test]
fn links_that_lead_outside_or_in_circles_are_not_followed() {
    let tree = Tree::new(
        "node 0 0-1 10
         link sys/bus/pci/devices/0000:01:00.0 sys/bus/pci/devices/0000:02:00.0
         link sys/bus/pci/devices/0000:02:00.0 sys/bus/pci/devices/0000:01:00.0",
    );
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("class"), "0x030200\n").unwrap();
    let link = tree.path("sys/bus/pci/devices/0000:03:00.0");
    std::os::unix::fs::symlink(outside.path(), link).unwrap();
    let link = tree.path("proc");
    std::os::unix::fs::symlink(outside.path(), link).unwrap();
    assert!(tree.machine().pci.is_empty());
}

#[test]
fn huge_and_binary_files_are_read_in_part() {
    let tree = Tree::new("node 0 0-1 10");
    tree.file(
        "proc/cpuinfo",
        &"vendor_id\t: GenuineIntel\n".repeat(100_000),
    );
    std::fs::write(tree.path("proc/stat"), [0xff, 0xfe, 0, 1]).unwrap();
    assert_eq!(tree.files().text("proc/cpuinfo").unwrap().len(), 64 * 1024);
    assert!(tree.files().text("proc/stat").is_some());
    assert_eq!(tree.machine().cpu.vendor.as_deref(), Some("GenuineIntel"));
    assert_eq!(tree.files().text("proc"), None, "a directory is no file");
}

#[test]
fn any_content_of_any_file_ends_in_a_topology() {
    const GPU: &str = "sys/bus/pci/devices/0000:16:00.0";
    const CARD: &str = "sys/class/infiniband/mlx5_0";
    let paths = [
        "proc/cpuinfo".to_owned(),
        "proc/self/cgroup".to_owned(),
        "proc/self/status".to_owned(),
        "sys/devices/system/node/node0/cpulist".to_owned(),
        "sys/devices/system/node/node1/distance".to_owned(),
        format!("{GPU}/class"),
        format!("{GPU}/vendor"),
        format!("{GPU}/max_link_width"),
        format!("{GPU}/numa_node"),
        format!("{CARD}/node_guid"),
        format!("{CARD}/ports/1/rate"),
        format!("{CARD}/ports/1/state"),
    ];
    let text = "[ -~\\n]{0,40}".prop_map(String::into_bytes);
    let bytes = proptest::collection::vec(any::<u8>(), 0..40);
    let content = (prop_oneof![text, bytes], 0..paths.len());
    // One tree for all cases: what earlier ones broke stays broken.
    let tree = server();
    std::fs::create_dir_all(tree.path("proc/self")).unwrap();
    let mut runner = TestRunner::new(Config::with_cases(64));
    let outcome = runner.run(&content, |(content, which)| {
        std::fs::write(tree.path(&paths[which]), content).unwrap();
        let mut document = Document::new("detected");
        tree.machine().fill(&mut document, Slots::PerNode(1));
        let report = validate(&document);
        prop_assert!(report.is_usable(), "{report}");
        Ok(())
    });
    outcome.unwrap();
}
