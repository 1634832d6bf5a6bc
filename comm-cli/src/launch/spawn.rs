//! One worker: a process in a group of its own that dies with the launcher.
//!
//! An ended worker is left as a zombie until its [`Worker`] is dropped. Its number, which is also
//! that of its process group, therefore cannot be given to an unrelated process as long as signals
//! may still be sent to it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use comm_core::{Error, ErrorKind, Result};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group,
    pidfd_open, set_parent_process_death_signal, waitid,
};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::options::Variable;
use super::signals::Mask;
use super::status::Status;

/// How the workers of one launch are started.
#[derive(Debug)]
pub(super) struct Recipe<'a> {
    /// The program and its arguments.
    pub(super) program: &'a [OsString],
    /// The signals that the program holds back when it starts.
    pub(super) mask: Mask,
}

/// A started worker. Dropping it kills its process group and waits for the worker's end.
#[derive(Debug)]
pub(super) struct Worker {
    rank: u32,
    pid: Pid,
    pidfd: OwnedFd,
    child: Child,
}

/// The ends of a worker's output that the launcher reads.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) rank: u32,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Worker {
    /// Starts one worker with `variables` added to the environment, bound to `cpus` if given.
    ///
    /// The worker dies with the calling thread.
    ///
    /// # Errors
    ///
    /// When there is no such program, or processes or descriptors run out.
    pub(super) fn spawn(
        recipe: &Recipe<'_>,
        rank: u32,
        variables: &[Variable],
        cpus: Option<CpuSet>,
    ) -> Result<(Self, Streams)> {
        let Some((path, arguments)) = recipe.program.split_first() else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "no program is given",
            ));
        };
        let mut command = Command::new(path);
        command
            .args(arguments)
            .envs(
                variables
                    .iter()
                    .map(|variable| (&variable.key, &variable.value)),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let (launcher, mask) = (getpid(), recipe.mask);
        let before_exec = move || become_worker(launcher, &mask, cpus.as_ref());
        // SAFETY: the closure runs in the child between fork and exec, where only functions that
        // are safe in a signal handler may be called; it makes system calls and nothing else.
        unsafe { command.pre_exec(before_exec) };
        let mut child = command
            .spawn()
            .map_err(|error| explain(error, rank, path))?;

        let pid = Pid::from_child(&child);
        let streams = child.stdout.take().zip(child.stderr.take());
        let pidfd = pidfd_open(pid, PidfdFlags::empty());
        match (pidfd, streams) {
            (Ok(pidfd), Some((stdout, stderr))) => Ok((
                Self {
                    rank,
                    pid,
                    pidfd,
                    child,
                },
                Streams {
                    rank,
                    stdout,
                    stderr,
                },
            )),
            (pidfd, _) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(match pidfd {
                    Err(error) => Error::system("opening a pidfd (needs Linux 5.3)", error),
                    Ok(_) => Error::new(ErrorKind::Internal, "a worker came without its pipes"),
                })
            }
        }
    }

    /// The worker's rank.
    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of the worker's process and of its group.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends `signal` to the worker and everything it has started in its group.
    pub(super) fn signal(&self, signal: Signal) {
        // Fails only when nothing in the group is ours to signal (a changed user id); the
        // supervision notices by itself who does not end.
        let _ = kill_process_group(self.pid, signal);
    }

    /// How the worker has ended, or `None` while it runs; never blocks.
    ///
    /// # Errors
    ///
    /// When something else in this process has reaped the worker.
    pub(super) fn status(&self) -> Result<Option<Status>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), options).map_err(|error| {
            Error::system("asking how a worker has ended", error).with("rank", self.rank)
        })?;
        Ok(status.as_ref().and_then(Status::from_wait))
    }
}

impl AsFd for Worker {
    /// Readable when the worker has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// What the child does before it becomes the program.
fn become_worker(launcher: Pid, mask: &Mask, cpus: Option<&CpuSet>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The launcher may have died before the line above, and then no signal ever comes.
    if getppid() != Some(launcher) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    if let Some(cpus) = cpus {
        sched_setaffinity(None, cpus)?;
    }
    mask.apply()
}

fn explain(error: io::Error, rank: u32, path: &OsString) -> Error {
    let message = match error.kind() {
        io::ErrorKind::NotFound => {
            "the program was not found; give its path, or a name that is in PATH"
        }
        io::ErrorKind::PermissionDenied => "the program is not executable; try chmod +x",
        _ => "a worker could not be started",
    };
    Error::system(message, error)
        .with("program", path.display())
        .with("rank", rank)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::super::signals::Signals;
    use super::*;

    fn shell(script: &str) -> (Worker, Streams) {
        let program = ["sh", "-c", script].map(OsString::from);
        let variable = Variable {
            key: "GREETING".into(),
            value: "hello".into(),
        };
        let mask = Signals::block().unwrap().mask_before();
        Worker::spawn(
            &Recipe {
                program: &program,
                mask,
            },
            3,
            &[variable],
            None,
        )
        .unwrap()
    }

    /// Blocks until the worker has ended.
    fn end(worker: &Worker) -> Status {
        waitid(
            WaitId::PidFd(worker.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        )
        .unwrap();
        worker.status().unwrap().unwrap()
    }

    #[test]
    fn the_status_of_an_ended_worker_can_be_asked_again_and_again() {
        let (worker, _streams) = shell("exit 7");
        assert_eq!(end(&worker), Status::Exited(7));
        assert_eq!(worker.status().unwrap(), Some(Status::Exited(7)));
    }

    #[test]
    fn a_signal_reaches_what_the_worker_has_started() {
        let (worker, mut streams) = shell("sleep 1000 & echo; wait");
        streams.stdout.read_exact(&mut [0]).unwrap();
        assert_eq!(worker.status().unwrap(), None);
        worker.signal(Signal::KILL);
        assert_eq!(
            end(&worker),
            Status::Killed {
                signal: libc::SIGKILL,
                dumped: false
            }
        );
        // The pipe is closed once nobody is left who could write to it.
        assert_eq!(streams.stdout.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_dropped_worker_is_gone() {
        let (worker, mut streams) = shell("sleep 1000");
        drop(worker);
        assert_eq!(streams.stdout.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn workers_get_their_variables_and_no_input() {
        let (worker, mut streams) = shell("cat; echo $GREETING");
        let mut text = String::new();
        streams.stdout.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello\n");
        assert_eq!(end(&worker), Status::Exited(0));
    }

    #[test]
    fn a_missing_program_is_named() {
        let mask = Signals::block().unwrap().mask_before();
        let recipe = Recipe {
            program: &["./no-such-program".into()],
            mask,
        };
        let error = Worker::spawn(&recipe, 1, &[], None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("./no-such-program") && text.contains("PATH"),
            "{text}"
        );
    }
}
