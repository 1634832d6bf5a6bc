//! [`TcpListener`].

use std::sync::Arc;

use comm_core::Result;
use comm_core::net::{NetListener, NetRecv};

use super::shared::{Shared, lock};

/// A listener.
#[derive(Debug)]
pub(crate) struct TcpListener {
    shared: Arc<Shared>,
    number: u64,
    handle: Vec<u8>,
}

impl TcpListener {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Self> {
        shared.check()?;
        let number = shared.new_member();
        let handle = lock(&shared.acceptor).listen(number)?;
        Ok(Self {
            shared: Arc::clone(shared),
            number,
            handle,
        })
    }
}

// SAFETY: touches no registered memory; the ends that it hands out keep the promise.
unsafe impl NetListener for TcpListener {
    fn handle(&self) -> &[u8] {
        &self.handle
    }

    fn accept(&mut self) -> Result<Option<Box<dyn NetRecv>>> {
        self.shared.check()?;
        let ready = lock(&self.shared.acceptor).take_ready(self.number);
        Ok(ready.map(|end| Box::new(end) as _))
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        let gone = lock(&self.shared.acceptor).forget(self.number);
        // Without the lock: connections that nobody took are closed.
        drop(gone);
    }
}
