//! N18.

use comm_core::net::{NetRecv, NetSend, Transfer};
use comm_core::{Error, ErrorKind, Result};

use crate::net::{NetFixture, Payload, Rig};

/// Both ends of one connection.
type Ends = (Box<dyn NetSend>, Box<dyn NetRecv>);

/// Both ends of the rig, if the backends have direct transfers; otherwise they must say so.
fn ends(rig: &mut Rig) -> Result<Option<Ends>> {
    let (Some(mut send), Some(mut recv)) = (rig.send.take(), rig.recv.take()) else {
        return Err(Error::new(ErrorKind::Internal, "the rig is not connected"));
    };
    if rig.sender.devices()[0].copies_synchronously {
        return Ok(Some((send, recv)));
    }
    for error in [send.send_direct(&[1]), recv.recv_direct(&mut [1])] {
        let error = error.expect_err("there are no direct transfers");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    println!(
        "skipped the rest: {} has no direct transfers",
        rig.sender.name()
    );
    Ok(None)
}

/// Asks an end whether it is done whenever it says that it is ready.
fn when<T>(ready: bool, act: impl FnOnce() -> Result<Option<T>>) -> Result<Option<T>> {
    if ready { act() } else { Ok(None) }
}

/// Carries one direct transfer, asleep whenever neither end is ready.
fn transfer(
    rig: &Rig,
    send: &mut dyn NetSend,
    recv: &mut dyn NetRecv,
    data: &[u8],
) -> Result<Vec<u8>> {
    let mut received = vec![0; data.len()];
    let (mut sent, mut arrived) = (false, false);
    rig.wait("a direct transfer", || {
        // The first call has to be made in any case: a transfer begins with it.
        while !sent {
            sent = send.send_direct(data)? == Transfer::Done;
            if !sent && !send.direct_ready() {
                break;
            }
        }
        while !arrived {
            arrived = recv.recv_direct(&mut received)? == Transfer::Done;
            if !arrived && !recv.direct_ready() {
                break;
            }
        }
        Ok((sent && arrived).then_some(()))
    })?;
    Ok(received)
}

/// Messages before, between and after direct transfers of all sizes arrive in order, whether or
/// not their receives were posted before.
///
/// # Errors
///
/// What the backend says instead.
pub fn n18_direct_transfers_have_their_place_in_the_order<F: NetFixture>() -> Result<()> {
    let mut rig = Rig::connected::<F>()?;
    let Some((mut send, mut recv)) = ends(&mut rig)? else {
        return Ok(());
    };
    let payload = Payload::new(18);
    for (round, bytes) in [1, 7, 4096, 100_000, 3_000_000].into_iter().enumerate() {
        let round = round as u64;
        let contents = payload.bytes(round, 5000);
        let (from, to) = (rig.send_buffer(&contents)?, rig.recv_buffer(5000)?);
        // One message before the transfer, with its receive; the receive of the one behind it is
        // posted too.
        let behind = rig.recv_buffer(5000)?;
        // SAFETY: nobody looks at the buffers before the requests are done.
        let received = rig.wait("room", || unsafe { recv.irecv(to.slice()) })?;
        let received_behind = if rig.receiver.devices()[0].max_outstanding > 1 {
            // SAFETY: as above.
            Some(rig.wait("room", || unsafe { recv.irecv(behind.slice()) })?)
        } else {
            None
        };
        // SAFETY: nobody writes to the buffer.
        let sent = rig.wait("room", || unsafe { send.isend(from.slice()) })?;
        assert_eq!(rig.wait("a message", || recv.test(&received))?, 5000);
        assert_eq!(rig.wait("a send", || send.test(&sent))?, 5000);
        payload.check(round, &to.contents());

        let data = payload.bytes(100 + round, bytes);
        assert_eq!(transfer(&rig, &mut *send, &mut *recv, &data)?, data);

        // SAFETY: nobody writes to the buffer.
        let sent = rig.wait("room", || unsafe { send.isend(from.slice()) })?;
        let received_behind = match received_behind {
            Some(request) => request,
            // SAFETY: nobody looks at the buffer before the request is done.
            None => rig.wait("room", || unsafe { recv.irecv(behind.slice()) })?,
        };
        assert_eq!(rig.wait("a message", || recv.test(&received_behind))?, 5000);
        assert_eq!(rig.wait("a send", || send.test(&sent))?, 5000);
        payload.check(round, &behind.contents());
    }
    Ok(())
}

/// A transfer that the receiver expects to be longer, or shorter, is an error of both ends.
///
/// # Errors
///
/// What the backend says instead.
pub fn n18_a_direct_transfer_of_another_length_fails_both_ends<F: NetFixture>() -> Result<()> {
    for expected in [99, 101] {
        let mut rig = Rig::connected::<F>()?;
        let Some((mut send, mut recv)) = ends(&mut rig)? else {
            return Ok(());
        };
        let mut begun = false;
        let mut buffer = vec![0; expected];
        let error = rig
            .wait("an error", || {
                begun = begun || send.send_direct(&[1; 100])? == Transfer::Done;
                recv.recv_direct(&mut buffer).map(|_| None::<()>)
            })
            .expect_err("the lengths differ");
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        let error = rig
            .wait("an error", || {
                when(send.direct_ready(), || {
                    send.send_direct(&[1; 100]).map(|_| None::<()>)
                })
            })
            .expect_err("the connection has failed");
        assert!(
            matches!(error.kind(), ErrorKind::Protocol | ErrorKind::PeerDied),
            "{error}"
        );
    }
    Ok(())
}

/// Whoever is in the middle of a transfer when the peer is lost wakes up with `PeerDied`.
///
/// # Errors
///
/// What the backend says instead.
pub fn n18_a_lost_peer_ends_a_direct_transfer<F: NetFixture>() -> Result<()> {
    const BYTES: usize = 64 << 20;
    let data = vec![1; BYTES];
    for sender_is_lost in [false, true] {
        let mut rig = Rig::connected::<F>()?;
        let Some((mut send, recv)) = ends(&mut rig)? else {
            return Ok(());
        };
        let error = if sender_is_lost {
            let mut recv = recv;
            let sent = send.send_direct(&data)?;
            assert_ne!(sent, Transfer::Done, "nobody receives so much");
            drop(send);
            let mut buffer = vec![0; BYTES];
            rig.wait("an error", || {
                loop {
                    let _ = recv.recv_direct(&mut buffer)?;
                    if !recv.direct_ready() {
                        break Ok(None::<()>);
                    }
                }
            })
        } else {
            let mut recv = Some(recv);
            rig.wait("an error", || {
                loop {
                    let _ = send.send_direct(&data)?;
                    recv = None;
                    if !send.direct_ready() {
                        break Ok(None::<()>);
                    }
                }
            })
        };
        let error = error.expect_err("the peer is lost");
        assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    }
    Ok(())
}
