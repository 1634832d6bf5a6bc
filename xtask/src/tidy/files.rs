//! The text files of the workspace, found by walking its tree.
//!
//! Walking instead of asking git makes the check work in an unpacked source archive and look at
//! files that are not added yet.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A file with its path relative to the workspace root, separated by `/`.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

const EXTENSIONS: &[&str] = &["rs", "toml", "md", "sh", "py", "yaml", "yml"];

/// Reads every file of a known text format below `root`, sorted by path.
pub(crate) fn read(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(directory: &Path, prefix: &str, files: &mut Vec<File>) -> Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", directory.display()))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = entry.path();
        let kind = entry
            .file_type()
            .with_context(|| format!("cannot inspect {}", path.display()))?;
        if kind.is_dir() {
            // Build output and version control; `.ci` and `.cargo` are ours.
            let skipped = name == "target" || name.starts_with(".git") || name == ".venv";
            if !skipped {
                walk(&path, &format!("{prefix}{name}/"), files)?;
            }
        } else if kind.is_file() && is_text(prefix, &name) {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            files.push(File {
                path: format!("{prefix}{name}"),
                text,
            });
        }
    }
    Ok(())
}

fn is_text(prefix: &str, name: &str) -> bool {
    prefix == ".ci/"
        || name
            .rsplit_once('.')
            .is_some_and(|(_, end)| EXTENSIONS.contains(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_file_is_found_and_build_output_is_not() {
        let files = read(crate::workspace::root()).unwrap();
        assert!(
            files
                .iter()
                .any(|file| file.path == "xtask/src/tidy/files.rs")
        );
        assert!(
            files
                .iter()
                .all(|file| !file.path.split('/').any(|part| part == "target"))
        );
    }
}
