//! Messages over several sockets that fill up and drain at different times.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use comm_core::net::{NetBackend, NetRecv, NetSend, Transfer};
use comm_core::{Error, ErrorKind, Result};
use comm_testkit::net::{Buffer, Payload, Rig, Rng};

use crate::conformance::{backends, on};

const MESSAGES: u64 = 150;
const LONGEST: usize = 300_000;

/// The length of message `number`, of all magnitudes.
fn length(number: u64) -> usize {
    let mut rng = Rng::new(1000 + number);
    let limit = [1, 100, 5000, LONGEST as u64][rng.below(4) as usize];
    rng.below(limit + 1) as usize
}

/// Now and then a pause, so that sockets fill up or run dry.
fn dawdle(rng: &mut Rng) {
    if rng.below(10) == 0 {
        thread::sleep(Duration::from_micros(rng.below(2000)));
    }
}

/// Asks until there is an answer, for a minute at most; drives the backend now and then.
fn spin<T>(
    backend: &dyn NetBackend,
    rng: &mut Rng,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    for _ in 0..600_000 {
        if let Some(value) = ask()? {
            return Ok(value);
        }
        if rng.below(2) == 0 {
            backend.progress()?;
        }
        thread::sleep(Duration::from_micros(100));
    }
    Err(Error::new(ErrorKind::Timeout, "the message does not come"))
}

fn send_all(backend: &dyn NetBackend, mut send: Box<dyn NetSend>) -> Result<()> {
    let (payload, mut rng) = (Payload::new(21), Rng::new(1));
    let mut outstanding = Vec::new();
    for number in 0..MESSAGES {
        let contents = payload.bytes(number, length(number));
        if number % 7 == 3 && !contents.is_empty() {
            spin(backend, &mut rng, || {
                Ok((send.send_direct(&contents)? == Transfer::Done).then_some(()))
            })?;
        } else {
            let buffer = Buffer::new(backend, 0, contents.len())?;
            buffer.fill(&contents);
            let request = spin(backend, &mut rng, || {
                // SAFETY: nobody writes to the buffer.
                unsafe { send.isend(buffer.slice()) }
            })?;
            outstanding.push((request, buffer));
        }
        if outstanding.len() > 5 {
            let (request, _buffer) = outstanding.remove(0);
            spin(backend, &mut rng, || send.test(&request))?;
        }
        dawdle(&mut rng);
    }
    for (request, _buffer) in outstanding {
        spin(backend, &mut rng, || send.test(&request))?;
    }
    Ok(())
}

fn receive_all(backend: &dyn NetBackend, mut recv: Box<dyn NetRecv>) -> Result<()> {
    let (payload, mut rng) = (Payload::new(21), Rng::new(2));
    let to = Buffer::new(backend, 0, LONGEST)?;
    for number in 0..MESSAGES {
        let bytes = length(number);
        if number % 7 == 3 && bytes > 0 {
            let mut received = vec![0; bytes];
            spin(backend, &mut rng, || {
                Ok((recv.recv_direct(&mut received)? == Transfer::Done).then_some(()))
            })?;
            payload.check(number, &received);
        } else {
            let request = spin(backend, &mut rng, || {
                // SAFETY: nobody looks at the buffer before the request is done.
                unsafe { recv.irecv(to.slice()) }
            })?;
            assert_eq!(spin(backend, &mut rng, || recv.test(&request))?, bytes);
            payload.check(number, &to.contents()[..bytes]);
        }
        dawdle(&mut rng);
    }
    Ok(())
}

#[test]
fn n4_striped_messages_and_transfers_arrive_whole_and_in_order_whatever_the_delays() {
    for (sockets, stripe_bytes, buffer_bytes) in [
        (1, 1000, 4096),
        (2, 1, 4096),
        (3, 4096, 8192),
        (16, 333, 4096),
    ] {
        let options = on(Ipv4Addr::LOCALHOST)
            .sockets(sockets)
            .stripe_bytes(stripe_bytes)
            .buffer_bytes(Some(buffer_bytes));
        let [sender, receiver] = backends(&options).unwrap();
        let rig = Rig {
            sender: Arc::clone(&sender),
            receiver: Arc::clone(&receiver),
            send: None,
            recv: None,
        };
        let (send, recv) = rig.connect().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| send_all(&*sender, send).unwrap());
            scope.spawn(|| receive_all(&*receiver, recv).unwrap());
        });
    }
}
