//! Two processes, one of which is killed.

use std::sync::Arc;
use std::time::Instant;

use comm_core::ErrorKind;
use comm_core::net::{NetBackend, Quiesce};
use comm_testkit::net::{Payload, Rig, SecondProcess, second_role};
use comm_transport_net::verbs::{VerbsBackend, VerbsOptions};

/// The test that plays the roles.
const SECOND: &str = "processes::second";

const MESSAGES: u64 = 3;
const BYTES: usize = 70_000;

fn rig() -> Rig {
    let backend: Arc<dyn NetBackend> = Arc::new(VerbsBackend::new(VerbsOptions::new()).unwrap());
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
        for number in 0..MESSAGES {
            let from = rig
                .send_buffer(&Payload::new(1).bytes(number, BYTES))
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
fn n14_a_receiver_whose_peer_is_killed_gets_what_was_sent_wakes_up_and_quiesces() {
    if let Some(reason) = crate::lacking() {
        println!("skipped: {reason}");
        return;
    }
    let mut rig = rig();
    let mut listener = rig.receiver.listen(0).unwrap();
    let mut child = SecondProcess::start(SECOND, "sender", listener.handle());
    rig.recv = Some(rig.wait("an accept", || listener.accept()).unwrap());
    let buffers: Vec<_> = (0..MESSAGES)
        .map(|_| rig.recv_buffer(BYTES).unwrap())
        .collect();
    let requests: Vec<_> = buffers.iter().map(|to| rig.irecv(to).unwrap()).collect();
    let last = rig.recv_buffer(BYTES).unwrap();
    let waiting = rig.irecv(&last).unwrap();
    let killer = std::thread::spawn(move || {
        assert_eq!(child.line(), b"done");
        child.kill();
    });
    for ((number, to), request) in (0..).zip(&buffers).zip(&requests) {
        assert_eq!(rig.received(request).unwrap(), BYTES);
        Payload::new(1).check(number, &to.contents());
    }
    // Asleep on the event set, without a timeout.
    let error = rig.received(&waiting).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    killer.join().unwrap();
    let quiesced = rig.recv().unwrap().quiesce(Instant::now());
    assert_eq!(quiesced, Quiesce::Quiesced);
    last.check_untouched_behind(0).unwrap();
}

#[test]
fn n14_a_sender_that_sleeps_wakes_up_when_its_peer_is_killed_and_quiesces() {
    if let Some(reason) = crate::lacking() {
        println!("skipped: {reason}");
        return;
    }
    let mut rig = rig();
    let mut child = SecondProcess::start(SECOND, "receiver", &[]);
    let handle = child.line();
    let mut connect = rig.sender.connect(0, &handle).unwrap();
    rig.send = Some(rig.wait("a connect", || connect.poll()).unwrap());
    let small = rig.send_buffer(&[1; 100]).unwrap();
    let sent = rig.isend(&small).unwrap();
    rig.sent(&sent).unwrap();
    assert_eq!(child.line(), b"done");
    // Nobody receives it: the card asks again and again.
    let held_up = rig.isend(&small).unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        child.kill();
    });
    let error = rig.sent(&held_up).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    killer.join().unwrap();
    let quiesced = rig.send().unwrap().quiesce(Instant::now());
    assert_eq!(quiesced, Quiesce::Quiesced);
}
