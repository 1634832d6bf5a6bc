//! What comes in from outside of the job must not disturb it.

mod support;

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use comm_runtime::control::{JoinOptions, ListenScope, Message};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use support::*;

/// More than one process takes at a time.
const SLOW_CONNECTIONS: usize = 600;

const GARBAGE: [&[u8]; 6] = [
    b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    &[0; 4096],
    // The right magic: an endless hello, and a frame that does not belong there.
    b"comm\x01\x00\x00\x00\xff\xff\xff\xff",
    b"comm\x12\x00\x00\x00\x04\x00\x00\x00abcd",
];

fn throw_garbage(address: SocketAddr) {
    for garbage in GARBAGE {
        let Ok(mut stream) = TcpStream::connect(address) else {
            continue;
        };
        // The other side may close before all of it is written.
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "garbage was answered with {answer:?}");
    }
    // A port scan: connect and close.
    for _ in 0..20 {
        drop(TcpStream::connect(address));
    }
}

#[test]
fn garbage_and_port_scans_do_not_disturb_a_join() {
    let _watchdog = watchdog();
    let process = process();
    let addresses = process.addresses(ListenScope::Loopback);
    for _ in 0..5 {
        let port = free_port();
        let done = AtomicBool::new(false);
        let world = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    throw_garbage(addresses[0]);
                    throw_garbage(SocketAddr::from(([127, 0, 0, 1], port)));
                }
            });
            let world = ranks(4, |rank| {
                std::thread::sleep(Duration::from_millis(20 * u64::from(rank)));
                let options = JoinOptions::new(rank, 4, tcp(&process, port)).deadline(soon());
                join(&process, options)
            });
            done.store(true, Ordering::Relaxed);
            world
        });
        leave(world.into_iter().map(Result::unwrap).collect());
    }
}

#[test]
fn garbage_does_not_disturb_a_communicator() {
    let _watchdog = watchdog();
    let world = world(4);
    for joined in &world {
        for address in &joined.facts[joined.plane.rank() as usize].control_addresses {
            throw_garbage(*address);
        }
    }
    let planes = planes(&world);
    ranks(4, |rank| planes[rank as usize].barrier(1, soon()).unwrap());
    assert!(world.iter().all(|joined| joined.plane.failure().is_none()));
    leave(world);
}

#[test]
fn connections_that_never_say_a_word_do_not_keep_others_out() {
    let _watchdog = watchdog();
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    if limit
        .current
        .is_some_and(|limit| limit < 4 * SLOW_CONNECTIONS as u64)
    {
        println!("skipped: this system allows only {limit:?} descriptors");
        return;
    }
    let process = process();
    let address = process.addresses(ListenScope::Loopback)[0];
    let mut slow = Vec::new();
    for number in 0..SLOW_CONNECTIONS {
        let mut stream = match TcpStream::connect(address) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
                println!("skipped: this system has ports for only {number} connections");
                return;
            }
            stream => stream.unwrap(),
        };
        if number % 2 == 0 {
            // Half a header.
            stream.write_all(b"comm\x01\x00").unwrap();
        }
        slow.push(stream);
    }
    let world = world(4);
    let planes = planes(&world);
    ranks(4, |rank| planes[rank as usize].barrier(1, soon()).unwrap());
    leave(world);
    // The oldest ones were pushed out to make room.
    let mut first = &slow[0];
    assert_eq!(first.read(&mut [0; 1]).unwrap(), 0);
}

/// Sends a datagram with one descriptor to an abstract socket.
fn send_fd(name: &str, bytes: &[u8], fd: &impl AsFd) {
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    socket.connect_addr(&address).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    rustix::net::sendmsg(
        &socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::empty(),
    )
    .unwrap();
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let _watchdog = watchdog();
    let world = world(2);
    let name = world[0].facts[0].fd_socket.clone().unwrap();
    for bytes in [&b""[..], b"cmfd", &[7; 200], &[b'c'; 1000]] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        send_fd(&name, bytes, &writer);
        drop(writer);
        // Ends only when the receiver has closed its copy of the writing end.
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
    }
    // Honest descriptors still come through.
    let file = tempfile::tempfile().unwrap();
    let message = Message::new(1, Bytes::new()).with_fds(vec![file.into()]);
    world[1].plane.send(0, message).unwrap();
    let (_, message) = world[0].recorded.messages.recv().unwrap();
    assert_eq!(message.fds.len(), 1);
    leave(world);
}
