//! The two ends of an edge between set-up and connection.

use std::sync::Arc;
use std::time::Instant;

use comm_core::doorbell::Doorbells;
use comm_core::{
    ConnInfo, ConnectHandle, Edge, Error, ErrorKind, RecvSetup, Result, SendSetup, async_trait,
};

use crate::handle::Token;
use crate::registry::{EdgeKey, Half, Registered};

/// Either end: its entry in the registry is all that it holds.
#[derive(Debug)]
pub(crate) struct Setup {
    registered: Registered,
}

impl Setup {
    pub(crate) fn sending(edge: &Edge<'_>, doorbells: &Arc<Doorbells>) -> Result<Self> {
        Self::new(edge, true, doorbells)
    }

    pub(crate) fn receiving(edge: &Edge<'_>, doorbells: &Arc<Doorbells>) -> Result<Self> {
        Self::new(edge, false, doorbells)
    }

    fn new(edge: &Edge<'_>, sends: bool, doorbells: &Arc<Doorbells>) -> Result<Self> {
        let registered = Registered::new(Half {
            key: EdgeKey::new(edge)?,
            sends,
            doorbells: Arc::clone(doorbells),
        })?;
        Ok(Self { registered })
    }

    fn own_handle(&self) -> ConnectHandle {
        ConnectHandle::from_bytes(self.registered.token().encode())
    }

    fn connect_to(self, remote: &ConnectHandle) -> Result<ConnInfo> {
        if !remote.fds.is_empty() {
            return Err(Error::new(
                ErrorKind::Protocol,
                "a p2p handle came with file descriptors, and has none",
            )
            .with("actual", remote.fds.len()));
        }
        self.registered.connect(Token::decode(&remote.bytes)?)
    }
}

#[async_trait]
impl SendSetup for Setup {
    fn handle(&mut self) -> Result<ConnectHandle> {
        Ok(self.own_handle())
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, _: Instant) -> Result<ConnInfo> {
        self.connect_to(&remote)
    }
}

#[async_trait]
impl RecvSetup for Setup {
    fn handle(&mut self) -> Result<ConnectHandle> {
        Ok(self.own_handle())
    }

    async fn connect(self: Box<Self>, remote: ConnectHandle, _: Instant) -> Result<ConnInfo> {
        self.connect_to(&remote)
    }
}
