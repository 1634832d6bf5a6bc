//! Rules about packages: documented crates, forbidden `unsafe`, publishable dependencies.

use super::source::Source;
use super::{Finding, unsafe_code};
use crate::workspace::{self, Dependency, Kind, Metadata, Package, Target};

/// Checks every member of the workspace.
pub(crate) fn check(metadata: &Metadata, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &metadata.packages {
        findings.extend(check_versions(package));
        for target in &package.targets {
            let Ok(path) = target.src_path.strip_prefix(workspace::root()) else {
                continue;
            };
            let Some(source) = sources.iter().find(|source| path == source.path.as_str()) else {
                continue;
            };
            findings.extend(check_documentation(target, source));
            findings.extend(check_forbidden_unsafe(target, source));
        }
    }
    findings
}

/// `cargo publish` drops the path of a dependency and needs the version that is left.
///
/// Development dependencies are exempt: with a version, two crates that test each other could
/// never be published.
fn check_versions(package: &Package) -> Vec<Finding> {
    let unversioned = |dependency: &&Dependency| {
        dependency.path.is_some() && dependency.req == "*" && dependency.kind != Kind::Dev
    };
    package
        .dependencies
        .iter()
        .filter(unversioned)
        .map(|dependency| {
            let message = format!("the path dependency {} has no version", dependency.name);
            Finding::in_package(&package.name, message)
        })
        .collect()
}

/// The first thing in a crate is a sentence that says what it is.
fn check_documentation(target: &Target, source: &Source) -> Option<Finding> {
    let wanted = ["lib", "proc-macro", "bin", "example"];
    if !target
        .kind
        .iter()
        .any(|kind| wanted.contains(&kind.as_str()))
    {
        return None;
    }
    let first = source
        .lines
        .iter()
        .position(|line| !line.comment.trim().is_empty() || !line.code.trim().is_empty());
    let text = first.and_then(|index| source.lines[index].comment.trim().strip_prefix("//!"));
    let problem = match text.map(str::trim) {
        None => "has no crate documentation (`//!`) at its top",
        Some(text) if !text.starts_with(char::is_alphabetic) && !text.starts_with('`') => {
            "starts its documentation with something other than a sentence"
        }
        Some(_) => return None,
    };
    let message = format!("the crate `{}` {problem}", target.name);
    Some(Finding::at(source, first.unwrap_or(0), message))
}

/// A crate without an entry in the list of modules with `unsafe` has the compiler forbid it.
fn check_forbidden_unsafe(target: &Target, source: &Source) -> Option<Finding> {
    let crate_root = target
        .kind
        .iter()
        .any(|kind| matches!(kind.as_str(), "lib" | "bin"));
    let directory = source
        .path
        .rsplit_once('/')
        .map_or("", |(directory, _)| directory);
    if !crate_root || unsafe_code::has_entry_below(directory) {
        return None;
    }
    let forbids = source
        .lines
        .iter()
        .any(|line| line.code.contains("#![forbid(unsafe_code)]"));
    (!forbids).then(|| {
        let message = "needs `#![forbid(unsafe_code)]`: no module of it is listed in \
                       xtask/src/tidy/unsafe_code.rs";
        Finding::at(source, 0, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: &str) -> Target {
        Target {
            name: "it".into(),
            kind: vec![kind.into()],
            src_path: "it.rs".into(),
        }
    }

    fn documentation(kind: &str, text: &str) -> Option<String> {
        check_documentation(&target(kind), &Source::parse("c/src/lib.rs", text)).map(|f| f.message)
    }

    #[test]
    fn crate_documentation_starts_with_text() {
        assert_eq!(documentation("lib", "//! What it is.\n"), None);
        assert_eq!(documentation("lib", "\n//! `it` does that.\n"), None);
        assert!(
            documentation("lib", "//! # Title\n")
                .unwrap()
                .contains("sentence")
        );
        assert!(
            documentation("lib", "//!\n//! Late.\n")
                .unwrap()
                .contains("sentence")
        );
        assert!(
            documentation("bin", "fn main() {}\n")
                .unwrap()
                .contains("no crate doc")
        );
        assert!(
            documentation("bin", "// A plain comment.\n")
                .unwrap()
                .contains("no crate doc")
        );
        assert!(
            documentation("example", "")
                .unwrap()
                .contains("no crate doc")
        );
        assert_eq!(documentation("test", "fn a() {}\n"), None);
    }

    #[test]
    fn crates_without_listed_modules_forbid_unsafe() {
        let check = |path, text| {
            check_forbidden_unsafe(&target("lib"), &Source::parse(path, text)).is_some()
        };
        assert!(check("comm-graph/src/lib.rs", "//! Graphs.\n"));
        assert!(!check(
            "comm-graph/src/lib.rs",
            "//! Graphs.\n#![forbid(unsafe_code)]\n"
        ));
        assert!(!check("comm-core/src/lib.rs", "//! Contracts.\n"));
    }

    #[test]
    fn path_dependencies_carry_a_version_except_for_tests() {
        let package = |kind: &str, req: &str| -> Package {
            let json = format!(
                r#"{{"name":"a","targets":[],"features":{{}},
                    "dependencies":[{{"name":"b","req":"{req}","kind":{kind},"path":"/w/b"}}]}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        assert_eq!(check_versions(&package("null", "*")).len(), 1);
        assert_eq!(check_versions(&package("null", "^0.1.0")), []);
        assert_eq!(check_versions(&package(r#""dev""#, "*")), []);
    }
}
