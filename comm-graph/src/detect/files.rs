//! Reading small files of a machine, below a directory that stands for `/`.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Files are read up to this size; everything of interest is far smaller.
const MOST_BYTES: u64 = 64 * 1024;

/// Directories are read up to this many entries.
const MOST_ENTRIES: usize = 16 * 1024;

/// The files of a machine.
///
/// Paths are relative to the directory, e.g. `proc/cpuinfo`. Absent and unreadable files are
/// `None`; reading never fails otherwise.
#[derive(Clone, Debug)]
pub struct SystemFiles {
    directory: PathBuf,
}

impl Default for SystemFiles {
    fn default() -> Self {
        Self::at("/")
    }
}

impl SystemFiles {
    /// The machine whose root directory is `directory`: `/` for this one.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        Self {
            // Links are compared with the real path later.
            directory: directory.canonicalize().unwrap_or(directory),
        }
    }

    /// The beginning of a file as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        let path = self.inside(path)?;
        // A pipe or device in the place of a file would block or have effects.
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        let file = File::open(path).ok()?;
        file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A file's first line without surrounding blanks; `None` when that is empty.
    #[must_use]
    pub fn line(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let line = text.lines().next()?.trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// A number that is alone on a file's first line.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<i64> {
        self.line(path)?.parse().ok()
    }

    /// Whether a file or directory exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.inside(path).is_some_and(|path| path.exists())
    }

    /// The names in a directory, sorted; empty when there is no such directory.
    #[must_use]
    pub fn entries(&self, path: &str) -> Vec<String> {
        let entries = self.inside(path).and_then(|path| path.read_dir().ok());
        let mut names: Vec<String> = entries
            .into_iter()
            .flatten()
            .take(MOST_ENTRIES)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }

    /// Where a link really leads, relative to the directory; `None` when that is outside.
    #[must_use]
    pub fn resolve(&self, path: &str) -> Option<String> {
        let real = self.directory.join(plain(path)?).canonicalize().ok()?;
        let inside = real.strip_prefix(&self.directory).ok()?;
        Some(inside.to_str()?.to_owned())
    }

    /// The path on this machine, if it does not leave the directory through links.
    fn inside(&self, path: &str) -> Option<PathBuf> {
        Some(self.directory.join(self.resolve(path)?))
    }
}

/// A relative path without `..`.
fn plain(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    plain.then_some(path)
}
