//! The examples of comm-api, started as the documentation says.

use std::path::{Path, PathBuf};

use crate::job::{Ended, start_with};

/// Where cargo puts the examples: beside the program under test. `None` if they are not built,
/// which happens when this package is tested alone.
fn example(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_commctl")).with_file_name("examples");
    let path = path.join(name);
    if !path.is_file() {
        println!("skipped: {name} is not built; `cargo build --package comm-api --examples`");
        return None;
    }
    Some(path)
}

/// Runs an example with two ranks; it must succeed.
fn launch(name: &str) -> Option<Ended> {
    let path = example(name)?;
    let ended = start_with(&["-n", "2"], &[path.to_str().unwrap()], &[]).end();
    assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
    Some(ended)
}

#[test]
fn all_reduce_sums_on_every_rank() {
    let Some(ended) = launch("all_reduce") else {
        return;
    };
    let every = "every one of 4194304 sums is 3";
    let expected = [0, 1].map(|rank| format!("[{rank}] rank {rank} of 2: {every}"));
    assert_eq!(ended.lines(), expected);
}

#[test]
fn ping_pong_prints_a_latency() {
    let Some(ended) = launch("ping_pong") else {
        return;
    };
    assert!(
        ended.stdout.contains("8 bytes from rank 0 to rank 1: "),
        "{ended:?}"
    );
}

#[test]
fn async_overlap_reduces_every_layer() {
    let Some(ended) = launch("async_overlap") else {
        return;
    };
    assert_eq!(ended.lines().len(), 2, "{ended:?}");
}

#[test]
fn own_transport_carries_every_edge() {
    let Some(ended) = launch("own_transport") else {
        return;
    };
    for line in ended.lines() {
        assert!(line.ends_with("edges by memfile"), "{ended:?}");
    }
}

#[test]
fn threads_needs_no_launcher() {
    let Some(path) = example("threads") else {
        return;
    };
    let output = std::process::Command::new(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("rank 0 of 4: the largest value is 30, my left neighbour is rank 3"));
}
