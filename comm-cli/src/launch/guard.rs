//! A small second process that cleans up when the launcher cannot.
//!
//! A worker asks the kernel to kill it when the launcher dies, but that does not hold for what the
//! worker itself has started. The guard knows all process groups: the launcher writes their
//! numbers into a pipe as it starts workers. The end of the pipe without the closing word means
//! that the launcher is dead, however it died, and the guard kills the groups.
//!
//! Between the launcher's death and the guard's kill (microseconds) the kernel could in principle
//! reuse the number of a group that is empty by then; nothing in Linux names a group in a safer way.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use comm_core::{Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process_group};

/// The hidden subcommand under which `commctl` is the guard.
pub const GUARD_COMMAND: &str = "launch-guard";

/// Says that the launcher has ended its workers itself.
const DONE: &str = "done";

/// The launcher's side. Dropping it dismisses the guard.
#[derive(Debug)]
pub(super) struct Guard {
    process: Child,
}

impl Guard {
    /// Starts the guard, out of reach of the signals that a terminal sends to the launcher's group.
    /// It inherits the blocked signals of the launcher and so outlives all of those.
    ///
    /// # Errors
    ///
    /// When no process can be started.
    pub(super) fn start() -> Result<Self> {
        // By this path, since the file may have been replaced since this process started.
        let process = Command::new("/proc/self/exe")
            .arg0("commctl")
            .arg(GUARD_COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map_err(|error| Error::system("starting the guard process", error))?;
        Ok(Self { process })
    }

    /// Puts a process group under guard.
    ///
    /// # Errors
    ///
    /// When the guard is gone; the workers would not be safe then.
    pub(super) fn watch(&mut self, group: Pid) -> Result<()> {
        self.tell(&group.as_raw_nonzero().to_string())
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let Some(pipe) = &mut self.process.stdin else {
            return Err(Error::new(ErrorKind::Internal, "the guard has no pipe"));
        };
        pipe.write_all(format!("{line}\n").as_bytes())
            .map_err(|error| Error::system("the guard process of the launch has died", error))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.tell(DONE);
        // Also closes the pipe.
        let _ = self.process.wait();
    }
}

/// Is the guard: waits for the launcher's end and kills what it leaves behind.
///
/// Standard input is the pipe from the launcher. For `commctl` only.
///
/// # Errors
///
/// When standard input cannot be read.
pub fn run() -> Result<u8> {
    let mut orders = String::new();
    let read = std::io::stdin().read_to_string(&mut orders);
    for group in left_behind(&orders) {
        // Most groups are gone with their worker.
        let _ = kill_process_group(group, Signal::KILL);
    }
    match read {
        Ok(_) => Ok(0),
        Err(error) => Err(Error::system("reading the launcher's orders", error)),
    }
}

/// The groups in what the launcher wrote, none if it took leave.
fn left_behind(orders: &str) -> Vec<Pid> {
    if orders.lines().any(|line| line == DONE) {
        return Vec::new();
    }
    // A line without an end was cut off by the launcher's death: the number may be incomplete.
    // Its worker was told by the kernel.
    orders
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n')?.parse().ok())
        // The guard itself is in no worker's group; 0 and 1 would mean its own and everybody's.
        .filter(|&number: &i32| number > 1)
        .filter_map(Pid::from_raw)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(orders: &str) -> Vec<i32> {
        left_behind(orders)
            .into_iter()
            .map(|pid| pid.as_raw_nonzero().get())
            .collect()
    }

    #[test]
    fn a_launcher_that_takes_leave_leaves_nothing_behind() {
        assert_eq!(numbers("10\n11\ndone\n"), [0; 0]);
        assert_eq!(numbers(""), [0; 0]);
    }

    #[test]
    fn groups_of_a_dead_launcher_are_left_behind() {
        assert_eq!(numbers("10\n11\n"), [10, 11]);
    }

    #[test]
    fn half_a_number_and_numbers_with_another_meaning_are_never_killed() {
        assert_eq!(numbers("4711\n47"), [4711]);
        assert_eq!(numbers("0\n1\n-5\nx\n99999999999\n12\n"), [12]);
    }
}
