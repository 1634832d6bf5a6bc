//! Decides what happens to the job when a worker ends, a signal arrives or time passes.
//!
//! Pure: it is told the time and returns what to do, so every course of events can be tested
//! without processes. The stages of a job:
//!
//! ```text
//! running --failure--> grace --grace over--> SIGTERM --3 s--> SIGKILL --10 s--> given up
//!    \--second ending signal (from any stage)---------------> SIGKILL
//! ```
//!
//! After an ending signal was passed on, workers end at their own pace, e.g. rank 0 writes a
//! checkpoint while the others are gone. The stage `grace` then lasts at least [`AFTER_SIGNAL`].

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::signals::Arrived;
use super::status::{SignalName, Status};

/// From SIGTERM to SIGKILL.
const TO_TERMINATE: Duration = Duration::from_secs(3);
/// From SIGKILL to giving up. Only a process stuck in the kernel (a dead NFS server, a wedged
/// driver) survives SIGKILL, and no further wait would help.
const TO_BE_KILLED: Duration = Duration::from_secs(10);
/// The least grace after a signal was passed on.
const AFTER_SIGNAL: Duration = Duration::from_secs(30);

/// What to do now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    /// Send this to the process groups of all workers.
    pub(super) send: Option<Signal>,
    /// Tell the user.
    pub(super) say: Option<String>,
}

/// What has been decided so far.
#[derive(Debug)]
pub(super) struct Policy {
    grace: Duration,
    running: u32,
    stage: Stage,
    /// The last signal by which the job was asked to end.
    asked_to_end: Option<i32>,
    /// The first worker that failed.
    failure: Option<Failure>,
    /// Set when the user lost patience and nothing had failed before.
    killed_by_user: Option<u8>,
}

#[derive(Debug)]
struct Failure {
    /// Who failed and how.
    what: String,
    code: u8,
    /// Whether it was the last one running, so that nothing follows its message.
    alone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Grace { until: Instant },
    Terminating { until: Instant },
    Killing { until: Instant },
    GivenUp,
}

impl Policy {
    /// A job of `workers` that have just been started.
    pub(super) fn new(workers: u32, grace: Duration) -> Self {
        Self {
            grace,
            running: workers,
            stage: Stage::Running,
            asked_to_end: None,
            failure: None,
            killed_by_user: None,
        }
    }

    /// Worker `rank` has ended.
    pub(super) fn worker_ended(
        &mut self,
        rank: u32,
        pid: i32,
        status: Status,
        now: Instant,
    ) -> Decision {
        self.running -= 1;
        let known = self.failure.is_some() || self.killed_by_user.is_some();
        if status.is_success() || known {
            return Decision::default();
        }
        let what = format!("rank {rank} (pid {pid}) {status}");
        let mut say = what.clone();
        if self.stage == Stage::Running {
            let grace = match self.asked_to_end {
                Some(_) => self.grace.max(AFTER_SIGNAL),
                None => self.grace,
            };
            if self.running > 0 {
                let _ = write!(
                    say,
                    "; {} other worker(s) may go on for {grace:?}",
                    self.running
                );
            }
            // A grace beyond what the clock can hold never ends.
            let until = now
                .checked_add(grace)
                .unwrap_or(now + Duration::from_secs(1 << 30));
            self.stage = Stage::Grace { until };
        }
        self.failure = Some(Failure {
            what,
            code: status.code(),
            alone: self.running == 0,
        });
        Decision {
            send: None,
            say: Some(say),
        }
    }

    /// The launcher was sent a signal.
    pub(super) fn signal_arrived(&mut self, signal: Arrived, now: Instant) -> Decision {
        let signal = match signal {
            Arrived::Forwarded(signal) => {
                return Decision {
                    send: Signal::from_named_raw(signal),
                    say: None,
                };
            }
            Arrived::Ending(signal) => signal,
        };
        let name = SignalName(signal);
        if self.asked_to_end.replace(signal).is_none() {
            return Decision {
                send: Signal::from_named_raw(signal),
                say: Some(format!(
                    "passing {name} on to {} worker(s); a second one kills them",
                    self.running
                )),
            };
        }
        if self.failure.is_none() {
            self.killed_by_user = Some(u8::try_from(128 + signal).unwrap_or(u8::MAX));
        }
        self.kill(
            format!("second signal ({name}): killing {} worker(s)", self.running),
            now,
        )
    }

    /// Time has passed; to be called after [`deadline`](Self::deadline).
    pub(super) fn time_passed(&mut self, now: Instant) -> Decision {
        match self.stage {
            Stage::Grace { until } if now >= until => {
                self.stage = Stage::Terminating {
                    until: now + TO_TERMINATE,
                };
                Decision {
                    send: Some(Signal::TERM),
                    say: Some(format!("sending SIGTERM to {} worker(s)", self.running)),
                }
            }
            Stage::Terminating { until } if now >= until => self.kill(
                format!("killing {} worker(s) that ignore SIGTERM", self.running),
                now,
            ),
            Stage::Killing { until } if now >= until => {
                self.stage = Stage::GivenUp;
                Decision::default()
            }
            _ => Decision::default(),
        }
    }

    fn kill(&mut self, say: String, now: Instant) -> Decision {
        self.stage = Stage::Killing {
            until: now + TO_BE_KILLED,
        };
        Decision {
            send: Some(Signal::KILL),
            say: Some(say),
        }
    }

    /// When [`time_passed`](Self::time_passed) has something to decide.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Running | Stage::GivenUp => None,
            Stage::Grace { until } | Stage::Terminating { until } | Stage::Killing { until } => {
                Some(until)
            }
        }
    }

    /// Whether there is nothing more to wait for.
    pub(super) fn is_over(&self) -> bool {
        self.running == 0 || self.stage == Stage::GivenUp
    }

    /// Whether workers are left that not even SIGKILL has ended.
    pub(super) fn has_given_up(&self) -> bool {
        self.stage == Stage::GivenUp
    }

    /// The exit code of the launcher.
    pub(super) fn exit_code(&self) -> u8 {
        let failed = self.failure.as_ref().map(|failure| failure.code);
        self.killed_by_user.or(failed).unwrap_or(0)
    }

    /// What ended the job, once more: the first message is far above by the time the other workers
    /// have printed their errors. Nothing when the user ended it.
    pub(super) fn summary(&self) -> Option<String> {
        let failure = self.failure.as_ref().filter(|failure| !failure.alone)?;
        if self.asked_to_end.is_some() {
            return None;
        }
        Some(format!(
            "{} first; exit code {}",
            failure.what, failure.code
        ))
    }
}

#[cfg(test)]
mod tests;
