//! Buffers in flight cannot be reached from safe code: what must not compile does not, for the
//! reason that is meant.
//!
//! # Contract
//!
//! Each file in `cases` is a program. A line that ends in `//~ E0382` must be the place of a
//! compiler's error with this code, and no other error may come; a program without such a line
//! must compile. Codes and lines are compared, never the compiler's words: those change from one
//! release to the next, and `trybuild`, which compares them, or documentation tests, of which only
//! nightly compilers check the code, would either fail for nothing or pass for the wrong reason.
//!
//! The programs are checked by cargo as a package of its own, without a transport, since none is
//! needed to compile them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// What a program promises behind a line, and where an error's code stands.
const MARK: &str = "//~ ";

/// An error: in which program, in which line, with which code.
type Errors = BTreeSet<(String, usize, String)>;

/// What cargo says in one line of its output.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    code: Option<Code>,
    spans: Vec<Span>,
    message: String,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    line_start: usize,
    is_primary: bool,
}

/// The programs by name.
fn cases() -> Vec<(String, PathBuf)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/aliasing/cases");
    let mut cases: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    cases.sort();
    cases
}

/// The errors that the programs promise.
fn promised(cases: &[(String, PathBuf)]) -> Errors {
    let mut errors = Errors::new();
    for (name, path) in cases {
        let text = fs::read_to_string(path).unwrap();
        for (line, text) in (1..).zip(text.lines()) {
            if let Some((_, code)) = text.split_once(MARK) {
                errors.insert((name.clone(), line, code.trim().to_owned()));
            }
        }
    }
    errors
}

/// Makes the package; its directory.
fn package(cases: &[(String, PathBuf)]) -> PathBuf {
    let api = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("aliasing");
    fs::create_dir_all(&directory).unwrap();
    let mut manifest = format!(
        "[workspace]\n\n[package]\nname = \"aliasing\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\ncomm-api = {{ path = {api:?}, default-features = false }}\n"
    );
    for (name, path) in cases {
        write!(manifest, "\n[[bin]]\nname = {name:?}\npath = {path:?}\n").unwrap();
    }
    fs::write(directory.join("Cargo.toml"), manifest).unwrap();
    // The versions that the library itself is tested with, which are there already.
    fs::copy(api.join("../Cargo.lock"), directory.join("Cargo.lock")).unwrap();
    directory
}

/// The errors that the compiler finds.
fn found(directory: &Path) -> Errors {
    let checked = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["check", "--bins", "--keep-going", "--offline", "--quiet"])
        .args(["--message-format", "json", "--target-dir", "target"])
        .current_dir(directory)
        .output()
        .unwrap();
    let output = String::from_utf8(checked.stdout).unwrap();
    let mut errors = Errors::new();
    let mut seen = false;
    for line in output.lines() {
        let message: Message = serde_json::from_str(line).unwrap();
        seen |= message.target.is_some();
        let (Some(target), Some(error)) = (message.target, message.message) else {
            continue;
        };
        let Some(code) = error.code.filter(|_| error.level == "error") else {
            // "aborting due to 1 previous error" has neither code nor place.
            assert!(
                error.level != "error" || error.spans.is_empty(),
                "{}: {}",
                target.name,
                error.message
            );
            continue;
        };
        for span in error.spans.iter().filter(|span| span.is_primary) {
            errors.insert((target.name.clone(), span.line_start, code.code.clone()));
        }
    }
    assert!(
        seen,
        "cargo checked nothing: {}",
        String::from_utf8_lossy(&checked.stderr)
    );
    errors
}

#[test]
fn buffers_in_flight_cannot_be_aliased_in_safe_code() {
    let cases = cases();
    let promised = promised(&cases);
    let without: Vec<_> = cases
        .iter()
        .filter(|(name, _)| promised.iter().all(|(other, ..)| other != name))
        .collect();
    assert!(
        without.len() == 1 && without[0].0 == "accepted",
        "every program but the one that shows what is allowed promises an error: {without:?}"
    );
    let found = found(&package(&cases));
    let missing: Vec<_> = promised.difference(&found).collect();
    let surplus: Vec<_> = found.difference(&promised).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "promised but not found: {missing:#?}, found but not promised: {surplus:#?}"
    );
}
