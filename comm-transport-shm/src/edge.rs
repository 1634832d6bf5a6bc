//! The two ends of an edge between set-up and connection.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use comm_core::doorbell::Doorbells;
use comm_core::fifo::{CONTROL_BYTES, FifoLayout, FifoMemory};
use comm_core::memory::{SealedMemory, SharedMapping};
use comm_core::{
    ConnInfo, ConnectHandle, Edge, Error, ErrorKind, RecvSetup, Result, SendSetup, async_trait,
};

use crate::handle::{EdgeKey, Role};
use crate::peers::ring_target;
use crate::pull::Probe;

/// The sending end: holds nothing until the receiving end's memory arrives.
#[derive(Debug)]
pub(crate) struct ShmSendSetup {
    key: EdgeKey,
    doorbells: Arc<Doorbells>,
}

impl ShmSendSetup {
    pub(crate) fn new(edge: &Edge<'_>, doorbells: &Arc<Doorbells>) -> Result<Self> {
        Ok(Self {
            key: EdgeKey::new(edge)?,
            doorbells: Arc::clone(doorbells),
        })
    }
}

#[async_trait]
impl SendSetup for ShmSendSetup {
    fn handle(&mut self) -> Result<ConnectHandle> {
        let fds = vec![duplicate(doorbells_fd(&self.doorbells)?)?];
        Ok(ConnectHandle {
            bytes: Probe::of_this_process().append_to(&self.key.encode(Role::Sender)),
            fds,
        })
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, _: Instant) -> Result<ConnInfo> {
        self.key.check(Role::Receiver, &remote.bytes)?;
        let [segment, doorbells] = exactly(remote.fds)?;
        let target = ring_target(&self.doorbells, doorbells)?;
        let layout = self.key.layout();
        let memory = SealedMemory::map(segment, layout.total_bytes())?.into_mapping();
        Ok(ConnInfo::MemorySend(
            fifo(memory, layout)?.into_sender(target),
        ))
    }
}

/// The receiving end: owns the memory of the edge.
#[derive(Debug)]
pub(crate) struct ShmRecvSetup {
    key: EdgeKey,
    doorbells: Arc<Doorbells>,
    memory: SealedMemory,
    pulls: bool,
}

impl ShmRecvSetup {
    pub(crate) fn new(edge: &Edge<'_>, doorbells: &Arc<Doorbells>, pulls: bool) -> Result<Self> {
        let key = EdgeKey::new(edge)?;
        let memory = SealedMemory::create("comm-edge", key.layout().total_bytes())?;
        Ok(Self {
            key,
            doorbells: Arc::clone(doorbells),
            memory,
            pulls,
        })
    }
}

#[async_trait]
impl RecvSetup for ShmRecvSetup {
    fn handle(&mut self) -> Result<ConnectHandle> {
        let fds = vec![
            duplicate(self.memory.fd())?,
            duplicate(doorbells_fd(&self.doorbells)?)?,
        ];
        Ok(ConnectHandle {
            bytes: self.key.encode(Role::Receiver),
            fds,
        })
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, _: Instant) -> Result<ConnInfo> {
        let (handle, probe) = Probe::split_from(&remote.bytes)?;
        self.key.check(Role::Sender, handle)?;
        let [doorbells] = exactly(remote.fds)?;
        let target = ring_target(&self.doorbells, doorbells)?;
        let mut memory = fifo(self.memory.into_mapping(), self.key.layout())?.mapping();
        if let Some(peer) = self.pulls.then(|| probe.try_reach()).flatten() {
            memory = memory.pulling(Arc::new(peer));
        }
        Ok(ConnInfo::MemoryRecv(memory.into_receiver(target)))
    }
}

/// The FIFO in an edge's memory. Its control page is got now, so that the first steps do not pay
/// for it; slots get theirs when they are used.
fn fifo(memory: SharedMapping, layout: FifoLayout) -> Result<FifoMemory> {
    memory.prefault(CONTROL_BYTES)?;
    let (base, len_bytes) = (memory.as_ptr(), memory.len_bytes());
    // SAFETY: the mapping is writable and lives in its owner. It was made for this end of this
    // edge, so this process makes one end of it, and no other way leads to it. A peer that passes
    // one file for two edges is one that writes to the contents, which it may.
    unsafe { FifoMemory::from_raw(base, len_bytes, layout, Arc::new(memory)) }
}

fn doorbells_fd(doorbells: &Doorbells) -> Result<BorrowedFd<'_>> {
    doorbells.fd().ok_or_else(|| {
        Error::new(
            ErrorKind::Internal,
            "shared memory edges need doorbells in shared memory",
        )
    })
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned()
        .map_err(|error| Error::system("duplicating a descriptor for a peer", error))
}

fn exactly<const N: usize>(fds: Vec<OwnedFd>) -> Result<[OwnedFd; N]> {
    let actual = fds.len();
    fds.try_into().map_err(|_| {
        Error::new(
            ErrorKind::Protocol,
            "a shared memory handle came with too many or too few files",
        )
        .with("expected", N)
        .with("actual", actual)
    })
}
