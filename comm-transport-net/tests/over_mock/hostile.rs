//! A peer that does not speak the step protocol.

use std::time::Instant;

use comm_core::net::{NetBackend, NetSend};
use comm_core::{ConnInfo, ErrorKind, MessageRecv, Transport};
use comm_testkit::net::Buffer;
use comm_transport_net::NetOptions;

use crate::support::{STEP, WATCHDOG, World, block_on, doorbell, recv, seeded};

/// Bytes in front of the address in a handle.
const HANDLE_FIXED_BYTES: usize = 15;

/// A receiving end whose sender is a bare connection of the network.
fn bare(world: &World) -> (Box<dyn NetSend>, Box<dyn MessageRecv>) {
    let deadline = Instant::now() + WATCHDOG;
    let mut end = block_on(world.transports[1].setup_recv(&world.edge(1), deadline)).unwrap();
    let mut own = block_on(world.transports[0].setup_send(&world.edge(0), deadline)).unwrap();
    let address = end.handle().unwrap().bytes.slice(HANDLE_FIXED_BYTES..);
    let mut connect = world.cards[0].connect(0, &address).unwrap();
    let Ok(ConnInfo::MessageRecv(receiver)) =
        block_on(end.connect(own.handle().unwrap(), deadline))
    else {
        panic!("the bare sender was not accepted");
    };
    let sender = loop {
        if let Some(sender) = connect.poll().unwrap() {
            break sender;
        }
        world.cards[0].progress().unwrap();
    };
    (sender, receiver)
}

/// What the receiving end says to one message with these contents.
fn answer_to(message: &[u8]) -> comm_core::Error {
    let world = World::new(seeded(1), &NetOptions::default());
    let (mut sender, mut receiver) = bare(&world);
    let buffer = Buffer::new(&*world.cards[0], 0, message.len()).unwrap();
    buffer.fill(message);
    // SAFETY: nobody writes to the buffer.
    while unsafe { sender.isend(buffer.slice()) }.unwrap().is_none() {
        world.cards[0].progress().unwrap();
    }
    recv(&mut *receiver, &doorbell()).unwrap_err()
}

#[test]
fn a_message_longer_than_a_slot_is_truncated() {
    let error = answer_to(&vec![0; STEP + 65]);
    assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
    assert!(error.to_string().contains("peer=0: rank 0"), "{error}");
}

#[test]
fn a_message_that_is_no_step_is_a_protocol_error() {
    for message in [&b""[..], b"short", &[0; 64], &[0xFF; 500]] {
        let error = answer_to(message);
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    }
}
