//! Two ranks, an edge between them, and threads that wait the way the runtime does.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::net::NetBackend;
use comm_core::{
    Armed, ConnInfo, ConnectionIndex, Edge, Error, HostId, MessageRecv, MessageSend, PeerInfo,
    ProcessId, RecvSetup, Result, SendSetup, StepHeader, Transport,
};
use comm_testkit::net::{MockConfig, MockFabric, MockRdma};
use comm_transport_net::{NetOptions, NetTransport};

/// What ends a test that is stuck.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

pub(crate) const STEP: usize = 10_000;

/// Two ranks in two would-be processes: rank 0 sends, rank 1 receives.
pub(crate) struct World {
    pub(crate) cards: [Arc<MockRdma>; 2],
    pub(crate) transports: [NetTransport; 2],
    pub(crate) peers: [PeerInfo; 2],
    pub(crate) step_bytes: [usize; 2],
}

pub(crate) type Ends = (Box<dyn MessageSend>, Box<dyn MessageRecv>);

impl World {
    pub(crate) fn new(config: MockConfig, options: &NetOptions) -> Self {
        Self::over(config, options, |card| card)
    }

    /// A world whose transports see the cards through `wrap`.
    pub(crate) fn over<B: NetBackend + 'static>(
        config: MockConfig,
        options: &NetOptions,
        wrap: impl Fn(Arc<MockRdma>) -> Arc<B>,
    ) -> Self {
        let fabric = MockFabric::new(config).unwrap();
        let cards = [0, 1].map(|_| Arc::new(fabric.card().unwrap()));
        let transports = [0, 1].map(|rank: usize| {
            NetTransport::new(wrap(Arc::clone(&cards[rank])), options.clone()).unwrap()
        });
        let peers = [0, 1].map(|rank: u8| {
            // The mock reaches ranks of one process only.
            let mut peer = PeerInfo::new(rank.into(), HostId([1; 16]), ProcessId([1; 16]));
            peer.host_name = "testhost".to_owned();
            let transport = &transports[usize::from(rank)];
            peer.transports
                .insert(transport.name().to_owned(), transport.facts().unwrap());
            peer
        });
        Self {
            cards,
            transports,
            peers,
            step_bytes: [STEP; 2],
        }
    }

    /// The edge as one of the ranks sees it.
    pub(crate) fn edge(&self, rank: usize) -> Edge<'_> {
        let index = ConnectionIndex::Collective;
        Edge::new(&self.peers[0], &self.peers[1], index, self.step_bytes[rank])
    }

    /// Connects one more edge, or says what each side says.
    pub(crate) fn try_connect(&self) -> (Result<ConnInfo>, Result<ConnInfo>) {
        let deadline = Instant::now() + WATCHDOG;
        let prepared = (|| {
            let recv = block_on(self.transports[1].setup_recv(&self.edge(1), deadline))?;
            let send = block_on(self.transports[0].setup_send(&self.edge(0), deadline))?;
            Ok((send, recv))
        })();
        let (mut send, mut recv): (Box<dyn SendSetup>, Box<dyn RecvSetup>) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                let error: Error = error;
                return (Err(error.clone()), Err(error));
            }
        };
        let (from_send, from_recv) = match (send.handle(), recv.handle()) {
            (Ok(send), Ok(recv)) => (send, recv),
            (Err(error), _) | (_, Err(error)) => return (Err(error.clone()), Err(error)),
        };
        let mut sending = send.connect(from_recv, deadline);
        let mut receiving = recv.connect(from_send, deadline);
        let (mut sent, mut received) = (None, None);
        block_on(poll_fn(|context| {
            poll_into(&mut sent, sending.as_mut(), context);
            poll_into(&mut received, receiving.as_mut(), context);
            // One end that fails ends the other one's waiting, as the control plane would.
            match (&sent, &received) {
                (Some(Err(error)), None) => received = Some(Err(error.clone())),
                (None, Some(Err(error))) => sent = Some(Err(error.clone())),
                _ => {}
            }
            match (sent.take(), received.take()) {
                (Some(sent), Some(received)) => Poll::Ready((sent, received)),
                unfinished => {
                    (sent, received) = unfinished;
                    Poll::Pending
                }
            }
        }))
    }

    pub(crate) fn connect(&self) -> Ends {
        match self.try_connect() {
            (Ok(ConnInfo::MessageSend(send)), Ok(ConnInfo::MessageRecv(recv))) => (send, recv),
            (send, recv) => panic!("not connected: {send:?}, {recv:?}"),
        }
    }
}

/// Polls a future that has no result yet.
fn poll_into<T>(
    result: &mut Option<T>,
    future: Pin<&mut (dyn Future<Output = T> + Send)>,
    context: &mut Context<'_>,
) {
    if result.is_none()
        && let Poll::Ready(value) = future.poll(context)
    {
        *result = Some(value);
    }
}

/// Runs a future on this thread, asleep while it waits.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park();
    }
}

/// A doorbell for a waiting thread.
pub(crate) fn doorbell() -> Doorbell {
    Doorbells::local().claim().unwrap()
}

pub(crate) fn header(bytes: usize, number: u64) -> StepHeader {
    StepHeader {
        bytes,
        signature_hash: number as u32 & 0x7FFF_FFFF,
        signature: [number, 2, 3],
    }
}

/// Publishes a step if there is a slot.
pub(crate) fn try_send(end: &mut dyn MessageSend, number: u64, bytes: &[u8]) -> Result<Option<()>> {
    let Some(slot) = end.try_slot()? else {
        return Ok(None);
    };
    assert!(bytes.len() <= slot.capacity_bytes);
    // SAFETY: the slot is ours until it is published and has this capacity.
    unsafe {
        slot.data
            .as_ptr()
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
    };
    end.publish(header(bytes.len(), number))?;
    Ok(Some(()))
}

/// Takes a step if one has arrived.
pub(crate) fn try_recv(end: &mut dyn MessageRecv) -> Result<Option<(StepHeader, Vec<u8>)>> {
    let Some(step) = end.try_step()? else {
        return Ok(None);
    };
    let mut bytes = vec![0; step.header.bytes];
    // SAFETY: the payload is ours until it is consumed and has this length.
    unsafe {
        bytes
            .as_mut_ptr()
            .copy_from_nonoverlapping(step.data.as_ptr(), bytes.len())
    };
    end.consume()?;
    Ok(Some((step.header, bytes)))
}

/// Publishes a step, asleep until there is a slot.
pub(crate) fn send(
    end: &mut dyn MessageSend,
    doorbell: &Doorbell,
    number: u64,
    bytes: &[u8],
) -> Result<()> {
    loop {
        if let Some(()) = try_send(end, number, bytes)? {
            return Ok(());
        }
        if !end.progress()? {
            let ticket = doorbell.ticket();
            if end.arm(doorbell)? == Armed::WillRing {
                assert!(
                    doorbell.wait(ticket, Some(WATCHDOG)),
                    "nobody rang the sender"
                );
            }
        }
    }
}

/// Takes the next step, asleep until it comes.
pub(crate) fn recv(
    end: &mut dyn MessageRecv,
    doorbell: &Doorbell,
) -> Result<(StepHeader, Vec<u8>)> {
    loop {
        if let Some(step) = try_recv(end)? {
            return Ok(step);
        }
        if !end.progress()? {
            let ticket = doorbell.ticket();
            if end.arm(doorbell)? == Armed::WillRing {
                assert!(
                    doorbell.wait(ticket, Some(WATCHDOG)),
                    "nobody rang the receiver"
                );
            }
        }
    }
}

/// As [`recv`], without ever driving: only the engine's thread does.
pub(crate) fn recv_asleep(
    end: &mut dyn MessageRecv,
    doorbell: &Doorbell,
) -> Result<(StepHeader, Vec<u8>)> {
    loop {
        let ticket = doorbell.ticket();
        if end.arm(doorbell)? == Armed::WillRing {
            assert!(
                doorbell.wait(ticket, Some(WATCHDOG)),
                "nobody rang the receiver"
            );
        }
        if let Some(step) = try_recv(end)? {
            return Ok(step);
        }
    }
}

/// Looks every millisecond until it is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let stuck = Instant::now() + WATCHDOG;
    while !is_so() {
        assert!(Instant::now() < stuck, "still waiting for: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A mock network with this seed.
pub(crate) fn seeded(seed: u64) -> MockConfig {
    let mut config = MockConfig::default();
    config.seed = seed;
    config
}

/// A mock network with this seed, whose ends can post all their slots at once and always.
pub(crate) fn roomy(seed: u64) -> MockConfig {
    let mut config = seeded(seed);
    config.max_outstanding = 8;
    config.refuse_one_in = 0;
    config
}
