//! Steps: order, sizes, wrap-around, back-pressure, sleeping.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use comm_core::net::{
    MemoryRegion, NetBackend, NetConnect, NetListener, NetProperties, Region, WakeSource,
};
use comm_core::{Armed, ErrorKind, Result};
use comm_testkit::net::{MockConfig, MockDevice, MockRdma, Payload, Rng};
use comm_transport_net::NetOptions;

use crate::support::{
    STEP, World, doorbell, header, recv, recv_asleep, seeded, send, try_recv, try_send,
};

/// Sends `steps` steps of random sizes from one thread to another and checks them all.
fn stream(world: &World, steps: u64, seed: u64) {
    let (mut sender, mut receiver) = world.connect();
    let payload = Payload::new(seed);
    let sizes = move || {
        let mut rng = Rng::new(seed);
        (0..steps).map(move |_| match rng.below(4) {
            0 => 0,
            1 => rng.below(64) as usize,
            2 => rng.below(STEP as u64) as usize,
            _ => STEP,
        })
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            let doorbell = doorbell();
            for (number, bytes) in (0..).zip(sizes()) {
                send(
                    &mut *sender,
                    &doorbell,
                    number,
                    &payload.bytes(number, bytes),
                )
                .unwrap();
            }
            assert!(sender.quiesce(std::time::Instant::now() + crate::support::WATCHDOG));
        });
        let doorbell = doorbell();
        for (number, bytes) in (0..).zip(sizes()) {
            let (got, contents) = recv(&mut *receiver, &doorbell).unwrap();
            assert_eq!(got, header(bytes, number));
            payload.check(number, &contents);
        }
    });
}

#[test]
fn many_steps_of_all_sizes_arrive_whole_and_in_order() {
    for seed in 0..4 {
        stream(&World::new(seeded(seed), &NetOptions::default()), 300, seed);
    }
}

#[test]
fn one_request_at_a_time_is_enough() {
    let mut config = seeded(7);
    config.max_outstanding = 1;
    config.refuse_one_in = 2;
    stream(&World::new(config, &NetOptions::default()), 100, 7);
}

#[test]
fn slots_may_be_pinned_memory_of_a_device() {
    let device = Arc::new(MockDevice::new(0, 1, Duration::ZERO).unwrap());
    let options = NetOptions::default().memory(device.clone());
    let world = World::new(seeded(8), &options);
    stream(&world, 50, 8);
    crate::support::eventually("the slots' release", || device.allocated_bytes() == 0);
}

#[test]
fn a_step_is_handed_out_again_until_it_is_consumed_and_a_slot_until_it_is_published() {
    let world = World::new(seeded(1), &NetOptions::default());
    let (mut sender, mut receiver) = world.connect();
    let first = sender.try_slot().unwrap().unwrap();
    assert_eq!(sender.try_slot().unwrap().unwrap().data, first.data);
    assert_eq!(
        receiver.consume().unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    try_send(&mut *sender, 0, b"abc").unwrap().unwrap();
    let error = sender.publish(header(0, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let step = loop {
        if let Some(step) = receiver.try_step().unwrap() {
            break step;
        }
        receiver.progress().unwrap();
    };
    assert_eq!(receiver.try_step().unwrap().unwrap().data, step.data);
    receiver.consume().unwrap();
    assert!(receiver.try_step().unwrap().is_none());
}

#[test]
fn a_step_that_exceeds_its_slot_is_refused_without_harm() {
    let world = World::new(seeded(1), &NetOptions::default());
    let (mut sender, mut receiver) = world.connect();
    assert_eq!(sender.try_slot().unwrap().unwrap().capacity_bytes, STEP);
    let error = sender.publish(header(STEP + 1, 0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    try_send(&mut *sender, 5, b"abc").unwrap().unwrap();
    assert_eq!(
        recv(&mut *receiver, &doorbell()).unwrap(),
        (header(3, 5), b"abc".to_vec())
    );
}

#[test]
fn back_pressure_bounds_memory() {
    let world = World::new(seeded(2), &NetOptions::default());
    let (mut sender, mut receiver) = world.connect();
    let before = [0, 1].map(|rank: usize| world.transports[rank].mem_stats());
    let (mut published, mut in_vain) = (0, 0);
    while in_vain < 100 {
        let sent = try_send(&mut *sender, published, &[1; STEP])
            .unwrap()
            .is_some();
        published += u64::from(sent);
        let moved = sender.progress().unwrap() | receiver.progress().unwrap();
        in_vain = if sent || moved { 0 } else { in_vain + 1 };
        thread::sleep(Duration::from_micros(if sent || moved { 0 } else { 500 }));
    }
    // Eight at the receiver, eight at the sender; the mock network itself holds none.
    assert_eq!(published, 16);
    assert_eq!(
        [0, 1].map(|rank: usize| world.transports[rank].mem_stats()),
        before
    );
    for number in 0..published {
        assert_eq!(
            recv(&mut *receiver, &doorbell()).unwrap().0,
            header(STEP, number)
        );
    }
    assert!(try_recv(&mut *receiver).unwrap().is_none());
}

#[test]
fn sleeping_owners_of_several_edges_are_each_woken_by_their_own_step() {
    let world = World::new(seeded(3), &NetOptions::default());
    let mut edges: Vec<_> = (0..4).map(|_| world.connect()).collect();
    thread::scope(|scope| {
        let mut senders = Vec::new();
        for (sender, mut receiver) in edges.drain(..) {
            senders.push(sender);
            scope.spawn(move || {
                let doorbell = doorbell();
                for round in 0..20 {
                    assert_eq!(
                        recv_asleep(&mut *receiver, &doorbell).unwrap().0.signature[0],
                        round
                    );
                }
            });
        }
        let doorbell = doorbell();
        for round in 0..20 {
            for sender in &mut senders {
                send(&mut **sender, &doorbell, round, b"wake up").unwrap();
            }
        }
        for sender in &mut senders {
            assert!(sender.quiesce(std::time::Instant::now() + crate::support::WATCHDOG));
        }
    });
}

#[test]
fn published_steps_are_sent_although_their_owner_waits_for_nothing() {
    let world = World::new(seeded(4), &NetOptions::default());
    let (mut sender, mut receiver) = world.connect();
    for number in 0..8 {
        try_send(&mut *sender, number, &[7; 100]).unwrap().unwrap();
    }
    // From here on only the engine's threads move anything.
    let doorbell = doorbell();
    for number in 0..8 {
        assert_eq!(
            recv_asleep(&mut *receiver, &doorbell).unwrap().0,
            header(100, number)
        );
    }
}

#[test]
fn a_ring_from_elsewhere_ends_the_sleep_and_harms_nothing() {
    let world = World::new(seeded(5), &NetOptions::default());
    let (mut sender, mut receiver) = world.connect();
    let doorbell = doorbell();
    let ticket = doorbell.ticket();
    assert_eq!(receiver.arm(&doorbell).unwrap(), Armed::WillRing);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            doorbell.ring();
        });
        assert!(doorbell.wait(ticket, Some(crate::support::WATCHDOG)));
    });
    assert!(receiver.try_step().unwrap().is_none());
    try_send(&mut *sender, 0, b"still there").unwrap().unwrap();
    assert_eq!(
        recv_asleep(&mut *receiver, &doorbell).unwrap().1,
        b"still there"
    );
}

/// The mock network without a descriptor to sleep on.
#[derive(Debug)]
struct WithoutDescriptor(Arc<MockRdma>);

// SAFETY: everything that the contract's safety clauses speak of is left to the mock.
unsafe impl NetBackend for WithoutDescriptor {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn devices(&self) -> &[NetProperties] {
        self.0.devices()
    }
    fn listen(&self, device: usize) -> Result<Box<dyn NetListener>> {
        self.0.listen(device)
    }
    fn connect(&self, device: usize, handle: &[u8]) -> Result<Box<dyn NetConnect>> {
        self.0.connect(device, handle)
    }
    fn register(&self, device: usize, region: Region) -> Result<MemoryRegion> {
        self.0.register(device, region)
    }
    fn progress(&self) -> Result<bool> {
        self.0.progress()
    }
    fn wake_source(&self) -> WakeSource<'_> {
        WakeSource::Poll
    }
    fn arm(&self) -> Result<Armed> {
        Ok(Armed::Ready)
    }
    fn window(&self, region: &MemoryRegion) -> Result<Bytes> {
        self.0.window(region)
    }
}

#[test]
fn a_network_without_a_descriptor_works_too() {
    let config = MockConfig::default();
    let world = World::over(config, &NetOptions::default(), |card| {
        Arc::new(WithoutDescriptor(card))
    });
    stream(&world, 100, 9);
    let (mut sender, mut receiver) = world.connect();
    try_send(&mut *sender, 0, b"abc").unwrap().unwrap();
    assert_eq!(recv_asleep(&mut *receiver, &doorbell()).unwrap().1, b"abc");
}

#[test]
fn while_an_owner_sleeps_and_nothing_comes_nobody_calls_the_network() {
    let world = World::new(seeded(6), &NetOptions::default());
    let (_sender, mut receiver) = world.connect();
    assert_eq!(receiver.arm(&doorbell()).unwrap(), Armed::WillRing);
    let calls = || [0, 1].map(|rank: usize| world.cards[rank].calls());
    // What is left of connecting comes to rest first.
    crate::support::eventually("rest", || {
        let before = calls();
        thread::sleep(Duration::from_millis(100));
        calls() == before
    });
}
