//! What detection makes of common kinds of machines.

use comm_graph::Options;
use comm_graph::detect::{Machine, PortKind, Slots, SysfsGpus, SystemFiles};
use comm_graph::model::{CpuVendor, NodeKind, build};
use comm_graph::path::{PathKind, Topology};
use comm_graph::plan::Plan;
use comm_graph::xml::{Document, parse, validate};

use super::tree::{Tree, server};

fn attribute<'a>(document: &'a Document, element: &str, key: (&str, &str), name: &str) -> &'a str {
    let order = document.walk();
    let found = order
        .iter()
        .map(|id| document.element(*id))
        .find(|found| found.name == element && found.attribute(key.0) == Some(key.1));
    found
        .and_then(|found| found.attribute(name))
        .unwrap_or_else(|| panic!("no {element} with {key:?} and {name}"))
}

#[test]
fn a_server_has_its_gpus_and_cards_behind_switches_on_two_numa_nodes() {
    let tree = server();
    let machine = tree.machine();
    assert_eq!(machine.numa.len(), 2);
    assert_eq!(machine.numa[1].distances, [21, 10]);
    assert_eq!(machine.gpus.len(), 8, "the management controller is no GPU");
    assert_eq!(
        machine.ports.len(),
        8,
        "InfiniBand only, no management card"
    );

    let document = tree.document();
    let report = validate(&document);
    assert!(report.is_usable(), "{report}");
    let system = build(&document).unwrap();
    let count = |kind| system.of_kind(kind).len();
    assert_eq!(count(NodeKind::Cpu), 2);
    assert_eq!(count(NodeKind::Pci), 4, "upstream ports only");
    assert_eq!(count(NodeKind::Device), 8);
    assert_eq!(count(NodeKind::Net), 8);
    let cpu = system.cpu(0).unwrap();
    assert_eq!(cpu.vendor, CpuVendor::Intel { model: 143 });
    assert_eq!(cpu.affinity, "ffffffff,00000000,ffffffff");

    let mut options = Options::default();
    options.net_disable_intra = true;
    let (domains, _) = Topology::domains(&system, 16, &options).unwrap();
    let system = domains[0].system();
    let endpoints = system.of_kind(NodeKind::Endpoint);
    let path = |a: usize, b: usize| domains[0].paths().get(endpoints[a], endpoints[b]).kind;
    assert_eq!(path(0, 1), PathKind::Pix);
    assert_eq!(path(0, 7), PathKind::System);
    Plan::uniform(build(&document).unwrap(), 2, &Options::default())
        .unwrap()
        .validate()
        .unwrap();
}

#[test]
fn links_are_as_fast_as_the_slower_end() {
    let tree = server();
    let document = tree.document();
    let card = |id| attribute(&document, "pci", ("busid", id), "link_width");
    assert_eq!(card("0000:79:00.0"), "8");
    assert_eq!(card("0000:78:00.0"), "16");

    let tree = Tree::new(
        "node 0 0-3 10
         pci 0000:00:01.0 class=0x060400 speed=8.0 width=4 numa=0
         pci 0000:00:01.0/0000:01:00.0 class=0x020000 speed=16.0 width=8 numa=0
         net eth0 0000:01:00.0 operstate=up speed=-1",
    );
    let document = tree.document();
    let card = |name| attribute(&document, "pci", ("busid", "0000:01:00.0"), name);
    assert_eq!(card("link_speed"), "8.0 GT/s PCIe");
    assert_eq!(card("link_width"), "4");
    let speed = attribute(&document, "net", ("name", "eth0"), "speed");
    assert_eq!(speed, "10000", "unknown speed");
}

#[test]
fn infiniband_ports_have_number_guid_and_rate() {
    let machine = server().machine();
    let port = &machine.ports[3];
    assert_eq!(port.name, "mlx5_3");
    assert_eq!(port.megabits, Some(400_000));
    let guid = 0xb83f_d203_00aa_0003;
    assert_eq!(port.kind, PortKind::Infiniband { port: 1, guid });
}

#[test]
fn a_laptop_gives_slots_on_its_only_node_and_its_wireless_card() {
    let tree = Tree::new(
        "cpuinfo AuthenticAMD 25 80
         node 0 0-15 10
         pci 0000:00:02.2 class=0x060400 vendor=0x1022 numa=-1
         pci 0000:00:02.2/0000:01:00.0 class=0x028000 vendor=0x8086 speed=5.0 width=1 numa=-1
         pci 0000:00:08.1 class=0x060400 vendor=0x1022 numa=-1
         pci 0000:00:08.1/0000:04:00.0 class=0x030000 vendor=0x1002 numa=-1
         net wlan0 0000:01:00.0 operstate=up
         net docker0 - operstate=up carrier=1
         net veth1 - operstate=up carrier=1
         file sys/class/net/lo/type 772
         file sys/class/net/lo/operstate unknown",
    );
    let machine = tree.machine();
    assert!(machine.gpus.is_empty(), "built-in graphics are no GPU");
    assert_eq!(machine.ports.len(), 1);
    let system = build(&tree.document()).unwrap();
    assert_eq!(system.of_kind(NodeKind::Cpu).len(), 1);
    assert_eq!(system.of_kind(NodeKind::Endpoint).len(), 8);
    let net = system.net(0).unwrap();
    assert_eq!((net.name.as_str(), net.gbps), ("wlan0", 1.25));
}

#[test]
fn a_virtual_machine_without_pci_or_numa_has_one_unnamed_node() {
    let tree = Tree::new(
        "cpuinfo GenuineIntel 6 85
         file sys/devices/system/cpu/online 0-3
         net eth0 - operstate=unknown carrier=1 speed=25000
         net eth1 - operstate=down",
    );
    let system = build(&tree.document()).unwrap();
    assert_eq!(system.cpu(0).unwrap().numa, -1);
    assert_eq!(system.of_kind(NodeKind::Endpoint).len(), 4);
    assert_eq!(system.of_kind(NodeKind::Net).len(), 1);
    assert_eq!(system.net(0).unwrap().gbps, 3.125);
}

#[test]
fn a_card_behind_virtio_is_found_by_the_pci_device_above() {
    let tree = Tree::new(
        "node 0 0-1 10
         pci 0000:00:03.0 class=0x020000 vendor=0x1af4 numa=-1
         net eth0 0000:00:03.0/virtio2 operstate=up speed=-1",
    );
    let document = tree.document();
    attribute(&document, "pci", ("busid", "0000:00:03.0"), "class");
    assert_eq!(build(&document).unwrap().of_kind(NodeKind::Nic).len(), 1);
}

#[test]
fn virtual_functions_beside_their_card_are_left_out() {
    let tree = Tree::new(
        "node 0 0-1 10
         pci 0000:01:00.0 class=0x020000 numa=0
         pci 0000:01:00.1 class=0x020000 numa=0
         net eth0 0000:01:00.0 operstate=up speed=25000
         net eth0v0 0000:01:00.1 operstate=up speed=25000
         link sys/devices/pci0000:00/0000:01:00.1/physfn sys/devices/pci0000:00/0000:01:00.0",
    );
    let ports = tree.machine().ports;
    assert_eq!(ports.len(), 1);
    assert_eq!(ports[0].name, "eth0");
}

#[test]
fn a_container_uses_the_cpus_and_the_time_its_cgroup_gives() {
    let host = "node 0 0-31 10 21\n node 1 32-63 21 10\n";
    // Version 2; the limit on time is set on a group further up.
    let tree = Tree::new(&format!(
        "{host}
         file proc/self/cgroup 0::/jobs/a
         file sys/fs/cgroup/jobs/a/cpuset.cpus.effective 4-7,40-43
         file sys/fs/cgroup/jobs/a/cpu.max max 100000
         file sys/fs/cgroup/jobs/cpu.max 350000 100000"
    ));
    let machine = tree.machine();
    let allowed: Vec<u32> = machine.allowed.iter().collect();
    assert_eq!(allowed, [4, 5, 6, 7, 40, 41, 42, 43]);
    assert_eq!(machine.quota, Some(3.5));
    assert_eq!(machine.usable_cpus(), 4);
    let document = tree.document();
    let slots = |numa| {
        let cpus = document.children(document.root(), "cpu");
        let mut cpus = cpus.filter(|id| document.element(*id).attribute("numaid") == Some(numa));
        document.children(cpus.next().unwrap(), "endpoint").count()
    };
    assert_eq!((slots("0"), slots("1")), (2, 2));

    // Version 1 inside a container: the path is the host's, the mount the container's.
    let tree = Tree::new(&format!(
        "{host}
         file proc/self/status Name: x\\nCpus_allowed_list:\\t8-63
         file proc/self/cgroup 5:cpuset:/docker/abc\\n4:cpu,cpuacct:/docker/abc
         file sys/fs/cgroup/cpuset/cpuset.cpus 0-9
         file sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us 50000
         file sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us 100000"
    ));
    let machine = tree.machine();
    assert_eq!(machine.allowed.iter().collect::<Vec<_>>(), [8, 9]);
    assert_eq!(machine.usable_cpus(), 1);
    let system = build(&tree.document()).unwrap();
    assert_eq!(system.of_kind(NodeKind::Endpoint).len(), 1);
}

#[test]
fn nodes_without_cpus_appear_only_when_a_device_hangs_on_them() {
    let tree = Tree::new(
        "node 0 0-1 10 20 20
         file sys/devices/system/node/node1/cpulist
         file sys/devices/system/node/node2/cpulist
         pci 0002:01:00.0 class=0x020000 numa=2
         net eth0 0002:01:00.0 operstate=up speed=100000",
    );
    let document = tree.document();
    let cpus = document.children(document.root(), "cpu");
    let numbers: Vec<_> = cpus
        .filter_map(|cpu| document.element(cpu).attribute("numaid"))
        .collect();
    assert_eq!(numbers, ["0", "2"]);
}

#[test]
fn this_machine_gives_a_usable_topology() {
    let machine = Machine::detect(&SystemFiles::default(), &SysfsGpus);
    assert!(machine.usable_cpus() >= 1);
    let mut document = Document::new("detected");
    machine.fill(&mut document, Slots::PerNode(2));
    let report = validate(&document);
    assert!(report.is_usable(), "{report}");
    let again = parse("again", document.to_xml().as_bytes()).unwrap();
    let plan = Plan::uniform(build(&again).unwrap(), 2, &Options::default()).unwrap();
    plan.validate().unwrap();
}
