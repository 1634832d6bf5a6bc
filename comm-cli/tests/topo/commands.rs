//! The contract of each command.

use serde_json::Value;

use super::machine::{FOUR_GPUS, Folder, TWO_SLOTS};

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("gpus.xml", FOUR_GPUS);
    folder.write("slots.xml", TWO_SLOTS);
    folder
}

#[test]
fn validate_prints_every_finding_with_file_and_line() {
    let folder = folder();
    let good = folder.topo(&["validate", "gpus.xml", "slots.xml"], &[]);
    assert_eq!(good.code, Some(0));
    assert_eq!(good.stdout, "gpus.xml: ok\nslots.xml: ok\n");

    folder.write(
        "bad.xml",
        "<system version=\"1\">\n<cpu>\n<pci class=\"x\"/>\n<fan/>\n</cpu>\n</system>\n",
    );
    folder.write("text.xml", "\n\nnot a topology\n");
    let bad = folder.topo(
        &["validate", "bad.xml", "text.xml", "gone.xml", "gpus.xml"],
        &[],
    );
    assert_eq!(bad.code, Some(1));
    for start in [
        "bad.xml:2: error: numaid",
        "bad.xml:3: error: busid",
        "bad.xml:3: error: class",
        "bad.xml:4: warning: unknown element <fan>",
        "text.xml:",
        "gone.xml: error:",
        "gpus.xml: ok",
    ] {
        let found = bad.stdout.lines().any(|line| line.starts_with(start));
        assert!(found, "{start}\n{}", bad.stdout);
    }
}

#[test]
fn warnings_alone_leave_a_file_usable() {
    let folder = folder();
    let file = TWO_SLOTS.replace("<nic>", "<fan/><nic>");
    folder.write("odd.xml", &file);
    let found = folder.topo(&["validate", "odd.xml"], &[]);
    assert_eq!(found.code, Some(0));
    assert!(found.stdout.contains("odd.xml:5: warning:"), "{found:?}");
    let shown = folder.topo(&["show", "odd.xml"], &[]);
    assert_eq!(shown.code, Some(0));
    assert!(shown.stderr.contains("odd.xml:5: warning:"), "{shown:?}");
}

#[test]
fn show_prints_the_tree_and_how_near_devices_are() {
    let shown = folder().topo(&["show", "gpus.xml"], &[]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let start = "NUMA node 0  Intel model 143  CPUs 0-15\n\
                 |-- PCI switch 0000:10:00.0  24 GB/s\n\
                 |   |-- GPU 0  rank 0  0000:11:00.0  sm 80  GPUDirect  12 GB/s\n";
    assert!(shown.stdout.starts_with(start), "{}", shown.stdout);
    let row = |name: &str| {
        let mut lines = shown.stdout.lines();
        let line = lines.find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(row("rank0")[1..3], ["-", "PIX"]);
    assert_eq!(row("rank0").last().unwrap(), "PHB");
}

#[test]
fn plan_sorts_algorithms_by_predicted_time() {
    let folder = folder();
    let arguments = [
        "plan",
        "gpus.xml",
        "--hosts",
        "4",
        "--op",
        "all_reduce",
        "--bytes",
        "1G",
    ];
    let planned = folder.topo(&arguments, &[]);
    assert_eq!(planned.code, Some(0), "{planned:?}");
    assert!(planned.stdout.contains("AllReduce of 1 GiB"), "{planned:?}");
    let bus: Vec<f64> = planned
        .stdout
        .lines()
        .filter(|line| line.starts_with("Ring") || line.starts_with("Tree"))
        .map(|line| line.split_whitespace().last().unwrap().parse().unwrap())
        .collect();
    assert!(bus.len() >= 4, "{}", planned.stdout);
    assert!(bus.is_sorted_by(|a, b| a >= b), "{bus:?}");

    let alone = folder.topo(
        &["plan", "slots.xml", "--op", "reduce", "--bytes", "8"],
        &[],
    );
    assert!(alone.stdout.contains("Ring"), "{alone:?}");
    let wrong = folder.topo(&["plan", "gpus.xml", "--bytes", "much"], &[]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

fn report(folder: &Folder, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let mut all = vec!["graph", "--json"];
    all.extend(arguments);
    let ended = folder.topo(&all, variables);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn graph_prints_the_whole_plan_as_json() {
    let folder = folder();
    let found = report(&folder, &["gpus.xml", "--hosts", "2"], &[]);
    assert_eq!(found["nranks"], 8);
    for pointer in [
        "/rank_domain/7",
        "/domains/0/paths/gpu_gpu/0/1/0",
        "/domains/0/paths/gpu_net/0/0/1",
        "/domains/0/paths/net_gpu/0/0/2",
        "/domains/0/paths/gpu_cpu/0/0/0",
        "/domains/0/graphs/ring/channels/0/intra/0",
        "/domains/0/graphs/tree/nchannels",
        "/domains/0/graphs/ring/search_ms",
        "/final/rings/0/7",
        "/final/tree_up/0/7",
        "/final/tree_down/0/7/2",
        "/p2p_schedule/send/7/7",
        "/tuning/AllReduce/lat_bw/Ring~1Simple/1",
        "/tuning/AllReduce/choice/30/5",
    ] {
        assert!(found.pointer(pointer).is_some(), "{pointer}");
    }
    let summary = folder.topo(&["graph", "gpus.xml", "--hosts", "2"], &[]);
    assert!(summary.stdout.contains("ring 0: 0 "), "{summary:?}");
}

#[test]
fn several_files_are_mixed_hosts_in_that_order() {
    let folder = folder();
    let found = report(&folder, &["slots.xml", "gpus.xml"], &[]);
    assert_eq!(found["nranks"], 6);
    let domains: Vec<i64> = found["rank_domain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|domain| domain.as_i64().unwrap())
        .collect();
    assert_eq!(domains[..2], [0, 0]);
    assert!(
        domains[2..].iter().all(|domain| *domain >= 1),
        "{domains:?}"
    );
    assert_eq!(
        report(&folder, &["slots.xml", "gpus.xml", "--hosts", "3"], &[])["nranks"],
        8
    );
}

#[test]
fn variables_that_steer_the_search_are_honoured() {
    let folder = folder();
    let channels = |variables| {
        let found = report(&folder, &["gpus.xml", "--hosts", "2"], variables);
        found["final"]["nchannels"].as_u64().unwrap()
    };
    assert_eq!(channels(&[("NCCL_MAX_NCHANNELS", "1")]), 1);
    assert_eq!(
        channels(&[("NCCL_MAX_NCHANNELS", "1"), ("COMM_MAX_NCHANNELS", "2")]),
        2
    );
    let wrong = folder.topo(&["graph", "gpus.xml"], &[("NCCL_CROSS_NIC", "9")]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("NCCL_CROSS_NIC"), "{wrong:?}");
}

#[test]
fn detect_fills_a_base_file_and_dumps_where_asked() {
    let folder = folder();
    folder.write("root/sys/devices/system/node/node0/cpulist", "0-3\n");
    folder.write(
        "root/proc/cpuinfo",
        "vendor_id\t: AuthenticAMD\nmodel\t: 17\n",
    );
    let detect = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut all = vec!["detect", "--root", "root"];
        all.extend(arguments);
        let ended = folder.topo(&all, variables);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    let found = detect(&[], &[]);
    assert!(found.contains("affinity=\"0000000f\""), "{found}");
    assert_eq!(found.matches("<endpoint").count(), 4);
    assert_eq!(
        detect(&["--slots", "1"], &[]).matches("<endpoint").count(),
        1
    );

    assert_eq!(detect(&["-o", "out.xml"], &[]), "");
    assert_eq!(folder.read("out.xml"), found);

    folder.write(
        "base.xml",
        "<system version=\"1\"><cpu numaid=\"0\" vendor=\"Mine\"/></system>",
    );
    folder.write(
        "root/var/run/nvidia-topologyd/virtualTopology.xml",
        FOUR_GPUS,
    );
    let base = [
        ("NCCL_TOPO_FILE", "slots.xml"),
        ("COMM_TOPO_FILE", "base.xml"),
        ("NCCL_TOPO_DUMP_FILE", "dump.xml"),
    ];
    let found = detect(&[], &base);
    assert!(
        found.contains("vendor=\"Mine\"") && found.contains("modelid=\"17\""),
        "{found}"
    );
    assert_eq!(folder.read("dump.xml"), found);
    assert!(
        detect(&[], &[]).contains("<gpu dev=\"3\""),
        "the vendor's file is the default base"
    );
}

#[test]
fn a_broken_base_file_ends_detection_with_its_line() {
    let folder = folder();
    folder.write("base.xml", "<system version=\"1\">\n<cpu/></system>");
    let ended = folder.topo(&["detect"], &[("COMM_TOPO_FILE", "base.xml")]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("line=2"), "{ended:?}");
}

#[test]
fn this_machine_is_shown_without_a_file() {
    let shown = folder().topo(&["show"], &[]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.starts_with("NUMA node"), "{shown:?}");
}

#[test]
fn draw_writes_the_machine_and_the_trees_beside_it() {
    let folder = folder();
    let arguments = [
        "draw", "gpus.xml", "-o", "out.svg", "--trees", "--hosts", "3",
    ];
    let drawn = folder.topo(&arguments, &[]);
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    assert!(folder.read("out.svg").contains("mlx5_1"));
    assert!(folder.read("out.trees.svg").contains("trees over"));
    let missing = folder.topo(&["draw", "gpus.xml", "-o", "no/such/out.svg"], &[]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("no/such/out.svg"), "{missing:?}");
}
