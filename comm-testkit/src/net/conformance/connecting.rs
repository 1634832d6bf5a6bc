//! N1 to N3.

use std::convert::Infallible;

use comm_core::net::MAX_HANDLE_BYTES;
use comm_core::{ErrorKind, Result};

use crate::net::{NetFixture, Rig};

/// A listener's handle is short, and with it a connection comes about that carries a message.
///
/// # Errors
///
/// What the backend says instead.
pub fn n1_a_connection_goes_from_connect_to_accept<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::unconnected::<F>()?;
    let listener = rig.receiver.listen(0)?;
    assert!(
        listener.handle().len() <= MAX_HANDLE_BYTES,
        "the handle is too long"
    );
    drop(listener);
    let (send, recv) = rig.connect()?;
    (rig.send, rig.recv) = (Some(send), Some(recv));
    let (from, to) = (rig.send_buffer(b"hello")?, rig.recv_buffer(5)?);
    let (sent, received) = (rig.isend(&from)?, rig.irecv(&to)?);
    assert_eq!(rig.received(&received)?, 5);
    assert_eq!(rig.sent(&sent)?, 5);
    assert_eq!(to.contents(), b"hello");
    Ok(())
}

/// Two connects to one listener are two connections, which do not share messages.
///
/// # Errors
///
/// What the backend says instead.
pub fn n1_every_connect_is_accepted_once<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::unconnected::<F>()?;
    let mut listener = rig.receiver.listen(0)?;
    let mut connects = [
        rig.sender.connect(0, listener.handle())?,
        rig.sender.connect(0, listener.handle())?,
    ];
    let mut sends = Vec::new();
    for connect in &mut connects {
        sends.push(rig.wait("a connect", || connect.poll())?);
    }
    let recvs = [
        rig.wait("the first", || listener.accept())?,
        rig.wait("the second", || listener.accept())?,
    ];
    assert!(
        listener.accept()?.is_none(),
        "a connection came from nowhere"
    );

    let mut seen = Vec::new();
    let mut requests = Vec::new();
    for (number, send) in (1_u8..).zip(sends) {
        let from = rig.send_buffer(&[number])?;
        rig.send = Some(send);
        requests.push((rig.isend(&from)?, rig.send.take()));
    }
    for recv in recvs {
        let to = rig.recv_buffer(1)?;
        rig.recv = Some(recv);
        let request = rig.irecv(&to)?;
        assert_eq!(rig.received(&request)?, 1);
        seen.extend(to.contents());
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2], "each connection carries its own message");
    Ok(())
}

/// `accept` and `test` say `None` while there is nothing, rather than wait.
///
/// # Errors
///
/// What the backend says instead.
pub fn n2_nobody_there_is_none_not_a_wait<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    assert!(rig.receiver.listen(0)?.accept()?.is_none());
    let to = rig.recv_buffer(8)?;
    let request = rig.irecv(&to)?;
    rig.receiver.progress()?;
    assert_eq!(rig.recv()?.test(&request)?, None);
    Ok(())
}

/// Whoever connects to a listener that is gone gets an error, at the connect or soon after.
///
/// # Errors
///
/// What the backend says instead.
pub fn n3_a_dropped_listener_refuses<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::unconnected::<F>()?;
    let handle = rig.receiver.listen(0)?.handle().to_vec();
    // Networks may notice only when something is sent, or after some of it.
    let refused = rig.sender.connect(0, &handle).and_then(|mut connect| {
        rig.send = Some(rig.wait("a refusal", || connect.poll())?);
        let from = rig.send_buffer(&[0])?;
        loop {
            let request = rig.isend(&from)?;
            rig.sent(&request)?;
        }
    });
    let error = refused.map_or_else(|error| error, |never: Infallible| match never {});
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    Ok(())
}

/// Bytes that are no handle of this network are refused, not followed.
///
/// # Errors
///
/// What the backend says instead.
pub fn n3_a_handle_of_another_network_is_refused<F: NetFixture>() -> Result<()> {
    let rig = Rig::unconnected::<F>()?;
    for handle in [&b""[..], b"x", &[0xFF; 64], &[0; MAX_HANDLE_BYTES + 1]] {
        let error = rig
            .sender
            .connect(0, handle)
            .expect_err("this is no handle");
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    }
    let devices = rig.sender.devices().len();
    let handle = rig.receiver.listen(0)?.handle().to_vec();
    let error = rig
        .sender
        .connect(devices, &handle)
        .expect_err("there is no such device");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let error = rig
        .receiver
        .listen(usize::MAX)
        .expect_err("there is no such device");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    Ok(())
}
