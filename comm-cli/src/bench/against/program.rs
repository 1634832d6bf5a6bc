//! Running peers' programs: found by name, compiled where they are ours, ended when they hang.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind, Result};

/// How often a program that runs is looked after.
const LOOK: Duration = Duration::from_millis(5);

/// A directory for compiled programs and output files; removed when dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(super) fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only the numbers have to differ.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("commctl-against-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).map_err(|error| {
            Error::system("making a directory for peers' programs", error)
                .with("path", path.display())
        })?;
        Ok(Self { path })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a source into the directory.
    pub(super) fn source(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.file(name);
        fs::write(&path, text).map_err(|error| {
            Error::system("writing a peer's program", error).with("path", path.display())
        })?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is a temporary file.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Whether there is such a program in `PATH`.
pub(super) fn exists(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// A child that is killed with its process group when dropped before its end.
pub(super) struct Running {
    child: Child,
    ended: bool,
}

impl Running {
    /// Starts `command` in a process group of its own.
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_owned();
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                Error::system("starting a peer", error).with("program", name.display())
            })?;
        Ok(Self {
            child,
            ended: false,
        })
    }

    /// Waits for the end; `false` if the program did not succeed.
    fn wait(&mut self, limit: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            let ended = self
                .child
                .try_wait()
                .map_err(|error| Error::system("waiting for a peer", error))?;
            if let Some(status) = ended {
                self.ended = true;
                return Ok(status.success());
            }
            if start.elapsed() > limit {
                let message = "the program took too long and was ended";
                return Err(
                    Error::new(ErrorKind::Timeout, message).with("seconds", limit.as_secs())
                );
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Some(group) = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            // Gone already is as good.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Runs a program to its end and returns what it printed on standard output.
///
/// # Errors
///
/// With the last lines of its output if it fails, [`ErrorKind::Timeout`] if it takes longer.
pub(super) fn output(command: &mut Command, limit: Duration, scratch: &Path) -> Result<String> {
    // Files, not pipes: a program that prints much is not blocked, and needs no reader.
    let (out, err) = (scratch.with_extension("out"), scratch.with_extension("err"));
    let create = |path: &Path| {
        File::create(path).map_err(|error| Error::system("creating a file for output", error))
    };
    command.stdout(create(&out)?).stderr(create(&err)?);
    let succeeded = Running::start(command)?.wait(limit)?;
    let read = |path: &Path| {
        let bytes =
            fs::read(path).map_err(|error| Error::system("reading a peer's output", error))?;
        Ok::<_, Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let printed = read(&out)?;
    if succeeded {
        return Ok(printed);
    }
    let complaint = printed + &read(&err)?;
    let lines: Vec<&str> = complaint.lines().filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(3)..].join(" / ");
    Err(Error::new(
        ErrorKind::Unavailable,
        format!("the program failed: {last}"),
    )
    .with("program", command.get_program().display()))
}

/// Compiles one of our C programs for peers.
pub(super) fn compile<S: AsRef<OsStr>>(
    compiler: &str,
    flags: &[S],
    name: &str,
    text: &str,
    scratch: &Scratch,
) -> Result<PathBuf> {
    let source = scratch.source(&format!("{name}.c"), text)?;
    let program = scratch.file(name);
    let mut command = Command::new(compiler);
    command.args(flags).arg(&source).arg("-o").arg(&program);
    let limit = Duration::from_secs(60);
    output(&mut command, limit, &scratch.file("compiler"))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<String> {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        output(&mut command, limit, &directory.path().join("shell"))
    }

    #[test]
    fn a_failure_is_told_with_the_programs_last_words() {
        let error = shell(
            "echo one; echo no device >&2; exit 3",
            Duration::from_secs(60),
        );
        let text = error.unwrap_err().to_string();
        assert!(text.contains("one / no device"), "{text}");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let error = shell("sleep 1000 & sleep 1000", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }

    #[test]
    fn programs_are_looked_for_in_the_path() {
        assert!(exists("sh"));
        assert!(!exists("a-program-that-nobody-has"));
    }

    #[test]
    fn the_scratch_directory_is_removed() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.source("a.c", "int main;").unwrap();
        assert!(path.exists());
        drop(scratch);
        assert!(!path.exists());
    }
}
