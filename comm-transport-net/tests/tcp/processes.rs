//! Two processes, one of which is killed.

use std::net::Ipv4Addr;
use std::sync::Arc;

use comm_core::ErrorKind;
use comm_core::net::NetBackend;
use comm_testkit::net::{Payload, Rig, SecondProcess, second_role};
use comm_transport_net::tcp::TcpBackend;

use crate::conformance::on;

/// The test that plays the roles.
const SECOND: &str = "processes::second";

fn rig() -> Rig {
    let backend: Arc<dyn NetBackend> = Arc::new(TcpBackend::new(on(Ipv4Addr::LOCALHOST)).unwrap());
    Rig {
        sender: Arc::clone(&backend),
        receiver: backend,
        send: None,
        recv: None,
    }
}

/// Not a test of its own: the process that is going to be killed, in the role that it was given.
#[test]
fn second() {
    let Some(role) = second_role() else {
        return;
    };
    let mut rig = rig();
    if role.name == "sender" {
        let mut connect = rig.sender.connect(0, &role.message).unwrap();
        rig.send = Some(rig.wait("a connect", || connect.poll()).unwrap());
        for number in 0..3 {
            let from = rig
                .send_buffer(&Payload::new(1).bytes(number, 70_000))
                .unwrap();
            let sent = rig.isend(&from).unwrap();
            rig.sent(&sent).unwrap();
        }
    } else {
        let mut listener = rig.receiver.listen(0).unwrap();
        SecondProcess::say(listener.handle());
        rig.recv = Some(rig.wait("an accept", || listener.accept()).unwrap());
        let to = rig.recv_buffer(100).unwrap();
        let received = rig.irecv(&to).unwrap();
        rig.received(&received).unwrap();
    }
    SecondProcess::say(b"done");
    loop {
        std::thread::park();
    }
}

#[test]
fn n14_a_receiver_whose_peer_is_killed_gets_what_was_sent_and_wakes_up() {
    let mut rig = rig();
    let mut listener = rig.receiver.listen(0).unwrap();
    let mut child = SecondProcess::start(SECOND, "sender", listener.handle());
    rig.recv = Some(rig.wait("an accept", || listener.accept()).unwrap());
    let to = rig.recv_buffer(70_000).unwrap();
    for number in 0..2 {
        let received = rig.irecv(&to).unwrap();
        assert_eq!(rig.received(&received).unwrap(), 70_000);
        Payload::new(1).check(number, &to.contents());
    }
    assert_eq!(child.line(), b"done");
    child.kill();
    let received = rig.irecv(&to).unwrap();
    assert_eq!(rig.received(&received).unwrap(), 70_000);
    Payload::new(1).check(2, &to.contents());
    let error = rig
        .irecv(&to)
        .and_then(|request| rig.received(&request))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
}

#[test]
fn n14_a_receiver_that_sleeps_wakes_up_when_its_peer_is_killed() {
    let mut rig = rig();
    let mut listener = rig.receiver.listen(0).unwrap();
    let mut child = SecondProcess::start(SECOND, "sender", listener.handle());
    rig.recv = Some(rig.wait("an accept", || listener.accept()).unwrap());
    let to = rig.recv_buffer(70_000).unwrap();
    for _ in 0..3 {
        let received = rig.irecv(&to).unwrap();
        rig.received(&received).unwrap();
    }
    let received = rig.irecv(&to).unwrap();
    assert_eq!(child.line(), b"done");
    let killer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        child.kill();
    });
    // Asleep on the event set, without a timeout.
    let error = rig.received(&received).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    killer.join().unwrap();
}

#[test]
fn n14_a_sender_that_sleeps_wakes_up_when_its_peer_is_killed() {
    let mut rig = rig();
    let mut child = SecondProcess::start(SECOND, "receiver", &[]);
    let handle = child.line();
    let mut connect = rig.sender.connect(0, &handle).unwrap();
    rig.send = Some(rig.wait("a connect", || connect.poll()).unwrap());
    let small = rig.send_buffer(&[1; 100]).unwrap();
    let sent = rig.isend(&small).unwrap();
    rig.sent(&sent).unwrap();
    assert_eq!(child.line(), b"done");
    let large = rig.send_buffer(&[0; 1 << 20]).unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        child.kill();
    });
    // Asleep on the event set, without a timeout, once the kernel's buffers are full.
    let error = loop {
        match rig.isend(&large).and_then(|request| rig.sent(&request)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    killer.join().unwrap();
}
