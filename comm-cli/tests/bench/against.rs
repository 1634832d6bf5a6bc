//! Comparisons with other systems, of which a machine may have none.

use comm_bench::Operation;
use comm_bench::against::{Line, Medium};

use crate::command::{Ended, commctl};

/// What `commctl bench --against SYSTEMS ARGUMENTS` printed, the lines of its JSON file, and its plot.
fn against(systems: &str, arguments: &str, path: &str) -> (Ended, Vec<Line>, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (json, plot) = (file("lines.json"), file("plot.svg"));
    let mut all = vec![
        "bench",
        "--against",
        systems,
        "--json",
        &json,
        "--plot",
        &plot,
    ];
    all.extend(arguments.split_whitespace());
    let ended = commctl(&all, &[("PATH", path)]);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let lines = read(&json)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    (ended, lines, read(&plot))
}

#[test]
fn systems_that_are_not_there_are_named_with_their_packages_and_nothing_fails() {
    let arguments = "--op all_reduce --transport shm --max-bytes 512 --rounds 2 --time 0.002";
    let systems = "openmpi,ucx,gloo,iperf3,fifo_limit,tcp_limit";
    let (ended, lines, plot) = against(systems, arguments, "/nowhere");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for package in ["libopenmpi-dev", "ucx-utils", "torch", "iperf3", "gcc"] {
        assert!(ended.stdout.contains(package), "{package}: {ended:?}");
    }
    let sizes: Vec<u64> = lines.iter().map(|line| line.bytes).collect();
    assert_eq!(sizes, [8, 64, 512]);
    for line in &lines {
        assert_eq!((line.op, line.medium), (Operation::AllReduce, Medium::Shm));
        assert!(line.us.is_some_and(|us| us > 0.0) && line.peers.is_empty());
    }
    assert!(plot.starts_with("<svg") && plot.contains("all_reduce, 2 ranks, shm"));
}

#[test]
fn the_bare_programs_are_compiled_and_measured_in_turn() {
    let path = std::env::var("PATH").unwrap_or_default();
    let compiler = std::env::split_paths(&path).any(|directory| directory.join("cc").is_file());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if !compiler || cpus < 2 {
        println!("skipped: needs cc and two CPUs");
        return;
    }
    for (system, transport, operations) in [
        ("fifo_limit", "shm", "pingpong"),
        ("tcp_limit", "net", "all_gather,all_reduce"),
    ] {
        let arguments = format!(
            "--op {operations} --transport {transport} -b 8 -e 4K -f 512 --rounds 3 --time 0.002"
        );
        let (ended, lines, plot) = against(system, &arguments, &path);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(lines.len(), 2 * operations.split(',').count(), "{ended:?}");
        for line in &lines {
            let [peer] = line.peers.as_slice() else {
                panic!("{line:?}")
            };
            assert_eq!(peer.system, system);
            assert!(peer.us > 0.0 && peer.ratio.is_some_and(|ratio| ratio > 0.0));
            assert!(ended.stdout.contains(&line.bytes.to_string()), "{ended:?}");
        }
        assert!(plot.contains(system));
    }
}

#[test]
fn what_no_peer_can_do_is_refused() {
    for (arguments, complaint) in [
        ("--transport p2p", "--transport shm"),
        ("--dtype bf16", "--dtype"),
    ] {
        let (ended, _, _) = against("fifo_limit", arguments, "/nowhere");
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(complaint), "{ended:?}");
    }
}
