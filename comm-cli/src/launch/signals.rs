//! The signals that the launcher is sent, as a file descriptor.
//!
//! A blocked signal stays pending until it is read from a signalfd, so there is no handler, no
//! code that runs at an arbitrary point and no race between a check and going to sleep. A signal
//! that was ignored when the launcher started (`nohup`) stays ignored.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use comm_core::{Error, ErrorKind, Result};

/// Signals that ask the job to end.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// Signals that only the workers know the meaning of.
const FORWARDED: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// The job is asked to end.
    Ending(i32),
    /// To be passed on without further meaning.
    Forwarded(i32),
}

/// The set of signals that a thread holds back.
#[derive(Clone, Copy)]
pub(super) struct Mask(libc::sigset_t);

impl Mask {
    /// Makes this the mask of the calling thread. Safe to call between fork and exec.
    ///
    /// # Errors
    ///
    /// Never for a mask that was in force before.
    pub(super) fn apply(&self) -> io::Result<()> {
        // SAFETY: an initialised set; the mask in force so far is not asked for.
        let code = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
        if code == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(code))
        }
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mask").finish_non_exhaustive()
    }
}

/// Receives the signals of this process instead of their default actions.
///
/// They are blocked for the calling thread and the threads that it starts, until this is dropped.
#[derive(Debug)]
pub(super) struct Signals {
    fd: OwnedFd,
    previous: Mask,
    /// The mask belongs to the thread that changed it.
    not_send: PhantomData<*const ()>,
}

impl Signals {
    /// Blocks the signals and opens the descriptor.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub(super) fn block() -> Result<Self> {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the pointer is valid for a write of a `sigset_t`.
        unsafe { libc::sigemptyset(mask.as_mut_ptr()) };
        // SAFETY: `sigemptyset` has initialised it; it cannot fail with a valid pointer.
        let mut mask = unsafe { mask.assume_init() };
        for signal in ENDING.into_iter().chain(FORWARDED) {
            // SAFETY: the pointer is valid and the set initialised.
            unsafe { libc::sigaddset(&raw mut mask, signal) };
        }

        // SAFETY: a valid set; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const mask, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(Error::system(
                "opening a signalfd",
                io::Error::last_os_error(),
            ));
        }
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };

        let mut previous = MaybeUninit::<libc::sigset_t>::uninit();
        let changed =
            // SAFETY: both pointers are valid, the first for reads, the second for writes.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, previous.as_mut_ptr()) };
        if changed != 0 {
            let error = io::Error::from_raw_os_error(changed);
            return Err(Error::system("blocking signals", error));
        }
        // SAFETY: `pthread_sigmask` succeeded and has written the previous mask.
        let previous = unsafe { previous.assume_init() };
        Ok(Self {
            fd,
            previous: Mask(previous),
            not_send: PhantomData,
        })
    }

    /// The mask that was in force before. A child inherits the blocked signals and has to apply
    /// this before it becomes another program.
    pub(super) fn mask_before(&self) -> Mask {
        self.previous
    }

    /// The next signal that has arrived, if any; never blocks.
    ///
    /// # Errors
    ///
    /// When reading fails, which the kernel does not do to a valid descriptor.
    pub(super) fn next(&self) -> Result<Option<Arrived>> {
        let mut record = [0_u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.fd, &mut record) {
                Ok(length) if length == record.len() => break,
                Ok(_) => {
                    return Err(Error::new(
                        ErrorKind::Internal,
                        "a signalfd gave half a record",
                    ));
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::system("reading a signalfd", error)),
            }
        }
        // The record starts with the signal's number as a 32-bit word.
        let [a, b, c, d, ..] = record;
        let signal = i32::from_ne_bytes([a, b, c, d]);
        let arrived = if FORWARDED.contains(&signal) {
            Arrived::Forwarded(signal)
        } else {
            Arrived::Ending(signal)
        };
        Ok(Some(arrived))
    }
}

impl AsFd for Signals {
    /// Readable when a signal has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Cannot fail: `Signals` stays on the thread that had this mask before.
        let _ = self.previous.apply();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_this_thread_is_read_in_place_of_its_action() {
        let signals = Signals::block().unwrap();
        assert_eq!(signals.next().unwrap(), None);
        for (signal, wanted) in [
            (libc::SIGINT, Arrived::Ending(libc::SIGINT)),
            (libc::SIGUSR1, Arrived::Forwarded(libc::SIGUSR1)),
        ] {
            // SAFETY: no pointers. The signal goes to this thread, which blocks it; the other
            // threads of the test program do not.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
            assert_eq!(signals.next().unwrap(), Some(wanted));
        }
        assert_eq!(signals.next().unwrap(), None);
    }
}
