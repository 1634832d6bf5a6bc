//! A transport of one's own: step FIFOs in memory files, without names and leftovers.
//!
//! What `comm-transport-shm` does, reduced to what the contract asks for. The receiving end makes
//! the memory of an edge; its handle carries the file, and the sending end maps it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use comm_core::doorbell::{Doorbells, PeerDoorbells, RingTarget};
use comm_core::fifo::{FifoLayout, FifoMemory};
use comm_core::memory::SealedMemory;
use comm_core::{
    Capabilities, ConnInfo, ConnectHandle, Edge, Error, ErrorKind, RecvSetup, Result, SendSetup,
    Transport, Verdict, async_trait,
};

/// How users name it: `COMM_TRANSPORTS=memfile`.
pub(crate) const NAME: &str = "memfile";

/// Version of facts and handles; different versions do not connect.
const FACTS: &[u8] = b"memfile 1";

/// Connects the ranks of one host.
#[derive(Debug)]
pub(crate) struct MemfileTransport {
    doorbells: Arc<Doorbells>,
}

impl MemfileTransport {
    /// A transport for the threads that wait at `doorbells`.
    pub(crate) const fn new(doorbells: Arc<Doorbells>) -> Self {
        Self { doorbells }
    }
}

#[async_trait]
impl Transport for MemfileTransport {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.same_process = true;
        capabilities.same_host = true;
        capabilities.passes_fds = true;
        capabilities
    }

    fn facts(&self) -> Result<Bytes> {
        // An error here takes the transport out of the running, with its text as the reason.
        shared_file(&self.doorbells)?;
        Ok(Bytes::from_static(FACTS))
    }

    fn can_connect(&self, edge: &Edge<'_>) -> Verdict {
        if edge.sender.host != edge.receiver.host {
            return Verdict::No("the ranks are on different hosts".to_owned());
        }
        for info in [edge.sender, edge.receiver] {
            if info
                .transport_facts(NAME)
                .is_none_or(|facts| facts != FACTS)
            {
                return Verdict::No(format!("rank {} has no {NAME} transport", info.rank));
            }
        }
        Verdict::Yes
    }

    async fn setup_send(&self, edge: &Edge<'_>, _deadline: Instant) -> Result<Box<dyn SendSetup>> {
        Ok(Box::new(SendSide {
            layout: FifoLayout::new(edge.step_bytes)?,
            edge: describe(edge),
            doorbells: Arc::clone(&self.doorbells),
        }))
    }

    async fn setup_recv(&self, edge: &Edge<'_>, _deadline: Instant) -> Result<Box<dyn RecvSetup>> {
        let layout = FifoLayout::new(edge.step_bytes)?;
        Ok(Box::new(RecvSide {
            layout,
            edge: describe(edge),
            memory: SealedMemory::create("memfile-edge", layout.total_bytes())?,
            doorbells: Arc::clone(&self.doorbells),
        }))
    }
}

/// The sending end: owns nothing until it gets the receiving end's memory.
#[derive(Debug)]
struct SendSide {
    layout: FifoLayout,
    edge: String,
    doorbells: Arc<Doorbells>,
}

#[async_trait]
impl SendSetup for SendSide {
    fn handle(&mut self) -> Result<ConnectHandle> {
        Ok(ConnectHandle {
            bytes: handle_bytes("sender", &self.edge),
            fds: vec![duplicate(shared_file(&self.doorbells)?)?],
        })
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, _: Instant) -> Result<ConnInfo> {
        let [memory, doorbells] = check(remote, "receiver", &self.edge)?;
        // Size and seals are checked before anything is mapped.
        let memory = SealedMemory::map(memory, self.layout.total_bytes())?;
        let sender = fifo(memory, self.layout)?.into_sender(peer(doorbells)?);
        Ok(ConnInfo::MemorySend(sender))
    }
}

/// The receiving end: owns the memory. Dropping it at any point gives the memory back.
#[derive(Debug)]
struct RecvSide {
    layout: FifoLayout,
    edge: String,
    memory: SealedMemory,
    doorbells: Arc<Doorbells>,
}

#[async_trait]
impl RecvSetup for RecvSide {
    fn handle(&mut self) -> Result<ConnectHandle> {
        Ok(ConnectHandle {
            bytes: handle_bytes("receiver", &self.edge),
            fds: vec![
                duplicate(self.memory.fd())?,
                duplicate(shared_file(&self.doorbells)?)?,
            ],
        })
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, _: Instant) -> Result<ConnInfo> {
        let [doorbells] = check(remote, "sender", &self.edge)?;
        let receiver = fifo(self.memory, self.layout)?.into_receiver(peer(doorbells)?);
        Ok(ConnInfo::MemoryRecv(receiver))
    }
}

/// What both ends know about the edge beforehand.
fn describe(edge: &Edge<'_>) -> String {
    format!("{edge}, {} bytes a step", edge.step_bytes)
}

fn handle_bytes(role: &str, edge: &str) -> Bytes {
    Bytes::from(format!("{role} of {edge}"))
}

/// Whether the other end means the same edge; the descriptors that it sent.
fn check<const N: usize>(remote: ConnectHandle, role: &str, edge: &str) -> Result<[OwnedFd; N]> {
    if remote.bytes != handle_bytes(role, edge) {
        let message =
            "the two ends of a memfile edge disagree; all ranks must run the same version";
        return Err(Error::new(ErrorKind::Protocol, message).with("edge", edge));
    }
    remote.fds.try_into().map_err(|fds: Vec<OwnedFd>| {
        Error::new(
            ErrorKind::Protocol,
            "a memfile handle has other descriptors",
        )
        .with("expected", N)
        .with("actual", fds.len())
    })
}

fn fifo(memory: SealedMemory, layout: FifoLayout) -> Result<FifoMemory> {
    let memory = memory.into_mapping();
    let (base, len_bytes) = (memory.as_ptr(), memory.len_bytes());
    // SAFETY: the mapping stays as long as its owner, which the FIFO keeps. Each end maps the file
    // for itself and makes one end of it, and there is no other way to it in this process.
    unsafe { FifoMemory::from_raw(base, len_bytes, layout, Arc::new(memory)) }
}

/// How this end wakes the other one.
fn peer(doorbells: OwnedFd) -> Result<RingTarget> {
    Ok(RingTarget::Peer(Arc::new(PeerDoorbells::map(doorbells)?)))
}

fn shared_file(doorbells: &Doorbells) -> Result<BorrowedFd<'_>> {
    doorbells.fd().ok_or_else(|| {
        Error::new(
            ErrorKind::Unavailable,
            "the doorbells of this process are not in shared memory",
        )
    })
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned()
        .map_err(|error| Error::system("duplicating a descriptor for a peer", error))
}
