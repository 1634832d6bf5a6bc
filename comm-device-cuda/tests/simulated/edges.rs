//! The two kinds of edges that devices need, made by hand from the contracts: one whose slots are
//! GPU memory of the receiving process, and one over a network with slots in pinned memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::device::{Device, DeviceEvent, DeviceMemory, MemoryKind};
use comm_core::doorbell::Doorbells;
use comm_core::{HostId, MessageRecv, MessageSend, ProcessId, Result, StepHeader};
use comm_device_cuda::CudaDevice;
use comm_testkit::net::{MockConfig, MockFabric};
use comm_testkit::transport::{RecvEnd, Rig, SendEnd, TestRank, TransportFixture};
use comm_transport_net::{NetOptions, NetTransport};
use libtest_mimic::Failed;

use crate::processes::{Player, contents, copy, exported, fill, hear, imported, say};

const SLOTS: usize = 4;
const STEP_BYTES: usize = 100_000;
const STEPS: usize = 11;

/// The sender writes to slots that the receiver has exported; lines of text are credit and news.
pub(crate) fn between_processes() -> Result<(), Failed> {
    let device = CudaDevice::new(0)?;
    let mut receiver = Player::start("receiver", &[]);
    let slots = imported(&device, &receiver.hear())?;
    let pinned = device.alloc_pinned(STEP_BYTES)?;
    let data = device.alloc(STEP_BYTES)?;
    for step in 0..STEPS {
        if step >= SLOTS {
            assert_eq!(receiver.hear(), format!("consumed {}", step - SLOTS));
        }
        fill(&pinned, step as u8 + 1);
        copy(&device, &data, &pinned)?;
        let slot = slots.slice(step % SLOTS * STEP_BYTES, STEP_BYTES)?;
        // Published only when the copy is done: the receiver has no event of this process.
        copy(&device, &slot, &data)?;
        receiver.say(&format!("published {step}"));
    }
    for step in STEPS - SLOTS..STEPS {
        assert_eq!(receiver.hear(), format!("consumed {step}"));
    }
    assert_eq!(receiver.hear(), "all right");
    Ok(())
}

/// The receiving process of [`between_processes`].
pub(crate) fn receive() {
    let device = CudaDevice::new(1).expect("the simulated GPU");
    let slots = device.alloc(SLOTS * STEP_BYTES).unwrap();
    say(&exported(&device.export(&slots).unwrap()));
    let (data, pinned) = (
        device.alloc(STEP_BYTES).unwrap(),
        device.alloc_pinned(STEP_BYTES).unwrap(),
    );
    for step in 0..STEPS {
        assert_eq!(hear(), format!("published {step}"));
        let slot = slots.slice(step % SLOTS * STEP_BYTES, STEP_BYTES).unwrap();
        copy(&device, &data, &slot).unwrap();
        say(&format!("consumed {step}"));
        copy(&device, &pinned, &data).unwrap();
        assert_eq!(contents(&pinned), vec![step as u8 + 1; STEP_BYTES]);
    }
    say("all right");
}

/// Two processes' ranks on a mock network, with slots in memory that the GPU has pinned.
struct Pinned;

impl TransportFixture for Pinned {
    fn ranks() -> Result<[TestRank; 2]> {
        let fabric = MockFabric::new(MockConfig::default())?;
        let rank = |rank: u32| {
            let device = Arc::new(CudaDevice::new(rank)?);
            let options = NetOptions::default().memory(device);
            let transport = Arc::new(NetTransport::new(Arc::new(fabric.card()?), options)?);
            let (host, process) = (HostId([1; 16]), ProcessId([rank as u8; 16]));
            TestRank::new(rank, host, process, transport, Doorbells::local())
        };
        Ok([rank(0)?, rank(1)?])
    }
}

/// Host memory of a slot as the device sees it.
///
/// # Safety
///
/// The slot is valid until the copy is done.
unsafe fn slot(data: std::ptr::NonNull<u8>, len_bytes: usize) -> DeviceMemory {
    // SAFETY: the caller's promise; the connection owns the memory.
    unsafe { DeviceMemory::from_raw_parts(data, len_bytes, MemoryKind::HostPinned, Arc::new(())) }
}

fn wait(event: &dyn DeviceEvent) -> Result<()> {
    event.wait(Instant::now() + Duration::from_secs(60))
}

/// A sender that copies from its GPU into slots; the copy of one step goes on while the next slot is
/// asked for.
struct Sender {
    device: CudaDevice,
    end: Box<dyn MessageSend>,
    data: DeviceMemory,
    started: usize,
    /// Copies that are under way, oldest first.
    copies: std::collections::VecDeque<Box<dyn DeviceEvent>>,
    most_at_once: usize,
}

impl Sender {
    fn advance(&mut self, step_bytes: usize) -> Result<()> {
        while self.started < STEPS
            && let Some(free) = self.end.try_slot_ahead(self.copies.len())?
        {
            let from = self.data.slice(self.started * step_bytes, step_bytes)?;
            // SAFETY: the slot stays valid until it is published, which the copy precedes.
            let to = unsafe { slot(free.data, step_bytes) };
            // SAFETY: nobody else has the slot, nobody writes to the data.
            self.copies
                .push_back(unsafe { self.device.copy(&to, &from) }?);
            self.started += 1;
            self.most_at_once = self.most_at_once.max(self.copies.len());
        }
        if let Some(first) = self.copies.pop_front() {
            wait(&*first)?;
            let header = StepHeader {
                bytes: step_bytes,
                signature_hash: 7,
                signature: [1, 2, 3],
            };
            self.end.publish(header)?;
        }
        self.end.progress()?;
        Ok(())
    }
}

pub(crate) fn over_a_network() -> Result<(), Failed> {
    let rig = Rig::new::<Pinned>()?;
    let edge = rig.edge();
    let step_bytes = edge.step_bytes;
    let connected = rig.connect_edge(&edge)?;
    let (SendEnd::Message(send), RecvEnd::Message(mut recv)) = (connected.send, connected.recv)
    else {
        return Err("a network makes message edges".into());
    };
    let (sender, receiver) = (CudaDevice::new(0)?, CudaDevice::new(1)?);
    let total = STEPS * step_bytes;
    let pattern: Vec<u8> = (0..total).map(|at| (at / 7 % 251) as u8).collect();
    let pinned = sender.alloc_pinned(total)?;
    // SAFETY: pinned memory of this length that nobody else has.
    unsafe { pinned.as_ptr().as_ptr().copy_from(pattern.as_ptr(), total) };
    let (data, arrived) = (sender.alloc(total)?, receiver.alloc(total)?);
    copy(&sender, &data, &pinned)?;
    let mut sending = Sender {
        device: sender,
        end: send,
        data,
        started: 0,
        copies: Default::default(),
        most_at_once: 0,
    };
    let mut received = 0;
    while received < STEPS {
        sending.advance(step_bytes)?;
        received += receive_steps(&receiver, &mut *recv, &arrived, received)?;
    }
    assert!(
        sending.most_at_once > 1,
        "copies of several steps go on at once"
    );
    let back = receiver.alloc_pinned(total)?;
    copy(&receiver, &back, &arrived)?;
    assert!(contents(&back) == pattern, "what arrived is what was sent");
    Ok(())
}

/// Starts to copy all steps that have arrived, then gives their slots back in order.
fn receive_steps(
    device: &CudaDevice,
    end: &mut dyn MessageRecv,
    arrived: &DeviceMemory,
    first: usize,
) -> Result<usize> {
    end.progress()?;
    let mut copies = Vec::new();
    while let Some(step) = end.try_step_ahead(copies.len())? {
        let bytes = step.header.bytes;
        // SAFETY: the slot stays valid until it is consumed, which the copy precedes.
        let from = unsafe { slot(step.data, bytes) };
        let to = arrived.slice((first + copies.len()) * bytes, bytes)?;
        // SAFETY: nobody else accesses the target, the network writes to no step that has arrived.
        copies.push(unsafe { device.copy(&to, &from) }?);
    }
    for event in &copies {
        wait(&**event)?;
        end.consume()?;
    }
    Ok(copies.len())
}
