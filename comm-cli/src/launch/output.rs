//! Passes the output of all workers on, line by line, on a thread of its own.
//!
//! Of its own, because a terminal or pager that does not take our output must not keep the launcher
//! from noticing that a worker died. The workers do wait then, as if they wrote to it themselves.
//! When the launcher's stream is broken (nobody reads it any more, a full disk), the workers' ends
//! of it are closed, so that they see a broken pipe as well.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use comm_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::lines::Lines;
use super::say;
use super::spawn::Streams;

/// What one read takes at most; as much as a pipe holds by default.
const READ_BYTES: usize = 64 << 10;

/// The running thread.
#[derive(Debug)]
pub(super) struct Output {
    /// Closed when the thread has passed everything on.
    done: PipeReader,
    /// Closing it tells the thread that all workers have ended.
    _workers_run: PipeWriter,
}

/// Which of the launcher's own streams something goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    Stdout,
    Stderr,
}

/// One stream of one worker.
#[derive(Debug)]
struct Source {
    pipe: OwnedFd,
    sink: Sink,
    lines: Lines,
}

impl Output {
    /// Starts to pass on what the workers write, with `[rank] ` in front if `prefixed`.
    ///
    /// # Errors
    ///
    /// When pipes or threads run out.
    pub(super) fn start(streams: Vec<Streams>, prefixed: bool) -> Result<Self> {
        let mut sources = Vec::with_capacity(2 * streams.len());
        for Streams {
            rank,
            stdout,
            stderr,
        } in streams
        {
            let prefix = if prefixed {
                format!("[{rank}] ")
            } else {
                String::new()
            };
            let ends = [
                (OwnedFd::from(stdout), Sink::Stdout),
                (stderr.into(), Sink::Stderr),
            ];
            for (pipe, sink) in ends {
                // Our end only: the worker's end is another open file.
                rustix::io::ioctl_fionbio(&pipe, true)
                    .map_err(|error| Error::system("preparing a worker's output pipe", error))?;
                sources.push(Source {
                    pipe,
                    sink,
                    lines: Lines::new(prefix.as_str()),
                });
            }
        }
        let pipe = || io::pipe().map_err(|error| Error::system("creating a pipe", error));
        let (done, when_done) = pipe()?;
        let (ended, workers_run) = pipe()?;
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || {
                pass_on(sources, &ended);
                drop(when_done);
            })
            .map_err(|error| Error::system("starting the output thread", error))?;
        Ok(Self {
            done,
            _workers_run: workers_run,
        })
    }

    /// Says that no worker writes any more and returns a descriptor that becomes readable when what
    /// they wrote is passed on. Dropping it gives up on what is not passed on yet.
    pub(super) fn finish(self) -> PipeReader {
        self.done
    }
}

/// Runs until all sources are at their end, or `ended` is and they are empty.
fn pass_on(mut sources: Vec<Source>, ended: &PipeReader) {
    let mut buffer = vec![0; READ_BYTES];
    let mut last_round = false;
    while !sources.is_empty() && !last_round {
        let mut fds: Vec<PollFd<'_>> = sources
            .iter()
            .map(|source| source.pipe.as_fd())
            .chain([ended.as_fd()])
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return say(format_args!("cannot wait for output: {error}")),
        }
        last_round = fds.last().is_some_and(|fd| !fd.revents().is_empty());
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);

        let mut broken = Vec::new();
        let mut ready = ready.into_iter();
        sources.retain_mut(|source| {
            if !ready.next().unwrap_or(false) && !last_round {
                return true;
            }
            let mut text = Vec::new();
            let goes_on = if last_round {
                source.read_rest(&mut buffer, &mut text);
                false
            } else {
                source.read(&mut buffer, &mut text)
            };
            if !broken.contains(&source.sink)
                && let Err(error) = source.sink.write(&text)
            {
                source.sink.complain(error);
                broken.push(source.sink);
            }
            goes_on
        });
        sources.retain(|source| !broken.contains(&source.sink));
    }
}

impl Source {
    /// Reads once and appends whole lines to `text`. Returns whether more may come.
    fn read(&mut self, buffer: &mut [u8], text: &mut Vec<u8>) -> bool {
        match rustix::io::read(&self.pipe, &mut *buffer) {
            Ok(length) if length > 0 => {
                self.lines.push(&buffer[..length], text);
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            // The end; no other errors are known for a pipe.
            Ok(_) | Err(_) => {
                self.lines.finish(text);
                false
            }
        }
    }

    /// Reads what is in the pipe at this moment and no more: a process that has escaped from its
    /// group may go on writing for ever.
    fn read_rest(&mut self, buffer: &mut [u8], text: &mut Vec<u8>) {
        let mut left = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
        while left > 0 {
            match rustix::io::read(&self.pipe, &mut *buffer) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(length) => {
                    self.lines.push(&buffer[..length], text);
                    left = left.saturating_sub(length as u64);
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.lines.finish(text);
    }
}

impl Sink {
    /// Writes all of `text`, waiting for whoever reads it.
    fn write(self, mut text: &[u8]) -> rustix::io::Result<()> {
        let (stdout, stderr);
        let fd: BorrowedFd<'_> = match self {
            Self::Stdout => {
                stdout = io::stdout();
                stdout.as_fd()
            }
            Self::Stderr => {
                stderr = io::stderr();
                stderr.as_fd()
            }
        };
        while !text.is_empty() {
            match rustix::io::write(fd, text) {
                Ok(length) => text = &text[length..],
                Err(Errno::INTR) => {}
                // Somebody who shares our terminal has made it non-blocking.
                Err(Errno::AGAIN) => {
                    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn complain(self, error: Errno) {
        let name = match self {
            Self::Stdout => "standard output",
            Self::Stderr => "standard error",
        };
        // A reader that has seen enough (`| head`) is no error.
        if error != Errno::PIPE {
            say(format_args!(
                "cannot write to {name}: {error}; closing the workers' pipes to it"
            ));
        }
    }
}
