//! `commctl topo validate`.

use std::fmt::Write as _;
use std::path::PathBuf;

use comm_core::Error;
use comm_graph::xml::validate;

use super::input;

/// All findings about files, and whether all of them can be used.
pub(super) fn findings(files: &[PathBuf]) -> (String, bool) {
    let (mut text, mut usable) = (String::new(), true);
    for path in files {
        match input::document(path) {
            Ok(document) => {
                let report = validate(&document);
                usable &= report.is_usable();
                let _ = write!(text, "{report}");
                if report.problems().is_empty() {
                    let _ = writeln!(text, "{}: ok", path.display());
                }
            }
            Err(error) => {
                usable = false;
                let _ = writeln!(text, "{}", finding(path.display(), &error));
            }
        }
    }
    (text, usable)
}

/// An error in the form of findings: `file:line: error: message`.
fn finding(path: impl std::fmt::Display, error: &Error) -> String {
    let line = error.context().find(|(key, _)| *key == "line");
    match line {
        Some((_, line)) => format!("{path}:{line}: error: {}", error.message()),
        None => format!("{path}: error: {error}"),
    }
}
