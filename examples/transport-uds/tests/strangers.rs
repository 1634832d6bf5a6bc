//! What processes that are not the peer, or a peer that misbehaves, can do: nothing to others.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use comm_core::net::{NetBackend, NetRecv, NetSend};
use comm_core::{ErrorKind, Result};
use comm_testkit::net::Buffer;
use comm_testkit::watchdog::with_watchdog;
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use transport_uds::UdsBackend;

const WATCHDOG: Duration = Duration::from_secs(120);

/// The name in the abstract namespace at which the listener of this handle listens.
fn address(handle: &[u8]) -> SocketAddr {
    SocketAddr::from_abstract_name(&handle[4..]).unwrap()
}

/// Asks until there is an answer.
fn until<T>(mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    loop {
        if let Some(value) = ask()? {
            return Ok(value);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Carries one message from one end to the other.
fn carry(backend: &UdsBackend, send: &mut dyn NetSend, recv: &mut dyn NetRecv) {
    let (from, to) = (
        Buffer::new(backend, 0, 5).unwrap(),
        Buffer::new(backend, 0, 5).unwrap(),
    );
    from.fill(b"hello");
    // SAFETY: the buffers are left alone until both requests are done.
    let sent = unsafe { send.isend(from.slice()) }.unwrap().unwrap();
    // SAFETY: as above.
    let received = unsafe { recv.irecv(to.slice()) }.unwrap().unwrap();
    until(|| send.test(&sent)).unwrap();
    assert_eq!(until(|| recv.test(&received)).unwrap(), 5);
    assert_eq!(to.contents(), b"hello");
}

/// What becomes of a receive when the peer sends these bytes and hangs up.
fn receive_from(bytes: &[u8]) -> ErrorKind {
    let backend = UdsBackend::new().unwrap();
    let mut listener = backend.listen(0).unwrap();
    let mut peer = UnixStream::connect_addr(&address(listener.handle())).unwrap();
    let mut recv = until(|| listener.accept()).unwrap();
    let to = Buffer::new(&backend, 0, 100).unwrap();
    // SAFETY: the buffer is looked at when the request has failed.
    let request = unsafe { recv.irecv(to.slice()) }.unwrap().unwrap();
    peer.write_all(bytes).unwrap();
    drop(peer);
    let error = until(|| recv.test(&request)).unwrap_err();
    // The connection has failed; the network has not.
    let mut connect = backend.connect(0, listener.handle()).unwrap();
    let mut send = connect.poll().unwrap().unwrap();
    let mut recv = until(|| listener.accept()).unwrap();
    carry(&backend, &mut *send, &mut *recv);
    error.kind()
}

#[test]
fn n6_a_made_up_length_fails_its_own_connection_only() {
    with_watchdog(WATCHDOG, || {
        for length in [101, 1 << 32, u64::MAX - 8, u64::MAX] {
            let message = [&length.to_le_bytes()[..], &[0; 200]].concat();
            assert_eq!(receive_from(&message), ErrorKind::Truncated, "{length}");
        }
    });
}

#[test]
fn n14_a_peer_that_stops_in_the_middle_of_a_message_has_died() {
    with_watchdog(WATCHDOG, || {
        let message = [&100_u64.to_le_bytes()[..], &[0; 99]].concat();
        for sent in [0, 1, 7, 8, 9, message.len()] {
            assert_eq!(
                receive_from(&message[..sent]),
                ErrorKind::PeerDied,
                "{sent}"
            );
        }
    });
}

/// Calls `act` on a thread that belongs to another user; `false` if this process may not do that.
fn as_somebody_else(act: impl FnOnce() + Send) -> bool {
    if !geteuid().is_root() {
        println!("skipped: only root can become another user");
        return false;
    }
    let nobody = Uid::from_raw(65534);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_thread_res_uid(nobody, nobody, nobody).unwrap();
            act();
        });
        thread.join().unwrap();
    });
    true
}

#[test]
fn n1_processes_of_other_users_are_turned_away_and_the_peer_gets_in() {
    with_watchdog(WATCHDOG, || {
        let backend = UdsBackend::new().unwrap();
        let mut listener = backend.listen(0).unwrap();
        let at = address(listener.handle());
        let mut strangers = Vec::new();
        // More than `accept` looks at in one call.
        let tried = as_somebody_else(|| {
            strangers.extend((0..40).map(|_| UnixStream::connect_addr(&at).unwrap()));
        });
        if !tried {
            return;
        }
        let mut connect = backend.connect(0, listener.handle()).unwrap();
        let mut send = connect.poll().unwrap().unwrap();
        let mut recv = until(|| listener.accept()).unwrap();
        carry(&backend, &mut *send, &mut *recv);
        for mut stranger in strangers {
            let end = stranger.read(&mut [0]);
            assert!(matches!(end, Ok(0) | Err(_)), "a stranger was let in");
        }
    });
}

#[test]
fn n1_a_listener_of_another_user_is_not_connected_to() {
    with_watchdog(WATCHDOG, || {
        let backend = UdsBackend::new().unwrap();
        let handle = backend.listen(0).unwrap().handle().to_vec();
        // The listener is gone; somebody else takes its name.
        let mut impostor = None;
        let tried = as_somebody_else(|| {
            impostor = Some(UnixListener::bind_addr(&address(&handle)).unwrap());
        });
        if !tried {
            return;
        }
        let mut connect = backend.connect(0, &handle).unwrap();
        let error = connect.poll().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
        drop(impostor);
    });
}

#[test]
fn n3_handles_that_are_cut_or_lengthened_are_refused() {
    let backend = UdsBackend::new().unwrap();
    let mut handle = backend.listen(0).unwrap().handle().to_vec();
    for len_bytes in 0..handle.len() {
        let error = backend.connect(0, &handle[..len_bytes]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
    handle.push(0);
    assert!(backend.connect(0, &handle).is_err());
}
