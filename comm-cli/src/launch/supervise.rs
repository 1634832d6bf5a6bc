//! The launcher's main loop: sleeps until something happens and carries out what the policy says.

use std::io::PipeReader;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use comm_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::output::Output;
use super::policy::{Decision, Policy};
use super::say;
use super::signals::{Arrived, Signals};
use super::spawn::Worker;
use super::status::Status;

/// Waits until all workers have ended and their output is passed on; returns the exit code.
///
/// # Errors
///
/// When a system call fails that should not; dropping the workers kills them then.
pub(super) fn until_the_end(
    workers: Vec<Worker>,
    signals: &Signals,
    output: Output,
    mut policy: Policy,
) -> Result<u8> {
    let mut running: Vec<&Worker> = workers.iter().collect();
    while !policy.is_over() {
        let fds = running.iter().map(|worker| worker.as_fd());
        wait(fds.chain([signals.as_fd()]), policy.deadline())?;

        while let Some(signal) = signals.next()? {
            carry_out(&policy.signal_arrived(signal, Instant::now()), &workers);
        }
        for (worker, status) in take_ended(&mut running)? {
            let pid = worker.pid().as_raw_nonzero().get();
            let decision = policy.worker_ended(worker.rank(), pid, status, Instant::now());
            carry_out(&decision, &workers);
        }
        carry_out(&policy.time_passed(Instant::now()), &workers);
    }
    for worker in &running {
        say(format_args!(
            "rank {} (pid {}) cannot be killed: it is stuck in the kernel",
            worker.rank(),
            worker.pid().as_raw_nonzero()
        ));
    }
    if policy.has_given_up() {
        // Dropping them would wait for their end.
        workers.into_iter().for_each(std::mem::forget);
    } else {
        // Kills what they have left running in their groups, so that nobody writes any more.
        drop(workers);
    }
    drain(&output.finish(), signals)?;
    if let Some(summary) = policy.summary() {
        say(summary);
    }
    Ok(policy.exit_code())
}

/// Waits until all output is passed on, or an impatient user sends a signal.
fn drain(done: &PipeReader, signals: &Signals) -> Result<()> {
    loop {
        let ready = wait([done.as_fd(), signals.as_fd()].into_iter(), None)?;
        if ready.first() == Some(&true) {
            return Ok(());
        }
        while let Some(signal) = signals.next()? {
            if matches!(signal, Arrived::Ending(_)) {
                return Ok(());
            }
        }
    }
}

/// How long a worker that was killed may take to be gone after the others have noticed it: the
/// kernel closes its connections before it is done with its memory.
const SETTLE: Duration = Duration::from_millis(20);

/// Removes the workers that have ended from `running`, most telling first: of several that ended
/// at about the same time, one killed by a signal is the cause and one that exited with an error
/// has noticed it.
fn take_ended<'a>(running: &mut Vec<&'a Worker>) -> Result<Vec<(&'a Worker, Status)>> {
    let mut ended = Vec::new();
    look(running, &mut ended)?;
    let only_noticed = ended
        .iter()
        .all(|(_, status)| matches!(status, Status::Exited(_)))
        && ended.iter().any(|(_, status)| !status.is_success());
    if only_noticed && !running.is_empty() {
        std::thread::sleep(SETTLE);
        look(running, &mut ended)?;
    }
    ended.sort_by_key(|(worker, status)| (matches!(status, Status::Exited(_)), worker.rank()));
    Ok(ended)
}

/// Moves those that have ended from `running` to `ended`.
fn look<'a>(running: &mut Vec<&'a Worker>, ended: &mut Vec<(&'a Worker, Status)>) -> Result<()> {
    let mut left = Vec::with_capacity(running.len());
    for worker in running.drain(..) {
        match worker.status()? {
            Some(status) => ended.push((worker, status)),
            None => left.push(worker),
        }
    }
    *running = left;
    Ok(())
}

fn carry_out(decision: &Decision, workers: &[Worker]) {
    if let Some(message) = &decision.say {
        say(message);
    }
    if let Some(signal) = decision.send {
        for worker in workers {
            worker.signal(signal);
            if signal == Signal::TERM {
                // A stopped process would keep it pending.
                worker.signal(Signal::CONT);
            }
        }
    }
}

/// Sleeps until a descriptor is readable or the deadline has passed; says which are readable. May
/// return early.
fn wait<'a>(
    fds: impl Iterator<Item = BorrowedFd<'a>>,
    deadline: Option<Instant>,
) -> Result<Vec<bool>> {
    let mut fds: Vec<PollFd<'a>> = fds
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = deadline.map(|deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(Errno::INTR) => Ok(Vec::new()),
        Err(error) => Err(Error::system("waiting for workers and signals", error)),
    }
}
