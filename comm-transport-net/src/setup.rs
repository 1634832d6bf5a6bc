//! Edges between set-up and connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::net::NetListener;
use comm_core::{ConnInfo, ConnectHandle, RecvSetup, Result, SendSetup, async_trait};

use crate::engine::{Engine, Ready};
use crate::handle;
use crate::place::Place;
use crate::pool::SlotPool;
use crate::recv::{Receiver, RecvState};
use crate::send::{SendState, Sender};

/// What both ends have before they are connected.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pool: SlotPool,
    pub(crate) place: Place,
    pub(crate) device: usize,
    /// Whether this end can carry direct transfers.
    pub(crate) direct: bool,
    pub(crate) linger: Duration,
}

/// The sending end before it is connected.
#[derive(Debug)]
pub(crate) struct NetSendSetup(pub(crate) Prepared);

/// The receiving end before it is connected.
#[derive(Debug)]
pub(crate) struct NetRecvSetup {
    pub(crate) prepared: Prepared,
    pub(crate) listener: Box<dyn NetListener>,
}

#[async_trait]
impl SendSetup for NetSendSetup {
    fn handle(&mut self) -> Result<ConnectHandle> {
        Ok(ConnectHandle::from_bytes(handle::encode(
            self.0.pool.step_bytes(),
            self.0.direct,
            &[],
        )))
    }

    async fn connect(
        self: Box<Self>,
        remote: ConnectHandle,
        deadline: Instant,
    ) -> Result<ConnInfo> {
        let Prepared {
            engine,
            pool,
            place,
            device,
            direct,
            linger,
        } = self.0;
        let connected = async {
            let remote = handle::from_receiver(&remote, pool.step_bytes())?;
            let mut connect = engine.backend.connect(device, &remote.address)?;
            let end = Ready::new(
                Arc::clone(&engine),
                "the receiver's answer",
                deadline,
                move || connect.poll(),
            )
            .await?;
            Ok((end, direct && remote.direct))
        };
        let (end, direct) = connected.await.map_err(|error| place.name(error))?;
        let state = SendState::new(end, pool, place, direct);
        Ok(ConnInfo::MessageSend(Box::new(Sender::new(
            state, engine, linger,
        ))))
    }
}

#[async_trait]
impl RecvSetup for NetRecvSetup {
    fn handle(&mut self) -> Result<ConnectHandle> {
        let step_bytes = self.prepared.pool.step_bytes();
        Ok(ConnectHandle::from_bytes(handle::encode(
            step_bytes,
            self.prepared.direct,
            self.listener.handle(),
        )))
    }

    async fn connect(
        self: Box<Self>,
        remote: ConnectHandle,
        deadline: Instant,
    ) -> Result<ConnInfo> {
        let Self {
            prepared,
            mut listener,
        } = *self;
        let Prepared {
            engine,
            pool,
            place,
            direct,
            linger,
            ..
        } = prepared;
        let accepted = async {
            let remote = handle::from_sender(&remote, pool.step_bytes())?;
            let end = Ready::new(
                Arc::clone(&engine),
                "the sender's connection",
                deadline,
                move || listener.accept(),
            )
            .await?;
            Ok((end, direct && remote.direct))
        };
        let (end, direct) = accepted.await.map_err(|error| place.name(error))?;
        let state = RecvState::new(end, pool, place, direct);
        Ok(ConnInfo::MessageRecv(Box::new(Receiver::new(
            state, engine, linger,
        )?)))
    }
}
