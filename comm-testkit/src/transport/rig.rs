//! Brings edges to life without a runtime.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use comm_core::{
    ConnInfo, ConnectHandle, ConnectionIndex, Edge, Error, RecvSetup, Result, SendSetup, Signature,
};

use super::{Received, RecvEnd, SendEnd, TestRank, TransportFixture, Waiter};

/// How long one set-up call may take.
const SETUP_LIMIT: Duration = Duration::from_secs(120);

/// Two ranks of a fixture.
#[derive(Debug)]
pub struct Rig {
    /// The ranks; edges run from the first to the second unless said otherwise.
    pub ranks: [TestRank; 2],
    /// The step size of edges for which none is given.
    pub step_bytes: usize,
}

/// Both ends of a connected edge, each with a waiter for the thread that uses it.
#[derive(Debug)]
pub struct Connected {
    /// The sending end.
    pub send: SendEnd,
    /// The receiving end.
    pub recv: RecvEnd,
    /// Where the sending thread sleeps.
    pub send_waiter: Waiter,
    /// Where the receiving thread sleeps.
    pub recv_waiter: Waiter,
}

impl Rig {
    /// Fresh ranks of `F`.
    ///
    /// # Errors
    ///
    /// If the fixture fails.
    pub fn new<F: TransportFixture + ?Sized>() -> Result<Self> {
        let step_bytes = F::step_bytes().first().copied().unwrap_or(4096);
        Ok(Self {
            ranks: F::ranks()?,
            step_bytes,
        })
    }

    /// The edge from the first to the second rank.
    #[must_use]
    pub fn edge(&self) -> Edge<'_> {
        self.edge_between(&self.ranks[0], &self.ranks[1])
    }

    /// The edge from the second to the first rank.
    #[must_use]
    pub fn edge_back(&self) -> Edge<'_> {
        self.edge_between(&self.ranks[1], &self.ranks[0])
    }

    fn edge_between<'a>(&self, from: &'a TestRank, to: &'a TestRank) -> Edge<'a> {
        Edge::new(
            &from.info,
            &to.info,
            ConnectionIndex::Collective,
            self.step_bytes,
        )
    }

    /// The sending and the receiving rank of `edge`.
    #[must_use]
    pub fn ends_of(&self, edge: &Edge<'_>) -> [&TestRank; 2] {
        let [first, second] = &self.ranks;
        if edge.sender.rank == first.info.rank {
            [first, second]
        } else {
            [second, first]
        }
    }

    /// Both set-ups of `edge`, the receiving one first.
    ///
    /// # Errors
    ///
    /// Those of the transport.
    pub fn set_up(&self, edge: &Edge<'_>) -> Result<(Box<dyn SendSetup>, Box<dyn RecvSetup>)> {
        let [sender, receiver] = self.ends_of(edge);
        let deadline = Instant::now() + SETUP_LIMIT;
        let recv = block_on(receiver.transport.setup_recv(edge, deadline))?;
        let send = block_on(sender.transport.setup_send(edge, deadline))?;
        Ok((send, recv))
    }

    /// Sets `edge` up and connects it.
    ///
    /// # Errors
    ///
    /// Those of the transport.
    pub fn connect_edge(&self, edge: &Edge<'_>) -> Result<Connected> {
        let (mut send, mut recv) = self.set_up(edge)?;
        let (for_send, for_recv) = (recv.handle()?, send.handle()?);
        let deadline = Instant::now() + SETUP_LIMIT;
        let (send, recv) = connect_both(send, for_send, recv, for_recv, deadline);
        let [sender, receiver] = self.ends_of(edge);
        Ok(Connected {
            send: SendEnd::new(send?)?,
            recv: RecvEnd::new(recv?)?,
            send_waiter: Waiter::new(&sender.doorbells)?,
            recv_waiter: Waiter::new(&receiver.doorbells)?,
        })
    }

    /// Connects the edge from the first to the second rank.
    ///
    /// # Errors
    ///
    /// Those of the transport.
    pub fn connect(&self) -> Result<Connected> {
        self.connect_edge(&self.edge())
    }
}

impl Connected {
    /// Sends `payload` from the calling thread, which drives both ends until there is a slot.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    pub fn send_step(&mut self, payload: &[u8], signature: &Signature) -> Result<()> {
        self.drive(|send, _| Ok(send.try_send(payload, signature)?.then_some(())))
    }

    /// Receives the next step on the calling thread, which drives both ends until it is there.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    pub fn recv_step(&mut self) -> Result<Received> {
        self.drive(|_, recv| recv.try_recv())
    }

    /// Repeats `attempt` and drives both ends in between.
    ///
    /// # Errors
    ///
    /// The connection's failure.
    pub fn drive<T>(
        &mut self,
        mut attempt: impl FnMut(&mut SendEnd, &mut RecvEnd) -> Result<Option<T>>,
    ) -> Result<T> {
        loop {
            if let Some(value) = attempt(&mut self.send, &mut self.recv)? {
                return Ok(value);
            }
            if !(self.send.progress()? | self.recv.progress()?) {
                thread::yield_now();
            }
        }
    }
}

/// Connects both ends at the same time: a network needs both to take part.
fn connect_both(
    send: Box<dyn SendSetup>,
    for_send: ConnectHandle,
    recv: Box<dyn RecvSetup>,
    for_recv: ConnectHandle,
    deadline: Instant,
) -> (Result<ConnInfo>, Result<ConnInfo>) {
    thread::scope(|scope| {
        let sending = scope.spawn(|| block_on(send.connect(for_send, deadline)));
        let received = block_on(recv.connect(for_recv, deadline));
        let sent = sending
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sent, received)
    })
}

/// A second handle with the same bytes and duplicates of the descriptors.
///
/// # Errors
///
/// If a descriptor cannot be duplicated.
pub fn copy_handle(handle: &ConnectHandle) -> Result<ConnectHandle> {
    let copies: std::io::Result<Vec<_>> = handle.fds.iter().map(OwnedFd::try_clone).collect();
    let fds = copies.map_err(|error| Error::system("duplicating a descriptor", error))?;
    Ok(ConnectHandle {
        bytes: handle.bytes.clone(),
        fds,
    })
}

/// Runs a future on the calling thread, which sleeps while the future waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
