//! Both sides of a test: the rank that a process is, and what the second process does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::doorbell::Doorbells;
use comm_core::{
    Algorithm, ConnectHandle, ConnectionIndex, DType, Edge, ErrorKind, HostId, OperationKind,
    PeerInfo, ProcessId, Rank, Signature, Transport, Verdict,
};
use comm_testkit::transport::{RecvEnd, SendEnd, Waiter, block_on};
use comm_testkit::watchdog::with_watchdog;
use comm_transport_shm::ShmTransport;

use crate::wire::Wire;

/// The variable that makes this binary a peer.
pub(crate) const ROLE: &str = "COMM_SHM_TEST_PEER";

/// Sends back what it receives, until the other side closes.
pub(crate) const ECHO: &str = "echo";
/// Sends numbered steps as fast as it can.
pub(crate) const STREAM: &str = "stream";
/// Connects and then sleeps in a receive.
pub(crate) const SLEEP: &str = "sleep";

pub(crate) const STEP_BYTES: usize = 4096;

/// This process as a rank that knows its peer.
pub(crate) struct Process {
    pub(crate) doorbells: Arc<Doorbells>,
    transport: ShmTransport,
    own: PeerInfo,
    other: PeerInfo,
    wire: Wire,
}

impl Process {
    /// Exchanges facts with the other process, which must do the same.
    pub(crate) fn new(rank: Rank, wire: Wire) -> Self {
        let doorbells = Doorbells::shared().unwrap();
        let transport = ShmTransport::new(Arc::clone(&doorbells));
        wire.send(&ConnectHandle::from_bytes(transport.facts().unwrap()));
        let facts = [transport.facts().unwrap(), wire.recv().bytes];
        let [own, other] = [(rank, 0), (1 - rank, 1)].map(|(rank, at)| {
            let mut info = PeerInfo::new(rank, HostId([1; 16]), ProcessId([rank as u8; 16]));
            info.transports
                .insert(transport.name().to_owned(), facts[at].clone());
            info
        });
        Self {
            doorbells,
            transport,
            own,
            other,
            wire,
        }
    }

    /// Connects the edge on `channel` that leads to the other process.
    pub(crate) fn connect_send(&self, channel: u32) -> SendEnd {
        let edge = self.edge(&self.own, &self.other, channel);
        let mut setup = block_on(self.transport.setup_send(&edge, soon())).unwrap();
        self.wire.send(&setup.handle().unwrap());
        SendEnd::new(block_on(setup.connect(self.wire.recv(), soon())).unwrap()).unwrap()
    }

    /// Connects the edge on `channel` that comes from the other process.
    pub(crate) fn connect_recv(&self, channel: u32) -> RecvEnd {
        let edge = self.edge(&self.other, &self.own, channel);
        let mut setup = block_on(self.transport.setup_recv(&edge, soon())).unwrap();
        self.wire.send(&setup.handle().unwrap());
        RecvEnd::new(block_on(setup.connect(self.wire.recv(), soon())).unwrap()).unwrap()
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter::new(&self.doorbells).unwrap()
    }

    fn edge<'a>(&self, from: &'a PeerInfo, to: &'a PeerInfo, channel: u32) -> Edge<'a> {
        let edge = Edge::new(from, to, ConnectionIndex::Collective, STEP_BYTES).on_channel(channel);
        assert_eq!(self.transport.can_connect(&edge), Verdict::Yes);
        edge
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

pub(crate) fn signature(sequence: u64, bytes: usize) -> Signature {
    Signature {
        sequence,
        kind: OperationKind::PointToPoint,
        algorithm: Algorithm::Direct,
        dtype: Some(DType::U8),
        op: None,
        root: 0,
        count: bytes as u64,
    }
}

/// Contents of a step, all of which name it.
pub(crate) fn pattern(step: u64) -> Vec<u8> {
    let bytes = step as usize * 8 % (STEP_BYTES + 8);
    step.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// What the second process does.
pub(crate) fn main(role: &str) {
    with_watchdog(Duration::from_secs(300), || {
        let process = Process::new(1, Wire::from_stdin());
        let waiter = process.waiter();
        match role {
            ECHO => {
                let (mut from, mut to) = (process.connect_recv(0), process.connect_send(0));
                loop {
                    match from.recv(&waiter) {
                        Ok(step) => {
                            let signature = signature(0, step.payload.len());
                            to.send(&step.payload, &signature, &waiter).unwrap();
                        }
                        Err(error) if error.kind() == ErrorKind::PeerDied => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            STREAM => {
                let mut to = process.connect_send(0);
                for step in 0.. {
                    let payload = pattern(step);
                    to.send(&payload, &signature(step, payload.len()), &waiter)
                        .unwrap();
                }
            }
            SLEEP => {
                let mut from = process.connect_recv(0);
                let _to: Vec<_> = (0..8)
                    .map(|channel| process.connect_send(channel))
                    .collect();
                from.recv(&waiter).unwrap();
            }
            other => panic!("unknown role {other:?}"),
        }
    });
}
