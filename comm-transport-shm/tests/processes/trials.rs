//! What must hold between processes.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use comm_core::ErrorKind;
use comm_testkit::transport::Resources;
use comm_testkit::watchdog::with_watchdog;
use libtest_mimic::Trial;

use crate::peer::{ECHO, Process, ROLE, SLEEP, STREAM, pattern, signature};
use crate::wire::Wire;

pub(crate) fn all() -> Vec<Trial> {
    let trials: [(&str, fn()); 4] = [
        (
            "steps_cross_in_both_directions_between_sleeping_processes",
            echo,
        ),
        (
            "a_sender_killed_while_it_sends_leaves_whole_steps_only",
            killed_sender,
        ),
        ("a_killed_process_leaves_nothing_behind", nothing_left),
        (
            "doorbells_of_a_process_are_mapped_once_for_all_edges",
            mapped_once,
        ),
    ];
    let guarded = |(name, trial): (&str, fn())| {
        Trial::test(name, move || {
            with_watchdog(Duration::from_secs(300), trial);
            Ok(())
        })
    };
    trials.into_iter().map(guarded).collect()
}

/// Starts this binary as a peer with a role.
fn start(role: &str) -> (Child, Process) {
    let (wire, peer) = Wire::pair();
    let child = Command::new(std::env::current_exe().unwrap())
        .env(ROLE, role)
        .stdin(Stdio::from(peer))
        .spawn()
        .unwrap();
    (child, Process::new(0, wire))
}

fn echo() {
    let (mut child, process) = start(ECHO);
    let waiter = process.waiter();
    let (mut to, mut from) = (process.connect_send(0), process.connect_recv(0));
    for step in 0..3_000 {
        let payload = pattern(step);
        to.send(&payload, &signature(step, payload.len()), &waiter)
            .unwrap();
        assert!(
            from.recv(&waiter).unwrap().payload == payload,
            "step {step}"
        );
        if step % 1_000 == 0 {
            // Both processes fall asleep.
            thread::sleep(Duration::from_millis(20));
        }
    }
    drop(to);
    assert!(child.wait().unwrap().success());
    assert_eq!(from.recv(&waiter).unwrap_err().kind(), ErrorKind::PeerDied);
}

fn killed_sender() {
    let (mut child, process) = start(STREAM);
    let waiter = process.waiter();
    let mut from = process.connect_recv(0);
    let mut next = 0;
    let mut expect = |step: comm_testkit::transport::Received| {
        assert!(step.payload == pattern(next), "step {next}");
        assert_eq!(
            step.signature,
            Some(signature(next, step.payload.len()).pack())
        );
        next += 1;
    };
    for _ in 0..10_000 {
        expect(from.recv(&waiter).unwrap());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    while let Some(step) = from.try_recv().unwrap() {
        expect(step);
    }
    // Nobody can ring any more but this process itself, as its control plane does.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| from.recv(&waiter).unwrap_err());
        thread::sleep(Duration::from_millis(20));
        waiter.abort();
        assert_eq!(waiting.join().unwrap().kind(), ErrorKind::Aborted);
    });
}

fn names_in_dev_shm() -> BTreeSet<OsString> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect()
}

fn nothing_left() {
    let (names, held) = (names_in_dev_shm(), Resources::now());
    let (mut child, process) = start(SLEEP);
    let to = process.connect_send(0);
    let from: Vec<_> = (0..8)
        .map(|channel| process.connect_recv(channel))
        .collect();
    let new: Vec<_> = names_in_dev_shm().difference(&names).cloned().collect();
    assert!(
        !new.iter()
            .any(|name| name.to_string_lossy().contains("comm")),
        "{new:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    drop((to, from, process));
    held.wait_for_return();
    let new: Vec<_> = names_in_dev_shm().difference(&names).cloned().collect();
    assert!(
        !new.iter()
            .any(|name| name.to_string_lossy().contains("comm")),
        "{new:?}"
    );
}

fn mapped_once() {
    let (mut child, process) = start(SLEEP);
    let before = Resources::now();
    let _to = process.connect_send(0);
    let first = Resources::now();
    // The edge, and the doorbells of the peer.
    assert_eq!(first.shared_mappings, before.shared_mappings + 2);
    let _from: Vec<_> = (0..8)
        .map(|channel| process.connect_recv(channel))
        .collect();
    let all = Resources::now();
    assert_eq!(
        all.shared_mappings,
        first.shared_mappings + 8,
        "one mapping for each edge"
    );
    assert_eq!(
        all.descriptors, before.descriptors,
        "connected edges hold no descriptor"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}
