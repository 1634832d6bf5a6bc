//! A rendezvous in the memory of one process, for ranks that are threads of it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Rendezvous, Result, async_trait};
use tokio::sync::watch;

/// A table that only this process can see.
#[derive(Debug)]
pub struct LocalRendezvous {
    table: Mutex<HashMap<String, Bytes>>,
    /// Counts publications, so that waiting look-ups look again.
    published: watch::Sender<u64>,
}

impl LocalRendezvous {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self {
            table: Mutex::default(),
            published: watch::Sender::new(0),
        }
    }

    fn get(&self, key: &str) -> Option<Bytes> {
        self.table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .cloned()
    }
}

impl Default for LocalRendezvous {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Rendezvous for LocalRendezvous {
    fn describe(&self) -> String {
        "the memory of this process".to_owned()
    }

    async fn publish(&self, key: &str, value: Bytes, _deadline: Instant) -> Result<()> {
        match self
            .table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(key.to_owned())
        {
            Entry::Occupied(held) if *held.get() != value => {
                return Err(Error::new(
                    ErrorKind::Rendezvous,
                    "the key was published before with another value",
                )
                .with("key", key));
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(value);
            }
        }
        self.published.send_modify(|count| *count += 1);
        Ok(())
    }

    async fn lookup(&self, key: &str, deadline: Instant) -> Result<Bytes> {
        let mut published = self.published.subscribe();
        loop {
            published.mark_unchanged();
            if let Some(value) = self.get(key) {
                return Ok(value);
            }
            let waited = tokio::time::timeout_at(deadline.into(), published.changed()).await;
            if !matches!(waited, Ok(Ok(()))) {
                return Err(Error::new(
                    ErrorKind::Timeout,
                    "nobody published the key before the deadline",
                )
                .with("key", key));
            }
        }
    }
}
