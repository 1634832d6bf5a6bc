//! The suite against message connections: the reference transport behind `MessageSend` and
//! `MessageRecv`. Proves that the clauses ask the same of both kinds of ends.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use comm_core::doorbell::{Doorbell, Doorbells};
use comm_core::fifo::{Arrived, FifoReceiver, FifoSender, SLOTS};
use comm_core::{
    Armed, Capabilities, ConnInfo, ConnectHandle, Edge, Error, ErrorKind, HostId, MessageRecv,
    MessageSend, ProcessId, RecvSetup, Result, SendSetup, SlotWrite, StepHeader, StepRead,
    Transport, Verdict, async_trait,
};
use comm_testkit::transport::{LoopbackTransport, TestRank, TransportFixture};

#[derive(Debug)]
struct Messages(LoopbackTransport);

#[async_trait]
impl Transport for Messages {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn facts(&self) -> Result<Bytes> {
        self.0.facts()
    }

    fn can_connect(&self, edge: &Edge<'_>) -> Verdict {
        self.0.can_connect(edge)
    }

    async fn setup_send(&self, edge: &Edge<'_>, deadline: Instant) -> Result<Box<dyn SendSetup>> {
        Ok(Box::new(Sending(self.0.setup_send(edge, deadline).await?)))
    }

    async fn setup_recv(&self, edge: &Edge<'_>, deadline: Instant) -> Result<Box<dyn RecvSetup>> {
        Ok(Box::new(Receiving(
            self.0.setup_recv(edge, deadline).await?,
        )))
    }
}

#[derive(Debug)]
struct Sending(Box<dyn SendSetup>);

#[async_trait]
impl SendSetup for Sending {
    fn handle(&mut self) -> Result<ConnectHandle> {
        self.0.handle()
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, until: Instant) -> Result<ConnInfo> {
        match self.0.connect(remote, until).await? {
            ConnInfo::MemorySend(end) => Ok(ConnInfo::MessageSend(Box::new(Sender(end)))),
            other => Ok(other),
        }
    }
}

#[derive(Debug)]
struct Receiving(Box<dyn RecvSetup>);

#[async_trait]
impl RecvSetup for Receiving {
    fn handle(&mut self) -> Result<ConnectHandle> {
        self.0.handle()
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, until: Instant) -> Result<ConnInfo> {
        match self.0.connect(remote, until).await? {
            ConnInfo::MemoryRecv(end) => Ok(ConnInfo::MessageRecv(Box::new(Receiver(end)))),
            other => Ok(other),
        }
    }
}

#[derive(Debug)]
struct Sender(FifoSender);

impl MessageSend for Sender {
    fn slots(&self) -> usize {
        SLOTS
    }

    fn try_slot(&mut self) -> Result<Option<SlotWrite>> {
        self.0.try_slot()
    }

    fn publish(&mut self, header: StepHeader) -> Result<()> {
        self.0.publish(header)
    }

    fn progress(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.0.arm(doorbell)
    }

    fn quiesce(&mut self, _deadline: Instant) -> bool {
        true
    }
}

#[derive(Debug)]
struct Receiver(FifoReceiver);

impl MessageRecv for Receiver {
    fn slots(&self) -> usize {
        0
    }

    fn try_step(&mut self) -> Result<Option<StepRead>> {
        match self.0.try_step()? {
            None => Ok(None),
            Some(Arrived::Slot(step)) => Ok(Some(step)),
            Some(Arrived::Small { .. } | Arrived::Offer(_)) => Err(Error::new(
                ErrorKind::Protocol,
                "a message connection has slot steps only",
            )),
        }
    }

    fn consume(&mut self) -> Result<()> {
        self.0.consume();
        Ok(())
    }

    fn progress(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn arm(&mut self, doorbell: &Doorbell) -> Result<Armed> {
        self.0.arm(doorbell)
    }

    fn quiesce(&mut self, _deadline: Instant) -> bool {
        true
    }
}

struct ThreadsByMessages;

impl TransportFixture for ThreadsByMessages {
    fn ranks() -> Result<[TestRank; 2]> {
        let bells = Doorbells::local();
        let rank = |rank| {
            let transport = Arc::new(Messages(LoopbackTransport::new(Arc::clone(&bells))));
            TestRank::new(
                rank,
                HostId([1; 16]),
                ProcessId([1; 16]),
                transport,
                Arc::clone(&bells),
            )
        };
        Ok([rank(0)?, rank(1)?])
    }
}

comm_testkit::transport_conformance!(ThreadsByMessages);
