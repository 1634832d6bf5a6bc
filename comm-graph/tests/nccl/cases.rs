//! Finding and reading the shared files.

use std::path::PathBuf;

use comm_graph::xml::{Document, parse};
use serde_json::Value;

/// One expected answer with the file it belongs to.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) hosts: usize,
    pub(crate) document: Document,
    pub(crate) expected: Value,
}

fn topo_dir() -> Option<PathBuf> {
    let shared = match std::env::var_os("COMM_SHARED_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    let dir = shared.join("topo");
    if dir.join("expected").is_dir() {
        return Some(dir);
    }
    println!(
        "skipped: {} with NCCL's answers is absent (set COMM_SHARED_DIR)",
        dir.display()
    );
    None
}

/// Every expected answer; empty (with a printed reason) without the shared folder.
pub(crate) fn cases() -> Vec<Case> {
    let Some(dir) = topo_dir() else {
        return Vec::new();
    };
    let mut cases = Vec::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir.join("expected"))
        .expect("the folder was seen above")
        .map(|entry| entry.expect("readable folder").path())
        .filter(|path| path.file_name().is_some_and(|name| name != "trees.json"))
        .collect();
    files.sort();
    for file in files {
        let expected: Value =
            serde_json::from_slice(&std::fs::read(&file).expect("readable file")).expect("JSON");
        let xml = expected["xml"][0].as_str().expect("a file name").to_owned();
        let bytes = std::fs::read(dir.join("xml").join(&xml)).expect("the XML file");
        let document = parse(xml, &bytes).expect("NCCL reads the file");
        let hosts = expected["nodes"].as_u64().expect("a count") as usize;
        let name = expected["case"].as_str().expect("a name").to_owned();
        cases.push(Case {
            name,
            hosts,
            document,
            expected,
        });
    }
    cases
}

/// The table of trees and rings.
pub(crate) fn trees() -> Option<Value> {
    let bytes = std::fs::read(topo_dir()?.join("expected/trees.json")).expect("readable file");
    Some(serde_json::from_slice(&bytes).expect("JSON"))
}
