//! Memory that peers read directly: allocating it, and answering peers that did.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use comm_core::{
    ConnectionIndex, DType, Edge, Error, PeerInfo, ProcessId, Rank, Result, TensorLayout, TensorMut,
};

use super::{Communicator, Core};
use crate::edge::candidates::candidate;
use crate::region::{Generation, MemStats, Region, RegionId, RegionMessage, Route, Span};

/// The name under which allocations appear in `/proc`.
#[cfg(target_os = "linux")]
const FILE_NAME: &str = "comm-mem";

impl Communicator {
    /// A tensor of zeros in memory that the other processes of this host read directly.
    ///
    /// An ordinary tensor, aligned to a page: any operation takes it, also of other communicators, and
    /// mixed with ordinary memory on this or other ranks; results are the same. But what an operation
    /// finds in it need not be copied to shared memory first, since peers have mapped it, for reading
    /// only. Worth it for large buffers that are used again and again.
    ///
    /// Local: each rank calls it if and when it likes. The memory is announced to the processes that
    /// are ranks of this communicator, on this host, and connected by shared memory; those that come
    /// later with another communicator, and those that can't map it, are reached through slots as
    /// always, and [`explain`](Communicator::explain) says why. Dropping the last handle of the tensor
    /// gives the memory back; peers unmap it when they hear of that.
    ///
    /// All pages are got here, near the calling thread's CPU. They count towards the memory limit of
    /// the cgroup, not towards the size of `/dev/shm`. A forked child does not have them: it must not
    /// touch the tensor. A tensor without elements is ordinary memory.
    ///
    /// Blocks until the pages are there and the peers have answered, which their control threads do
    /// without any call of their users; a peer that does not answer within the connect timeout counts
    /// as one that can't map it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use comm_runtime::{CommunicatorBuilder, control::rendezvous::LocalRendezvous};
    /// use comm_core::{DType, ReduceOp};
    ///
    /// # let alone = Arc::new(LocalRendezvous::new());
    /// # let comm = CommunicatorBuilder::new().rank(0, 1).rendezvous(alone).build()?;
    /// let mut gradients = comm.mem_alloc(DType::F32, &[10, 100])?;
    /// gradients.as_mut_slice::<f32>()?.fill(0.5);
    /// comm.all_reduce(gradients.as_mut_slice::<f32>()?, ReduceOp::Sum)?;
    /// assert_eq!(gradients.as_slice::<f32>()?[999], 0.5 * comm.world_size() as f32);
    /// # Ok::<(), comm_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](comm_core::ErrorKind) for a shape that is larger than the address
    /// space, [`ErrorKind::ResourceExhausted`](comm_core::ErrorKind) if there is not as much memory,
    /// [`ErrorKind::Poisoned`](comm_core::ErrorKind) if the communicator has failed, and its failure
    /// if that happens meanwhile.
    pub fn mem_alloc(&self, dtype: DType, shape: &[usize]) -> Result<TensorMut> {
        self.core.check_usable()?;
        let layout = TensorLayout::contiguous(dtype, shape)?;
        if layout.len_bytes() == 0 {
            return TensorMut::zeros(dtype, shape);
        }
        self.core.allocate(layout)
    }

    /// What this process has allocated by [`mem_alloc`](Communicator::mem_alloc) and mapped of others,
    /// over all its communicators.
    #[must_use]
    pub fn mem_stats(&self) -> MemStats {
        self.core.process.regions().stats()
    }
}

impl Core {
    #[cfg(target_os = "linux")]
    fn allocate(&self, layout: TensorLayout) -> Result<TensorMut> {
        use crate::region::RegionStorage;
        use comm_core::memory::SealedMemory;

        let memory = SealedMemory::create_exclusive(FILE_NAME, layout.len_bytes())?;
        let exclusive = memory.is_exclusive();
        let (fd, mapping) = memory.into_parts();
        let span = Span::new(mapping.as_ptr().addr().get() as u64, mapping.len_bytes())
            .ok_or_else(|| Error::new(comm_core::ErrorKind::Internal, "memory at no address"))?;
        let region = self.process.regions().add(span);
        let storage = RegionStorage::new(Arc::clone(&region), mapping, self.fork);
        if exclusive {
            self.announce(&region, &fd);
        } else {
            for (rank, _) in self.readers() {
                let reason = "this kernel cannot seal memory against writers (Linux 5.1 can)";
                self.neighbours.note(rank, Some(reason.to_owned()));
            }
        }
        drop(fd);
        // A failure meanwhile ended the waiting; the tensor is of no use then.
        self.check_usable()?;
        TensorMut::from_storage(Arc::new(storage), layout)
    }

    #[cfg(not(target_os = "linux"))]
    fn allocate(&self, layout: TensorLayout) -> Result<TensorMut> {
        TensorMut::zeros(layout.dtype(), layout.shape())
    }

    /// The other ranks, each with what keeps edges to it from leading to mapped memory.
    fn readers(&self) -> Vec<(Rank, Option<String>)> {
        let others = self.peers.iter().filter(|peer| peer.rank != self.rank);
        let own = self.peers.get(self.rank as usize);
        others
            .map(|peer| {
                let obstacle = own.and_then(|own| self.obstacle(own, peer));
                (peer.rank, obstacle)
            })
            .collect()
    }

    /// Why memory of one rank is not mapped by another one, judged by the transport that carries edges
    /// from one to the other.
    fn obstacle(&self, owner: &PeerInfo, reader: &PeerInfo) -> Option<String> {
        let step_bytes = self.planner.config().step_bytes;
        let edge = Edge::new(owner, reader, ConnectionIndex::Collective, step_bytes);
        let mut reasons = Vec::new();
        for transport in &self.transports {
            match candidate(transport.as_ref(), &edge) {
                None if transport.capabilities().maps_memory => return None,
                None => {
                    let name = transport.name();
                    reasons.push(format!("transport {name} connects the ranks"));
                    break;
                }
                Some(reason) if transport.capabilities().maps_memory => {
                    reasons.push(format!("{}: {reason}", transport.name()));
                }
                Some(_) => {}
            }
        }
        for (name, reason) in self.unavailable_transports() {
            reasons.push(format!("{name}: {reason}"));
        }
        Some(reasons.join("; "))
    }

    /// Has the processes that edges with mapped memory lead to map the region, and waits for them.
    fn announce(&self, region: &Arc<Region>, fd: &OwnedFd) {
        let mut asked: Vec<(ProcessId, Rank)> = Vec::new();
        for (rank, obstacle) in self.readers() {
            let process = self.peers[rank as usize].process;
            let Some(pair) = self.neighbours.pair(rank) else {
                self.neighbours.note(rank, obstacle);
                continue;
            };
            if obstacle.is_some() {
                self.neighbours.note(rank, obstacle);
            } else if asked.iter().all(|(known, _)| *known != process) {
                asked.push((process, rank));
                let core = self.this.get().cloned().unwrap_or_default();
                region.expect(process, pair, Route { core, rank });
            }
        }
        let message = RegionMessage::Map {
            id: region.id(),
            span: region.span(),
        };
        for &(process, rank) in &asked {
            let told = fd
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| Error::system("duplicating a descriptor for a peer", error))
                .and_then(|fd| self.tell_region(rank, &message, Some(fd)));
            if let Err(error) = told {
                self.note_process(process, Some(error.to_string()));
                region.answer(process, None);
            }
        }
        // A failure after this is one that the region hears of.
        if self.abort.has_failed() {
            return;
        }
        for process in region.wait(Instant::now() + self.connect_timeout) {
            let reason = "no answer came within the connect timeout".to_owned();
            self.note_process(process, Some(reason));
        }
    }

    /// Notes what became of the latest allocation at the ranks of a process.
    fn note_process(&self, process: ProcessId, obstacle: Option<String>) {
        let ranks = self.peers.iter().filter(|peer| peer.process == process);
        for peer in ranks.filter(|peer| peer.rank != self.rank) {
            self.neighbours.note(peer.rank, obstacle.clone());
        }
    }

    /// A message of a peer about regions; called on the control thread.
    pub(super) fn on_region_message(
        &self,
        from: Rank,
        message: RegionMessage,
        fds: Vec<OwnedFd>,
        fds_error: Option<Error>,
    ) {
        match message {
            RegionMessage::Map { id, span } => {
                let result = match fds_error {
                    Some(error) => Err(error),
                    None => self.map_region(from, id, span, fds),
                };
                if let Err(error) = &result {
                    tracing::debug!(rank = self.rank, from, %error, "memory of a peer is not mapped");
                }
                let answer = RegionMessage::Answer {
                    id,
                    result: result.map_err(|error| error.to_string()),
                };
                // An owner that is gone needs no answer.
                let _ = self.tell_region(from, &answer, None);
            }
            RegionMessage::Answer { id, result } => self.on_region_answer(from, id, result),
            RegionMessage::Withdraw { id } => {
                if let Some(pair) = self.neighbours.pair(from) {
                    pair.forget(id);
                }
            }
        }
    }

    fn map_region(
        &self,
        from: Rank,
        id: RegionId,
        span: Span,
        fds: Vec<OwnedFd>,
    ) -> Result<Generation> {
        let refuse = |reason: String| Error::new(comm_core::ErrorKind::Unavailable, reason);
        let (Some(owner), Some(own)) = (
            self.peers.get(from as usize),
            self.peers.get(self.rank as usize),
        ) else {
            return Err(refuse("there is no such rank".to_owned()));
        };
        if let Some(obstacle) = self.obstacle(owner, own) {
            return Err(refuse(obstacle));
        }
        let pair = self
            .neighbours
            .pair(from)
            .ok_or_else(|| refuse("the ranks are on different hosts".to_owned()))?;
        let Ok([fd]) = <[OwnedFd; 1]>::try_from(fds) else {
            return Err(refuse("the memory came without its file".to_owned()));
        };
        pair.import(id, span, fd)
    }

    fn on_region_answer(&self, from: Rank, id: RegionId, result: Result<Generation, String>) {
        let Some(peer) = self.peers.get(from as usize) else {
            return;
        };
        // An answer can come after the tensor is gone.
        let Some(region) = self.process.regions().get(id) else {
            return;
        };
        if !region.is_expected(peer.process) {
            tracing::warn!(
                rank = self.rank,
                from,
                "an answer came that nobody asked for"
            );
            return;
        }
        let generation = result.as_ref().ok().copied();
        // First, so that whoever waits for the answer finds the reason.
        self.note_process(peer.process, result.err());
        region.answer(peer.process, generation);
    }

    /// A rank has left: its memory is not used any more, and nothing it was asked is answered.
    pub(super) fn forget_regions_of(&self, rank: Rank) {
        self.give_up_regions(|left| left == rank);
        let Some(process) = self.peers.get(rank as usize).map(|peer| peer.process) else {
            return;
        };
        let mut ranks = self.peers.iter().filter(|peer| peer.process == process);
        if ranks.all(|peer| self.has_left(peer.rank)) {
            self.neighbours.end(process);
        }
    }

    /// The communicator has failed: nobody reads or offers anything over it any more.
    pub(super) fn forget_all_regions(&self) {
        self.give_up_regions(|_| true);
        self.neighbours.end_all();
    }

    fn give_up_regions(&self, ranks: impl Fn(Rank) -> bool) {
        let Some(core) = self.this.get() else { return };
        for region in self.process.regions().all() {
            region.give_up(core, &ranks);
        }
    }
}
