//! N13 and N14.

use comm_core::net::Request;
use comm_core::{Error, ErrorKind, Result};

use super::messages::settle;
use crate::net::{NetFixture, Payload, Rig};

/// Wrong arguments are refused and change nothing: messages before and after go through.
///
/// # Errors
///
/// What the backend says instead.
pub fn n13_invalid_arguments_have_no_effect<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    for round in 0..3 {
        let contents = Payload::new(13).bytes(round, 50);
        let (from, to) = (rig.send_buffer(&contents)?, rig.recv_buffer(50)?);
        let received = rig.irecv(&to)?;
        let unknown = Request::from_token(u64::MAX - round);
        let error = rig
            .recv()?
            .test(&unknown)
            .expect_err("there is no such request");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let error = rig
            .send()?
            .test(&unknown)
            .expect_err("there is no such request");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let sent = rig.isend(&from)?;
        assert_eq!(rig.received(&received)?, 50);
        rig.sent(&sent)?;
        assert_eq!(to.contents(), contents);
    }
    Ok(())
}

/// A connection that fails, here by truncation, leaves another one between the same backends
/// alone.
///
/// # Errors
///
/// What the backend says instead.
pub fn n13_one_failed_connection_harms_no_other<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let other = rig.connect()?;
    let (from, short) = (rig.send_buffer(&[3; 100])?, rig.recv_buffer(10)?);
    let (received, _sent) = (rig.irecv(&short)?, rig.isend(&from)?);
    let first = error_of(rig.received(&received));
    let again = error_of(rig.recv()?.test(&received));
    assert_eq!(first.kind(), again.kind(), "{first}, then {again}");

    (rig.send, rig.recv) = (Some(other.0), Some(other.1));
    let to = rig.recv_buffer(100)?;
    let (received, sent) = (rig.irecv(&to)?, rig.isend(&from)?);
    assert_eq!(rig.received(&received)?, 100);
    rig.sent(&sent)?;
    assert_eq!(to.contents(), [3; 100]);
    Ok(())
}

/// A receiver whose peer is dropped wakes up with `PeerDied`, and stays failed.
///
/// # Errors
///
/// What the backend says instead.
pub fn n14_a_dropped_sender_fails_the_receiver<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let to = rig.recv_buffer(10)?;
    let received = rig.irecv(&to)?;
    settle(&rig)?;
    rig.send = None;
    assert_eq!(
        error_of(rig.received(&received)).kind(),
        ErrorKind::PeerDied
    );
    assert_eq!(error_of(rig.irecv(&to)).kind(), ErrorKind::PeerDied);
    Ok(())
}

/// A sender whose peer is dropped wakes up with `PeerDied`, and stays failed.
///
/// # Errors
///
/// What the backend says instead.
pub fn n14_a_dropped_receiver_fails_the_sender<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let from = rig.send_buffer(&[0; 100_000])?;
    rig.recv = None;
    let error = loop {
        match rig.isend(&from).and_then(|request| rig.sent(&request)) {
            // The network may buffer some messages.
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    assert_eq!(error_of(rig.isend(&from)).kind(), ErrorKind::PeerDied);
    Ok(())
}

/// What was sent before the sender was dropped arrives before the failure.
///
/// # Errors
///
/// What the backend says instead.
pub fn n14_messages_that_were_sent_before_are_received<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let payload = Payload::new(14);
    let room = rig.receiver.devices()[0].max_outstanding.min(3);
    let buffers = (0..room)
        .map(|_| rig.recv_buffer(500))
        .collect::<Result<Vec<_>>>()?;
    let last = rig.recv_buffer(500)?;
    let mut receives = Vec::new();
    for (number, to) in (0..).zip(&buffers) {
        receives.push(rig.irecv(to)?);
        let from = rig.send_buffer(&payload.bytes(number, 500))?;
        let sent = rig.isend(&from)?;
        rig.sent(&sent)?;
    }
    rig.send = None;
    settle(&rig)?;
    for (number, (request, to)) in (0..).zip(receives.iter().zip(&buffers)) {
        assert_eq!(rig.received(request)?, 500);
        payload.check(number, &to.contents());
    }
    let outcome = rig.irecv(&last).and_then(|request| rig.received(&request));
    assert_eq!(error_of(outcome).kind(), ErrorKind::PeerDied);
    Ok(())
}

fn error_of<T: std::fmt::Debug>(outcome: Result<T>) -> Error {
    outcome.expect_err("the connection should have failed")
}
