//! Lock-free code takes its atomics from `comm_core::sync`.
//!
//! Under `--cfg comm_loom` that shim hands out loom's types. An atomic of the standard library in
//! the same algorithm would be invisible to the model checker, and the models would prove nothing.

use super::Finding;
use super::source::{Source, word_columns};

/// Files (without extension) and directories that loom has to see through.
const CHECKED: &[&str] = &[
    "comm-core/src/fifo",
    "comm-core/src/doorbell",
    "comm-transport-shm/src",
];

const MESSAGE: &str = "atomics come from `comm_core::sync` here, so that loom can check them";

/// Checks one file; test code may use what it likes.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let stem = source.path.trim_end_matches(".rs");
    let is_checked = CHECKED.iter().any(|entry| {
        stem.strip_prefix(entry)
            .is_some_and(|r| r.is_empty() || r.starts_with('/'))
    });
    if !is_checked {
        return Vec::new();
    }
    statements(source)
        .into_iter()
        .filter(|(_, statement)| bypasses_the_shim(statement))
        .map(|(index, _)| Finding::at(source, index, MESSAGE))
        .collect()
}

/// Pieces of code between `;`, with the line on which each starts. Braces do not end a piece, so
/// an import list stays whole.
fn statements(source: &Source) -> Vec<(usize, String)> {
    let mut statements = vec![(0, String::new())];
    for (index, line) in source
        .lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.test)
    {
        for (part, text) in line.code.split(';').enumerate() {
            if part > 0 {
                statements.push((index, String::new()));
            }
            if let Some((start, statement)) = statements.last_mut() {
                if statement.trim().is_empty() {
                    *start = index;
                }
                statement.push_str(text.trim());
                statement.push(' ');
            }
        }
    }
    statements
}

fn bypasses_the_shim(statement: &str) -> bool {
    let squeezed: String = statement.split_whitespace().collect();
    let inline = ["std::sync::atomic", "core::sync::atomic", "loom::sync"]
        .iter()
        .any(|path| !word_columns(&squeezed, path).is_empty());
    let imported = ["std", "core", "loom"].iter().any(|krate| {
        let import = [format!("use {krate}::"), format!("use ::{krate}::")];
        import
            .iter()
            .any(|start| statement.contains(start.as_str()))
            && !word_columns(&squeezed, "atomic").is_empty()
    });
    inline || imported
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::parse(path, text))
            .into_iter()
            .filter_map(|f| f.line)
            .collect()
    }

    #[test]
    fn atomics_of_the_standard_library_are_reported() {
        let path = "comm-transport-shm/src/segment.rs";
        assert_eq!(
            lines(path, "//! A.\n\nuse std::sync::atomic::AtomicU64;\n"),
            [3]
        );
        assert_eq!(
            lines(path, "use std::sync::{Arc, atomic::AtomicU64};\n"),
            [1]
        );
        assert_eq!(
            lines(
                path,
                "use std::{\n    sync::{\n        atomic,\n    },\n};\n"
            ),
            [1]
        );
        assert_eq!(
            lines(path, "fn a() {\n    core::sync::atomic::fence(b);\n}\n"),
            [1]
        );
        assert_eq!(lines(path, "use loom::sync::atomic::AtomicU64;\n"), [1]);
    }

    #[test]
    fn the_shim_other_imports_tests_and_other_files_are_fine() {
        let fine = [
            (
                "comm-core/src/fifo/ring.rs",
                "use std::sync::Arc;\nuse crate::sync::atomic::fence;\n",
            ),
            (
                "comm-core/src/fifo/ring.rs",
                "#[cfg(test)]\nuse std::sync::atomic::AtomicU64;\n",
            ),
            (
                "comm-transport-shm/src/a.rs",
                "use comm_core::sync::atomic::AtomicU64;\n",
            ),
            (
                "comm-runtime/src/pool.rs",
                "use std::sync::atomic::AtomicU64;\n",
            ),
        ];
        for (path, text) in fine {
            assert!(lines(path, text).is_empty(), "{path}: {text}");
        }
    }
}
