//! N9 to N12.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use comm_core::device::{Device, DeviceMemory, HostDevice};
use comm_core::net::{Quiesce, Region};
use comm_core::{Error, ErrorKind, Result};

use super::messages::settle;
use crate::net::{NetFixture, Rig};

/// Slices of regions that another backend registered are refused, without effect.
///
/// # Errors
///
/// What the backend says instead.
pub fn n9_memory_of_another_backend_is_refused<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let (own, foreign) = (rig.send_buffer(b"own")?, rig.recv_buffer(3)?);
    // SAFETY: the buffer is not written to.
    let error = unsafe { rig.send()?.isend(foreign.slice()) }.expect_err("it is not ours");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    // SAFETY: the buffer is not looked at.
    let error = unsafe { rig.recv()?.irecv(own.slice()) }.expect_err("it is not ours");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");

    let (sent, received) = (rig.isend(&own)?, rig.irecv(&foreign)?);
    assert_eq!(rig.received(&received)?, 3);
    assert_eq!(rig.sent(&sent)?, 3);
    assert_eq!(foreign.contents(), b"own");
    Ok(())
}

/// Later messages do not reach a buffer whose receive is done, nor read one whose send is done.
///
/// # Errors
///
/// What the backend says instead.
pub fn n10_memory_is_left_alone_after_the_request_is_done<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let (from, first) = (rig.send_buffer(&[1; 1000])?, rig.recv_buffer(1000)?);
    let (sent, received) = (rig.isend(&from)?, rig.irecv(&first)?);
    rig.sent(&sent)?;
    // The send is done, so its buffer is ours again, whether or not the message has arrived.
    from.fill(&[2; 1000]);
    assert_eq!(rig.received(&received)?, 1000);
    assert_eq!(first.contents(), [1; 1000]);
    first.fill(&[0xEE; 1000]);
    let second = rig.recv_buffer(1000)?;
    let (sent, received) = (rig.isend(&from)?, rig.irecv(&second)?);
    assert_eq!(rig.received(&received)?, 1000);
    rig.sent(&sent)?;
    settle(&rig)?;
    assert_eq!(second.contents(), [2; 1000]);
    first.check_untouched_behind(0)
}

/// After `Quiesced`, nothing that the peer does changes the memory of withdrawn receives.
///
/// # Errors
///
/// What the backend says instead.
pub fn n11_quiesced_memory_is_left_alone<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let to = rig.recv_buffer(1000)?;
    let _withdrawn = rig.irecv(&to)?;
    quiesce_recv(&mut rig)?;
    to.fill(&[0xEE; 1000]);
    let from = rig.send_buffer(&[1; 1000])?;
    // Whether the sender knows already is a matter of time.
    let _ = rig.isend(&from).and_then(|request| rig.sent(&request));
    settle(&rig)?;
    to.check_untouched_behind(0)
}

/// From the first `quiesce` on, the end fails with `Cancelled`; `cancels_at_once` is kept.
///
/// # Errors
///
/// What the backend says instead.
pub fn n11_quiescing_fails_the_connection<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let to = rig.recv_buffer(10)?;
    let request = rig.irecv(&to)?;
    let answer = rig.recv()?.quiesce(Instant::now());
    if rig.receiver.devices()[0].cancels_at_once {
        assert_eq!(answer, Quiesce::Quiesced);
    }
    let error = rig
        .recv()?
        .test(&request)
        .expect_err("the request was withdrawn");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    // SAFETY: nobody looks at the buffer.
    let error = unsafe { rig.recv()?.irecv(to.slice()) }.expect_err("the end has failed");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    quiesce_recv(&mut rig)?;

    quiesce_send(&mut rig)?;
    let from = rig.send_buffer(&[1])?;
    // SAFETY: nobody writes to the buffer.
    let error = unsafe { rig.send()?.isend(from.slice()) }.expect_err("the end has failed");
    assert!(
        matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::PeerDied),
        "{error}"
    );
    Ok(())
}

/// The memory of an outstanding request lives on when its owner lets go, and is released once the
/// connection has quiesced and is dropped.
///
/// # Errors
///
/// What the backend says instead.
pub fn n12_requests_keep_their_memory_alive<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let memory = HostDevice.alloc(4096)?;
    let owner = Arc::new(memory.clone());
    let kept: Arc<DeviceMemory> = Arc::clone(&owner);
    // SAFETY: `kept` owns the memory and nobody accesses it.
    let memory =
        unsafe { DeviceMemory::from_raw_parts(memory.as_ptr(), 4096, memory.kind(), kept) };
    let region = rig.receiver.register(0, Region::new(memory))?;
    let slice = region.slice(0, 4096)?;
    let mut recv = rig
        .recv
        .take()
        .unwrap_or_else(|| unreachable!("the rig is connected"));
    // SAFETY: nobody accesses the memory.
    let _request = rig.wait("room for a receive", || unsafe { recv.irecv(&slice) })?;
    drop((slice, region));
    assert_eq!(
        Arc::strong_count(&owner),
        2,
        "the request must keep its memory alive"
    );
    rig.recv = Some(recv);
    quiesce_recv(&mut rig)?;
    rig.recv = None;
    until(
        "the memory's release",
        || Ok(Arc::strong_count(&owner) == 1),
    )
}

fn quiesce_recv(rig: &mut Rig) -> Result<()> {
    let end = rig.recv()?;
    until("the receiving end to quiesce", || {
        Ok(end.quiesce(soon()) == Quiesce::Quiesced)
    })
}

fn quiesce_send(rig: &mut Rig) -> Result<()> {
    let end = rig.send()?;
    until("the sending end to quiesce", || {
        Ok(end.quiesce(soon()) == Quiesce::Quiesced)
    })
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(100)
}

/// Looks every millisecond, for a minute at most.
fn until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..60_000 {
        if done()? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(Error::new(
        ErrorKind::Timeout,
        "the network did not do what it promised",
    )
    .with("waiting_for", what))
}
