//! [`FileRendezvous`]: a table in a directory that all ranks can reach.
//!
//! # Contract
//!
//! * One file per key. It is written under another name and then linked to its own, which either
//!   happens completely or fails because the key is taken. Readers check length and hash, so a
//!   file system that shows files before their content (NFS) does no harm.
//! * Nobody notifies anybody: look-ups poll, every 5 ms at first and every 100 ms later.
//! * The directory is created if it is not there, but none above it: a path that is misspelt, or
//!   whose file system is not mounted on this host, is an error instead of a place of one's own.
//! * A rendezvous removes its entries, and the directory if it created it, when it is dropped. A
//!   `fault` stays a second longer, for the others to read. What a killed job left behind is an
//!   error that names the directory.
//! * All file operations run outside of the control thread.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Rendezvous, Result, async_trait};

use crate::control::core::{Core, lock};
use crate::control::process::Process;
use crate::control::secret;

const MAGIC: &[u8; 8] = b"commrdv1";
const HASH_BYTES: usize = 32;

/// The longest file that is read.
const MAX_FILE_BYTES: u64 = (super::wire::MAX_VALUE_BYTES + MAGIC.len() + HASH_BYTES) as u64;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How long a fault stays for the other ranks to read.
const FAULT_LINGER: Duration = Duration::from_secs(1);

/// A rendezvous in a directory; see `COMM_RENDEZVOUS=file:///directory`.
pub struct FileRendezvous {
    core: Arc<Core>,
    directory: Arc<PathBuf>,
    mine: Arc<Mutex<Mine>>,
}

/// What this rendezvous has to remove in the end.
#[derive(Debug, Default)]
struct Mine {
    files: Vec<PathBuf>,
    directory: bool,
    fault: bool,
}

impl FileRendezvous {
    /// A table in `directory`, which is created if it is not there.
    #[must_use]
    pub fn new(process: &Process, directory: impl Into<PathBuf>) -> Self {
        Self {
            core: Arc::clone(process.core()),
            directory: Arc::new(directory.into()),
            mine: Arc::default(),
        }
    }

    /// Runs file operations on a thread of their own.
    async fn with_files<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.core
            .run(async {
                tokio::task::spawn_blocking(operation)
                    .await
                    .unwrap_or_else(|error| {
                        Err(Error::new(
                            ErrorKind::Internal,
                            format!("file operation: {error}"),
                        ))
                    })
            })
            .await
    }
}

#[async_trait]
impl Rendezvous for FileRendezvous {
    fn describe(&self) -> String {
        format!("directory {}", self.directory.display())
    }

    async fn publish(&self, key: &str, value: Bytes, _deadline: Instant) -> Result<()> {
        let directory = Arc::clone(&self.directory);
        let mine = Arc::clone(&self.mine);
        let key = key.to_owned();
        self.with_files(move || publish(&directory, &mine, &key, &value))
            .await
    }

    async fn lookup(&self, key: &str, deadline: Instant) -> Result<Bytes> {
        let mut pause = FIRST_PAUSE;
        loop {
            let path = self.directory.join(file_name(key));
            if let Some(value) = self.with_files(move || read(&path)).await? {
                return Ok(value);
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(
                    Error::new(ErrorKind::Timeout, "nobody has published the key")
                        .with("key", key)
                        .with("directory", self.directory.display()),
                );
            }
            let until = deadline.min(now + pause);
            self.core
                .run(async move {
                    tokio::time::sleep_until(until.into()).await;
                    Ok(())
                })
                .await?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl fmt::Debug for FileRendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRendezvous")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

impl Drop for FileRendezvous {
    fn drop(&mut self) {
        if self.core.check_fork().is_err() {
            return;
        }
        let mine = std::mem::take(&mut *lock(&self.mine));
        let directory = Arc::clone(&self.directory);
        if !mine.fault {
            remove(&directory, &mine);
            return;
        }
        let guard = self.core.lingering.begin();
        self.core.runtime().spawn(async move {
            tokio::time::sleep(FAULT_LINGER).await;
            remove(&directory, &mine);
            drop(guard);
        });
    }
}

fn remove(directory: &Path, mine: &Mine) {
    for file in &mine.files {
        if let Err(error) = fs::remove_file(file) {
            tracing::debug!(%error, file = %file.display(), "a rendezvous file was not removed");
        }
    }
    // Fails as long as other ranks have entries; the last one succeeds.
    if mine.directory || !mine.files.is_empty() {
        let _ = fs::remove_dir(directory);
    }
}

/// The file name of a key: letters, digits, `-` and `_` stay, everything else is escaped.
fn file_name(key: &str) -> String {
    use fmt::Write as _;
    key.bytes().fold(String::new(), |mut name, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => drop(write!(name, "%{byte:02x}")),
        }
        name
    })
}

fn publish(directory: &Path, mine: &Mutex<Mine>, key: &str, value: &Bytes) -> Result<()> {
    let describe = |error: io::Error| {
        Error::system("writing to the rendezvous directory", error)
            .with("directory", directory.display())
    };
    let describe_or_advise = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::new(
            ErrorKind::Rendezvous,
            "there is nothing in which the rendezvous directory could be created; check the path, \
             and that the file system which the ranks share is mounted on this host",
        )
        .with("directory", directory.display())
        .with_source(error),
        _ => describe(error),
    };
    if value.len() > super::wire::MAX_VALUE_BYTES {
        return Err(Error::new(ErrorKind::Rendezvous, "the value is too large"));
    }
    if !directory.is_dir() {
        create(directory).map_err(describe_or_advise)?;
        lock(mine).directory = true;
    }
    let name = file_name(key);
    let path = directory.join(&name);
    let random: String = secret::random::<8>()?
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let temporary = directory.join(format!(".{name}.{random}"));
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(blake3::hash(value).as_bytes());
    content.extend_from_slice(value);
    let linked = fs::File::create_new(&temporary)
        .and_then(|mut file| {
            file.write_all(&content)?;
            file.sync_all()
        })
        .and_then(|()| fs::hard_link(&temporary, &path));
    let removed = fs::remove_file(&temporary);
    match linked {
        Ok(()) => {
            removed.map_err(describe)?;
            let mut mine = lock(mine);
            mine.files.push(path);
            mine.fault |= key.ends_with("/fault");
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if read(&path)?.as_ref() == Some(value) {
                return Ok(());
            }
            Err(stale(directory, &path))
        }
        Err(error) => Err(describe(error)),
    }
}

/// Creates a directory, which another rank may do at the same time.
fn create(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        created => created,
    }
}

/// The error for an entry that somebody else made.
fn stale(directory: &Path, path: &Path) -> Error {
    let age = fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .ok()
        .and_then(|modified| modified.elapsed().ok())
        .map_or_else(String::new, |age| {
            format!(", written {} s ago", age.as_secs())
        });
    Error::new(
        ErrorKind::Rendezvous,
        format!(
            "the directory {} has an entry of somebody else{age}; if an earlier job left it, \
             remove the directory, and give jobs that run at the same time different ones",
            directory.display()
        ),
    )
    .with("entry", path.display())
}

/// The value in a file; `None` if there is none, or not all of it yet.
fn read(path: &Path) -> Result<Option<Bytes>> {
    let describe = |error: io::Error| {
        Error::system("reading the rendezvous directory", error).with("file", path.display())
    };
    let content = match fs::File::open(path) {
        Ok(file) => {
            let mut content = Vec::new();
            io::Read::read_to_end(&mut io::Read::take(file, MAX_FILE_BYTES + 1), &mut content)
                .map_err(describe)?;
            content
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(describe(error)),
    };
    let Some((head, value)) = content.split_at_checked(MAGIC.len() + HASH_BYTES) else {
        return Ok(None);
    };
    let (magic, hash) = head.split_at(MAGIC.len());
    if magic != MAGIC || blake3::hash(value).as_bytes()[..] != *hash {
        return Ok(None);
    }
    Ok(Some(Bytes::copy_from_slice(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn a_key_is_published_once_and_repeating_the_same_value_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let mine = Mutex::default();
        publish(directory.path(), &mine, "world/rank/0", &value("a")).unwrap();
        publish(directory.path(), &mine, "world/rank/0", &value("a")).unwrap();
        let error = publish(directory.path(), &mine, "world/rank/0", &value("b")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rendezvous);
        let name = directory.path().display().to_string();
        assert!(error.message().contains(&name), "{error}");
        let path = directory.path().join(file_name("world/rank/0"));
        assert_eq!(read(&path).unwrap(), Some(value("a")));
    }

    #[test]
    fn the_directory_is_created_but_none_above_it() {
        let shared = tempfile::tempdir().unwrap();
        let mine = Mutex::default();
        publish(&shared.path().join("job"), &mine, "key", &value("a")).unwrap();
        let misspelt = shared.path().join("shraed");
        let error = publish(&misspelt.join("job"), &mine, "key", &value("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rendezvous);
        let name = misspelt.display().to_string();
        assert!(error.to_string().contains(&name), "{error}");
        assert!(!misspelt.exists());
    }

    #[test]
    fn nothing_but_the_entries_is_left_in_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mine = Mutex::default();
        publish(directory.path(), &mine, "a/b", &value("a")).unwrap();
        publish(directory.path(), &mine, "a/b", &value("c")).unwrap_err();
        let names: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["a%2fb"]);
    }

    #[test]
    fn a_file_whose_content_is_not_all_there_is_no_value() {
        let directory = tempfile::tempdir().unwrap();
        let mine = Mutex::default();
        publish(directory.path(), &mine, "key", &value("the value")).unwrap();
        let path = directory.path().join("key");
        let content = fs::read(&path).unwrap();
        for end in 0..content.len() {
            fs::write(&path, &content[..end]).unwrap();
            assert_eq!(read(&path).unwrap(), None);
        }
    }

    #[test]
    fn different_keys_have_different_names_that_stay_in_the_directory() {
        assert_eq!(file_name("../a"), "%2e%2e%2fa");
        assert_ne!(file_name("a/b"), file_name("a%2fb"));
    }
}
