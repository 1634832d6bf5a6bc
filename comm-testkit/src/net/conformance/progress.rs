//! N15 and N16. (Every other clause also checks N16: a [`Rig`] sleeps without a timeout.)

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use comm_core::net::WakeSource;
use comm_core::{Armed, Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::net::{NetFixture, Payload, Rig};

/// Messages arrive while another thread calls `progress` and the owners of the ends only test.
///
/// # Errors
///
/// What the backend says instead.
pub fn n15_any_thread_may_drive<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = (Arc::clone(&rig.sender), Arc::clone(&rig.receiver));
    let stopped = Arc::clone(&stop);
    let driver = thread::spawn(move || -> Result<()> {
        while !stopped.load(Ordering::Relaxed) {
            if !(sender.progress()? | receiver.progress()?) {
                thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    });
    let payload = Payload::new(15);
    let outcome = (|| {
        for number in 0..20 {
            let (from, to) = (
                rig.send_buffer(&payload.bytes(number, 9000))?,
                rig.recv_buffer(9000)?,
            );
            let send = rig.send()?;
            // SAFETY: nobody writes to the buffer.
            let sent = spin(|| unsafe { send.isend(from.slice()) })?;
            let recv = rig.recv()?;
            // SAFETY: nobody looks at the buffer before the request is done.
            let received = spin(|| unsafe { recv.irecv(to.slice()) })?;
            assert_eq!(spin(|| recv.test(&received))?, 9000);
            let send = rig.send()?;
            assert_eq!(spin(|| send.test(&sent))?, 9000);
            payload.check(number, &to.contents());
        }
        Ok(())
    })();
    stop.store(true, Ordering::Relaxed);
    let driven = driver.join().unwrap_or_else(|_| {
        Err(Error::new(
            ErrorKind::Internal,
            "the thread that drives has panicked",
        ))
    });
    outcome.and(driven)
}

/// A backend on which nothing happens says `WillRing` and is not readable: a thread can sleep.
///
/// # Errors
///
/// What the backend says instead.
pub fn n16_an_idle_backend_lets_sleep<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let to = rig.recv_buffer(10)?;
    let _pending = rig.irecv(&to)?;
    for backend in [Arc::clone(&rig.sender), Arc::clone(&rig.receiver)] {
        let WakeSource::Fd(fd) = backend.wake_source() else {
            assert_eq!(
                backend.arm()?,
                Armed::Ready,
                "there is no descriptor that could ring"
            );
            println!("skipped the rest: {} has no descriptor", backend.name());
            continue;
        };
        // What is left of connecting may wake a few times.
        let idle = (0..100).any(|_| {
            while matches!(backend.progress(), Ok(true)) {}
            thread::sleep(Duration::from_millis(1));
            matches!(backend.arm(), Ok(Armed::WillRing)) && !readable(fd)
        });
        assert!(idle, "{} never comes to rest", backend.name());
    }
    Ok(())
}

fn readable(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    matches!(
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0
            })
        ),
        Ok(1..)
    )
}

/// Asks until there is an answer, for a minute at most.
fn spin<T>(mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    for _ in 0..600_000 {
        if let Some(value) = ask()? {
            return Ok(value);
        }
        thread::sleep(Duration::from_micros(100));
    }
    Err(Error::new(
        ErrorKind::Timeout,
        "the network does not move although it is driven",
    ))
}
