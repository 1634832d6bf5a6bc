//! [`Collective`]: the groups of one worker.
//!
//! # Contract
//!
//! * A value owned by its worker; two workers of one process have nothing in common.
//! * A group is known by its name. Without one it is `cg-` and the members' addresses in canonical
//!   order, joined by `-`, so every member comes to the same name whatever order it lists them in.
//!   Asking again returns the same group.
//! * Making a group checks its members and connects nothing. Any thread may do so; no lock is held
//!   while anything waits.
//! * A group that was closed, or that never came together and was closed then, is made anew by asking
//!   for it again. The members have to do so equally often: the groups of a name are counted, and
//!   only equal numbers meet.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comm_core::{Error, ErrorKind, Rank, Result};

use crate::compression::{Compression, CompressionStats};
use crate::connector::Connector;
use crate::pool::ReceivePool;
use crate::{CollectiveGroup, WorkerAddress};

/// The start of the names of groups that were given none.
const DEFAULT_PREFIX: &str = "cg-";
/// The most members of a group.
const MOST_MEMBERS: usize = 1 << 20;

/// The groups of one worker; see the [module](self). Clones are handles of the same one.
#[derive(Clone)]
pub struct Collective {
    inner: Arc<Inner>,
}

struct Inner {
    address: WorkerAddress,
    connector: Arc<Connector>,
    pool: Arc<ReceivePool>,
    compression: Arc<Compression>,
    groups: Mutex<Groups>,
}

#[derive(Default)]
struct Groups {
    /// A closed group stays until its successor comes, which counts on from it.
    by_name: HashMap<String, CollectiveGroup>,
    closed: bool,
}

impl Collective {
    pub(crate) fn new(
        address: WorkerAddress,
        connector: Arc<Connector>,
        receive_pool_bytes: usize,
        compression: Compression,
    ) -> Self {
        let inner = Inner {
            address,
            connector,
            pool: Arc::new(ReceivePool::new(receive_pool_bytes)),
            compression: Arc::new(compression),
            groups: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The group of these workers, of which this one is a member; `name` replaces the default name.
    ///
    /// The order of the addresses does not matter. Connects nothing; does not block.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if there are fewer than two members, one is named twice, this
    /// worker is not one of them, the name is empty, or this worker knows a group of this name with
    /// other members; [`ErrorKind::Aborted`] after [`Collective::close`].
    pub fn create_collective_group(
        &self,
        addresses: &[WorkerAddress],
        name: Option<&str>,
    ) -> Result<CollectiveGroup> {
        let mut members = addresses.to_vec();
        members.sort();
        let rank = self.check_members(&members)?;
        let name = match name {
            Some("") => {
                let message = "a group needs a name, or None for the default one";
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            Some(name) => name.to_owned(),
            None => format!("{DEFAULT_PREFIX}{}", joined(&members, "-")),
        };
        let mut groups = self.lock();
        if groups.closed {
            let message = "the worker was closed; make a new one";
            return Err(Error::new(ErrorKind::Aborted, message).with("group", name));
        }
        let mut generation = 0;
        if let Some(known) = groups.by_name.get(&name) {
            if known.is_closed() {
                generation = known.generation().wrapping_add(1);
            } else if known.members() == members {
                return Ok(known.clone());
            } else {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "there is a group of this name with other members; close it, or choose another \
                     name",
                )
                .with("group", &name)
                .with("members", joined(known.members(), ", "))
                .with("asked", joined(&members, ", ")));
            }
        }
        let group = CollectiveGroup::new(
            name.clone(),
            generation,
            members,
            rank,
            Arc::clone(&self.inner.connector),
            Arc::clone(&self.inner.pool),
            Arc::clone(&self.inner.compression),
        );
        let replaced = groups.by_name.insert(name, group.clone());
        drop(groups);
        drop(replaced);
        Ok(group)
    }

    /// The groups that are open, in the order of their names.
    #[must_use]
    pub fn groups(&self) -> Vec<CollectiveGroup> {
        let groups = self.lock();
        let open = groups.by_name.values().filter(|group| !group.is_closed());
        let mut open: Vec<_> = open.cloned().collect();
        drop(groups);
        open.sort_by(|one, other| one.name().cmp(other.name()));
        open
    }

    /// The bytes that the pool of received messages holds, in use or idle.
    #[must_use]
    pub fn receive_pool_bytes(&self) -> usize {
        self.inner.pool.held_bytes()
    }

    /// What has been compressed and decompressed, in all groups.
    #[must_use]
    pub fn compression_stats(&self) -> CompressionStats {
        self.inner.compression.stats()
    }

    /// Closes all groups and gives back everything; no group can be made any more.
    ///
    /// Callable more than once, from any thread; blocks only to close connections.
    pub fn close(&self) {
        let groups = {
            let mut groups = self.lock();
            groups.closed = true;
            std::mem::take(&mut groups.by_name)
        };
        for group in groups.values() {
            group.close();
        }
        drop(groups);
        self.inner.connector.close();
        self.inner.pool.clear();
        self.inner.compression.clear();
    }

    pub(crate) fn address(&self) -> &WorkerAddress {
        &self.inner.address
    }

    /// This worker's rank among the sorted members.
    fn check_members(&self, members: &[WorkerAddress]) -> Result<Rank> {
        let wrong = |message: &'static str| {
            Error::new(ErrorKind::InvalidArgument, message)
                .with("worker", &self.inner.address)
                .with("members", joined(members, ", "))
        };
        if members.len() < 2 {
            return Err(wrong("a group has at least two members"));
        }
        if members.len() > MOST_MEMBERS {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a group has at most 2^20 members",
            )
            .with("members", members.len()));
        }
        if members.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(wrong(
                "a worker is named twice among the members of a group",
            ));
        }
        let place = members
            .binary_search(&self.inner.address)
            .map_err(|_| wrong("this worker is not a member of the group that it asks for"))?;
        Rank::try_from(place).map_err(|_| wrong("a group has at most 2^20 members"))
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.inner
            .groups
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn joined(members: &[WorkerAddress], separator: &str) -> String {
    let members: Vec<_> = members.iter().map(ToString::to_string).collect();
    members.join(separator)
}

impl fmt::Debug for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.lock();
        f.debug_struct("Collective")
            .field("address", &self.inner.address)
            .field("groups", &groups.by_name.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
