//! How a worker ended, as an exit code and in words.

use std::fmt;

use rustix::process::WaitIdStatus;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal.
    Killed {
        /// The signal's number.
        signal: i32,
        /// Whether the kernel wrote a core dump.
        dumped: bool,
    },
}

impl Status {
    /// Reads the answer of `waitid`; `None` when the process has not ended.
    pub(super) fn from_wait(status: &WaitIdStatus) -> Option<Self> {
        if let Some(code) = status.exit_status() {
            return Some(Self::Exited(code));
        }
        let signal = status.terminating_signal()?;
        Some(Self::Killed {
            signal,
            dumped: status.dumped(),
        })
    }

    /// Whether the worker ended as it should.
    pub(super) fn is_success(self) -> bool {
        self == Self::Exited(0)
    }

    /// The exit code by which a shell would tell this: 128 + the signal.
    pub(super) fn code(self) -> u8 {
        let code = match self {
            Self::Exited(code) => code,
            Self::Killed { signal, .. } => 128 + signal,
        };
        // The kernel keeps 8 bits of an exit code, and the highest signal is 64.
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Killed { signal, dumped } => {
                write!(f, "was killed by {}", SignalName(signal))?;
                if dumped {
                    f.write_str(" (core dumped)")
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// Prints a signal number as its name.
pub(super) struct SignalName(pub(super) i32);

impl fmt::Display for SignalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            libc::SIGABRT => "SIGABRT",
            libc::SIGALRM => "SIGALRM",
            libc::SIGBUS => "SIGBUS",
            libc::SIGFPE => "SIGFPE",
            libc::SIGHUP => "SIGHUP",
            libc::SIGILL => "SIGILL",
            libc::SIGINT => "SIGINT",
            libc::SIGKILL => "SIGKILL",
            libc::SIGPIPE => "SIGPIPE",
            libc::SIGQUIT => "SIGQUIT",
            libc::SIGSEGV => "SIGSEGV",
            libc::SIGSYS => "SIGSYS",
            libc::SIGTERM => "SIGTERM",
            libc::SIGTRAP => "SIGTRAP",
            libc::SIGUSR1 => "SIGUSR1",
            libc::SIGUSR2 => "SIGUSR2",
            libc::SIGXCPU => "SIGXCPU",
            libc::SIGXFSZ => "SIGXFSZ",
            number => return write!(f, "signal {number}"),
        };
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_shell() {
        assert_eq!(Status::Exited(3).code(), 3);
        assert_eq!(
            Status::Killed {
                signal: libc::SIGKILL,
                dumped: false
            }
            .code(),
            137
        );
        assert!(Status::Exited(0).is_success());
        assert!(
            !Status::Killed {
                signal: libc::SIGTERM,
                dumped: false
            }
            .is_success()
        );
    }

    #[test]
    fn the_text_names_the_signal() {
        let crashed = Status::Killed {
            signal: libc::SIGSEGV,
            dumped: true,
        };
        assert_eq!(crashed.to_string(), "was killed by SIGSEGV (core dumped)");
        let strange = Status::Killed {
            signal: 40,
            dumped: false,
        };
        assert_eq!(strange.to_string(), "was killed by signal 40");
    }
}
