//! N4 to N8, and puts.

use std::collections::VecDeque;
use std::time::Duration;

use comm_core::net::{RemoteSlice, Request};
use comm_core::{ErrorKind, Result};

use crate::net::{Buffer, NetFixture, Payload, Rig, Rng};

/// Hundreds of messages of all sizes, sent and received at different speeds, arrive whole and in
/// order.
///
/// # Errors
///
/// What the backend says instead.
pub fn n4_messages_arrive_in_order<F: NetFixture>() -> Result<()> {
    const MESSAGES: u64 = 300;
    const LONGEST: usize = 70_000;
    let mut rig = Rig::connected::<F>()?;
    let payload = Payload::new(4);
    let mut rng = Rng::new(44);
    let mut sizes = VecDeque::new();
    let mut sends: VecDeque<(Request, Buffer)> = VecDeque::new();
    let mut recvs: VecDeque<(Request, Buffer)> = VecDeque::new();
    let (mut sent, mut posted, mut received) = (0, 0, 0);
    while received < MESSAGES {
        match rng.below(3) {
            0 if sent < MESSAGES => {
                let bytes = [0, 1, 63, 4096, LONGEST][rng.below(5) as usize];
                let buffer = rig.send_buffer(&payload.bytes(sent, bytes))?;
                // SAFETY: nobody writes to the buffer.
                if let Some(request) = unsafe { rig.send()?.isend(buffer.slice()) }? {
                    sends.push_back((request, buffer));
                    sizes.push_back(bytes);
                    sent += 1;
                }
            }
            1 if posted < MESSAGES => {
                let buffer = rig.recv_buffer(LONGEST)?;
                // SAFETY: nobody looks at the buffer before the request is done.
                if let Some(request) = unsafe { rig.recv()?.irecv(buffer.slice()) }? {
                    recvs.push_back((request, buffer));
                    posted += 1;
                }
            }
            _ => {
                rig.sender.progress()?;
                rig.receiver.progress()?;
                if let Some((request, _)) = sends.front()
                    && rig.send()?.test(request)?.is_some()
                {
                    sends.pop_front();
                }
                if let Some((request, buffer)) = recvs.front()
                    && let Some(bytes) = rig.recv()?.test(request)?
                {
                    assert_eq!(Some(bytes), sizes.pop_front(), "message {received}");
                    payload.check(received, &buffer.contents()[..bytes]);
                    buffer.check_untouched_behind(bytes)?;
                    recvs.pop_front();
                    received += 1;
                }
            }
        }
    }
    Ok(())
}

/// A receive that was posted long before its message gets it.
///
/// # Errors
///
/// What the backend says instead.
pub fn n4_receives_may_be_posted_first<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let to = rig.recv_buffer(3)?;
    let received = rig.irecv(&to)?;
    settle(&rig)?;
    let from = rig.send_buffer(b"abc")?;
    let sent = rig.isend(&from)?;
    assert_eq!(rig.received(&received)?, 3);
    assert_eq!(rig.sent(&sent)?, 3);
    assert_eq!(to.contents(), b"abc");
    Ok(())
}

/// A message that was sent long before its receive was posted is not lost.
///
/// # Errors
///
/// What the backend says instead.
pub fn n4_sends_may_be_posted_first<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let from = rig.send_buffer(b"abc")?;
    let sent = rig.isend(&from)?;
    settle(&rig)?;
    let to = rig.recv_buffer(3)?;
    let received = rig.irecv(&to)?;
    assert_eq!(rig.received(&received)?, 3);
    assert_eq!(rig.sent(&sent)?, 3);
    assert_eq!(to.contents(), b"abc");
    Ok(())
}

/// The receive's `test` gives the message's length, and nothing is written behind it.
///
/// # Errors
///
/// What the backend says instead.
pub fn n5_a_receive_may_be_longer<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    for bytes in [1, 100, 10_000] {
        let contents = Payload::new(5).bytes(0, bytes);
        let (from, to) = (rig.send_buffer(&contents)?, rig.recv_buffer(20_000)?);
        let (sent, received) = (rig.isend(&from)?, rig.irecv(&to)?);
        assert_eq!(rig.received(&received)?, bytes);
        assert_eq!(rig.sent(&sent)?, bytes);
        assert_eq!(to.contents()[..bytes], contents);
        to.check_untouched_behind(bytes)?;
    }
    Ok(())
}

/// Empty messages, also into empty buffers, arrive in their places.
///
/// # Errors
///
/// What the backend says instead.
pub fn n5_empty_messages_are_messages<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let (empty, one) = (rig.send_buffer(b"")?, rig.send_buffer(b"x")?);
    for (from, room, bytes) in [(&empty, 0, 0), (&one, 1, 1), (&empty, 10, 0)] {
        let to = rig.recv_buffer(room)?;
        let (sent, received) = (rig.isend(from)?, rig.irecv(&to)?);
        assert_eq!(rig.received(&received)?, bytes);
        assert_eq!(rig.sent(&sent)?, bytes);
        to.check_untouched_behind(bytes)?;
    }
    Ok(())
}

/// A message that is too long is an error at both ends and is written nowhere outside.
///
/// # Errors
///
/// What the backend says instead.
pub fn n6_a_longer_message_is_truncated<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let from = rig.send_buffer(&[7; 200])?;
    let room = rig.recv_buffer(300)?;
    // Only the first 100 of 300 bytes are offered.
    let offered = room.slice().prefix(100)?;
    let mut recv = rig
        .recv
        .take()
        .unwrap_or_else(|| unreachable!("the rig is connected"));
    // SAFETY: nobody looks at the buffer before the connection has quiesced.
    let received = rig.wait("room", || unsafe { recv.irecv(&offered) })?;
    let sent = rig.isend(&from)?;
    let error = rig
        .wait("an error", || recv.test(&received))
        .expect_err("it does not fit");
    assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
    let error = recv.test(&received).expect_err("the failure is final");
    assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
    room.check_untouched_behind(100)?;
    // The send may have been done already; the connection fails in any case.
    let _ = rig.sent(&sent);
    let failed = loop {
        match rig.isend(&from).and_then(|request| rig.sent(&request)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(
        matches!(failed.kind(), ErrorKind::Truncated | ErrorKind::PeerDied),
        "the sender must learn that the connection failed: {failed}"
    );
    Ok(())
}

/// A sender whose peer does not receive runs into back-pressure, and goes on afterwards.
///
/// # Errors
///
/// What the backend says instead.
pub fn n7_a_sender_that_is_not_received_from_is_held_up<F: NetFixture>() -> Result<()> {
    const MESSAGE: usize = 256 << 10;
    const BOUND: usize = 64 << 20;
    /// Looks in vain, a millisecond apart, after which the sender counts as held up.
    const PATIENCE: u32 = 50;
    let mut rig = Rig::connected::<F>()?;
    let from = rig.send_buffer(&Payload::new(7).bytes(0, MESSAGE))?;
    let mut requests = VecDeque::new();
    let (mut accepted, mut in_vain) = (0_usize, 0);
    while in_vain < PATIENCE {
        // SAFETY: nobody writes to the buffer.
        let request = unsafe { rig.send()?.isend(from.slice()) }?;
        let mut moved = request.is_some();
        accepted += usize::from(moved);
        requests.extend(request);
        moved |= rig.sender.progress()? | rig.receiver.progress()?;
        if let Some(first) = requests.front()
            && rig.send()?.test(first)?.is_some()
        {
            requests.pop_front();
            moved = true;
        }
        let buffered = (accepted - requests.len()) * MESSAGE;
        assert!(
            buffered < BOUND,
            "the network buffers {buffered} bytes that nobody receives"
        );
        assert!(
            requests.len() < 10_000,
            "the network takes any number of requests"
        );
        in_vain = if moved { 0 } else { in_vain + 1 };
        if !moved {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let to = rig.recv_buffer(MESSAGE)?;
    for number in 0..accepted {
        let received = rig.irecv(&to)?;
        assert_eq!(rig.received(&received)?, MESSAGE, "message {number}");
    }
    for request in requests {
        assert_eq!(rig.sent(&request)?, MESSAGE);
    }
    Payload::new(7).check(0, &to.contents());
    Ok(())
}

/// A request that tested done is no request any more.
///
/// # Errors
///
/// What the backend says instead.
pub fn n8_a_request_is_tested_once<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let (from, to) = (rig.send_buffer(b"abc")?, rig.recv_buffer(3)?);
    let (sent, received) = (rig.isend(&from)?, rig.irecv(&to)?);
    rig.received(&received)?;
    rig.sent(&sent)?;
    let error = rig.recv()?.test(&received).expect_err("it was done");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let error = rig.send()?.test(&sent).expect_err("it was done");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    Ok(())
}

/// What was put is there when the next message arrives.
///
/// # Errors
///
/// What the backend says instead.
pub fn put_comes_before_the_next_message<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let window = rig.recv_buffer(1000)?;
    if !rig.receiver.devices()[0].put {
        let error = rig
            .receiver
            .window(window.slice().region())
            .expect_err("there is no put");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        println!("skipped the rest: {} has no put", rig.receiver.name());
        return Ok(());
    }
    let key = rig.receiver.window(window.slice().region())?;
    let contents = Payload::new(9).bytes(0, 100);
    let (source, bell) = (rig.send_buffer(&contents)?, rig.send_buffer(b"!")?);
    let target = RemoteSlice {
        window: key,
        offset_bytes: 900,
    };
    let mut send = rig
        .send
        .take()
        .unwrap_or_else(|| unreachable!("the rig is connected"));
    // SAFETY: nobody writes to the buffer.
    let put = rig.wait("room for a put", || unsafe {
        send.put(source.slice(), &target)
    })?;
    rig.send = Some(send);
    // With room for one request only, the put has to be done first.
    let alone = rig.sender.devices()[0].max_outstanding == 1;
    if alone {
        assert_eq!(rig.sent(&put)?, 100);
    }
    let sent = rig.isend(&bell)?;
    let to = rig.recv_buffer(1)?;
    let received = rig.irecv(&to)?;
    rig.received(&received)?;
    assert_eq!(window.contents()[900..], contents);
    assert_eq!(window.contents()[..900], [0xEE; 900]);
    if !alone {
        assert_eq!(rig.sent(&put)?, 100);
    }
    rig.sent(&sent)?;
    Ok(())
}

/// A put that leaves the window, or comes after it was closed, fails and writes nothing.
///
/// # Errors
///
/// What the backend says instead.
pub fn put_outside_of_a_window_fails<F: NetFixture>() -> Result<()> {
    for closed in [false, true] {
        let mut rig = Rig::connected::<F>()?;
        if !rig.receiver.devices()[0].put {
            println!("skipped: {} has no put", rig.receiver.name());
            return Ok(());
        }
        let window = rig.recv_buffer(100)?;
        let key = rig.receiver.window(window.slice().region())?;
        let target = RemoteSlice {
            window: key,
            offset_bytes: if closed { 0 } else { 91 },
        };
        let window = (!closed).then_some(window);
        let source = rig.send_buffer(&[1; 10])?;
        let mut send = rig
            .send
            .take()
            .unwrap_or_else(|| unreachable!("the rig is connected"));
        let refused = rig
            // SAFETY: nobody writes to the buffer.
            .wait("room for a put", || unsafe {
                send.put(source.slice(), &target)
            })
            .and_then(|request| rig.wait("a refusal", || send.test(&request)));
        let error = refused.expect_err("the window is too small or closed");
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        if let Some(window) = window {
            window.check_untouched_behind(0)?;
        }
    }
    Ok(())
}

/// Drives both sides for a while, so that whatever can happen has happened.
pub(super) fn settle(rig: &Rig) -> Result<()> {
    for _ in 0..20 {
        rig.sender.progress()?;
        rig.receiver.progress()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
