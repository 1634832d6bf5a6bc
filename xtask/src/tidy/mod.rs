//! `cargo xtask tidy`: house rules that neither rustc nor clippy can check.
//!
//! | rule | where |
//! |---|---|
//! | a crate depends only on the layers below it | [`layers`] |
//! | crates start with documentation, path dependencies carry a version | [`manifests`] |
//! | no long file, no trailing space, no unfinished or switched-off code | [`text`] |
//! | `unsafe` only in listed modules, each block with its argument | [`unsafe_code`] |
//! | lock-free code takes its atomics from the shim that loom can replace | [`atomics`] |
//! | variables are documented, links lead somewhere, quoted code is the file's | [`docs`] |
//!
//! All findings are printed, not only the first. Nothing is compiled.

mod atomics;
mod docs;
mod files;
mod layers;
mod lexer;
mod manifests;
mod source;
mod text;
mod unsafe_code;

use std::fmt;

use anyhow::{Result, bail};

use crate::workspace::{self, Metadata};
use source::Source;

/// A broken rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// Relative to the workspace root, or a package name.
    place: String,
    /// Counted from 1; `None` when the rule is about the file or package as a whole.
    line: Option<usize>,
    /// What is wrong and what to do about it.
    message: String,
}

impl Finding {
    fn at(source: &Source, index: usize, message: impl Into<String>) -> Self {
        Self {
            place: source.path.clone(),
            line: Some(index + 1),
            message: message.into(),
        }
    }

    fn in_package(name: &str, message: impl Into<String>) -> Self {
        Self {
            place: name.to_owned(),
            line: None,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.message),
            None => write!(f, "{}: {}", self.place, self.message),
        }
    }
}

/// Checks the workspace; prints every finding and fails when there is one.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::load()?;
    let files = files::read(workspace::root())?;
    let sources = Source::from_files(&files);

    let mut findings = Vec::new();
    findings.extend(layers::check(&metadata));
    findings.extend(manifests::check(&metadata, &sources));
    findings.extend(files.iter().flat_map(text::check_spacing));
    findings.extend(docs::check(&files, &sources));
    for source in &sources {
        findings.extend(text::check_code(source));
        findings.extend(unsafe_code::check(source));
        findings.extend(atomics::check(source));
    }
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} broken house rule(s)", findings.len());
    }
    println!(
        "tidy: {} files of {} packages are in order",
        files.len(),
        metadata.packages.len()
    );
    Ok(())
}
