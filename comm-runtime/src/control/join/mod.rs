//! Joining a communicator: from a rendezvous to the facts of all ranks.
//!
//! # Contract
//!
//! Every rank does O(log n) look-ups, connections and messages:
//!
//! 1. Rank 0 publishes a random communicator id with its world size; all others look it up.
//! 2. Every rank publishes its addresses, looks up those of its neighbours (rank + 1, 2, 4, ...)
//!    and connects to them.
//! 3. An allgather over these links carries the facts. Nobody has them before every rank has
//!    connected, so whoever is through may let go of the rendezvous. Ranks whose settings differ
//!    all end with the difference.
//!
//! A rank that finds a reason why the communicator cannot be, publishes it under the `fault` key,
//! which every rank watches all the time, and tells it over its links: all ranks end with the
//! first reason. A rank that stays away is found out at the deadline, and the reason then lists
//! everybody who is missing, not only the neighbours of the rank that ran out of patience.

mod agreement;
mod options;
mod reason;
mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind, PeerInfo, Rank, Result};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::control::allgather::{self, Use};
use crate::control::core::Core;
use crate::control::hello::CommunicatorId;
use crate::control::host;
use crate::control::member::{Member, MemberSpec};
use crate::control::plane::ControlHandler;
use crate::control::secret;

pub(crate) use options::WORLD;
pub use options::{DEFAULT_JOIN_TIMEOUT, JoinOptions};

use reason::Failed;
use table::{decode, encode};

/// How long a rank waits for rank 0 before it leaves word that it is here.
const PRESENCE_DELAY: Duration = Duration::from_secs(1);

/// The most ranks that a communicator may have. Every rank keeps something of every other one, so a
/// number that somebody mistyped must not become memory.
const MAX_WORLD_SIZE: u32 = 1 << 16;

/// What rank 0 publishes for all.
#[derive(Debug, Serialize, Deserialize)]
struct Opening {
    communicator: CommunicatorId,
    registration: Registration,
}

/// What every rank publishes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Registration {
    world_size: u32,
    info: PeerInfo,
}

/// Joins; runs on the control thread.
pub(crate) async fn join(
    core: Arc<Core>,
    options: JoinOptions,
    mut facts: PeerInfo,
    handler: Arc<dyn ControlHandler>,
) -> Result<(Arc<Member>, Vec<PeerInfo>)> {
    facts.rank = options.rank;
    facts.host = core.host;
    facts.host_name.clone_from(&core.host_name);
    facts.process = core.id;
    facts.pid = std::process::id();
    facts.control_addresses = core.addresses(options.scope());
    facts.fd_socket = core.fd_socket().map(str::to_owned);
    facts.numa_nodes = host::numa_nodes();
    facts.cpus = host::cpu_count();
    let attempt = Attempt {
        core,
        options,
        facts,
        start: Instant::now(),
    };
    let mut member = None;
    match attempt.run(handler, &mut member).await {
        Ok(facts) => member
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a join ended without a member"))
            .map(|member| (member, facts)),
        Err(failed) => Err(attempt.give_up(failed, member).await),
    }
}

struct Attempt {
    core: Arc<Core>,
    options: JoinOptions,
    facts: PeerInfo,
    start: Instant,
}

impl Attempt {
    /// The join with everything that can end it early.
    async fn run(
        &self,
        handler: Arc<dyn ControlHandler>,
        member: &mut Option<Arc<Member>>,
    ) -> Result<Vec<PeerInfo>, Failed> {
        let deadline = tokio::time::Instant::from_std(self.options.deadline);
        let steps = async {
            self.check_arguments()?;
            let registered = member.insert(self.open(handler).await?);
            self.connect(registered).await?;
            self.exchange_facts(registered).await
        };
        if self.options.world_size == 1 {
            return steps.await;
        }
        tokio::select! {
            // A result that is there goes before a fault that is there, too.
            biased;
            result = tokio::time::timeout_at(deadline, steps) => match result {
                // Every wait inside ends at the same deadline and may be the first to see it.
                Ok(Err(failed)) if failed.error.kind() == ErrorKind::Timeout && failed.tell => {
                    Err(self.who_is_missing().await)
                }
                Ok(result) => result,
                Err(_) => Err(self.who_is_missing().await),
            },
            failed = self.watch_fault() => Err(failed),
        }
    }

    fn check_arguments(&self) -> Result<(), Failed> {
        let JoinOptions {
            rank, world_size, ..
        } = self.options;
        let what_is_wrong = if world_size > MAX_WORLD_SIZE {
            format!("a world has at most {MAX_WORLD_SIZE} ranks")
        } else if rank >= world_size {
            "ranks go from 0 to the world size, exclusive".to_owned()
        } else {
            return Ok(());
        };
        let error = Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "pid {} on {} was started as rank {rank} of a world of {world_size}; {what_is_wrong}",
                self.facts.pid, self.facts.host_name
            ),
        );
        Err(Failed {
            rank: Some(rank),
            ..error.into()
        })
    }

    /// Step 1: the identity of the communicator; then this rank takes connections.
    async fn open(&self, handler: Arc<dyn ControlHandler>) -> Result<Arc<Member>, Failed> {
        let mut communicator: CommunicatorId = secret::random()?;
        if self.options.world_size > 1 {
            if self.options.rank == 0 {
                let opening = Opening {
                    communicator,
                    registration: self.registration(),
                };
                self.publish("opening", &opening).await?;
            } else {
                let opening = self.wait_for_opening().await?;
                communicator = opening.communicator;
                self.compare(&opening.registration)?;
            }
        }
        tracing::debug!(rank = self.options.rank, elapsed = ?self.start.elapsed(), "join: opened");
        Ok(Member::register(
            &self.core,
            MemberSpec {
                communicator,
                rank: self.options.rank,
                world_size: self.options.world_size,
                admission: self.options.admission.clone(),
                heartbeat: self.options.heartbeat,
                handler,
            },
        )?)
    }

    /// What rank 0 publishes. A rank that has to wait for it leaves word that it is here: at the
    /// deadline, those who came and those who did not are told apart by that.
    async fn wait_for_opening(&self) -> Result<Opening, Failed> {
        let opening = self.lookup("opening", self.options.deadline);
        tokio::pin!(opening);
        let patience = (self.options.deadline - self.start) / 4;
        let until = self.start + patience.min(PRESENCE_DELAY);
        if let Ok(opening) = tokio::time::timeout_at(until.into(), &mut opening).await {
            return Ok(opening?);
        }
        let here = async {
            match self
                .publish(&presence_key(self.options.rank), &self.registration())
                .await
            {
                Ok(()) => std::future::pending().await,
                Err(failed) => failed,
            }
        };
        tokio::select! {
            opening = &mut opening => Ok(opening?),
            failed = here => Err(failed),
        }
    }

    /// Step 2: this rank's addresses go out, the neighbours' come in and are dialled.
    async fn connect(&self, member: &Arc<Member>) -> Result<(), Failed> {
        let JoinOptions {
            rank, world_size, ..
        } = self.options;
        if world_size > 1 {
            self.publish(&rank_key(rank), &self.registration()).await?;
        }
        let mut lookups = JoinSet::new();
        for distance in allgather::distances(world_size) {
            let key = self.key(&rank_key(allgather::neighbour(rank, distance, world_size)));
            let rendezvous = Arc::clone(&self.options.rendezvous);
            let deadline = self.options.deadline;
            lookups.spawn(async move { rendezvous.lookup(&key, deadline).await });
        }
        let mut neighbours = Vec::new();
        while let Some(found) = lookups.join_next().await {
            let found = found.map_err(|_| Error::new(ErrorKind::Aborted, "the join was ended"))?;
            let registration: Registration = decode(&found?)
                .map_err(|error| error.with("rendezvous", self.options.rendezvous.describe()))?;
            self.compare(&registration)?;
            neighbours.push(registration.info.rank);
            member.learn(registration.info.clone());
            if let Err(error) = member.route(registration.info.rank) {
                // It was here and has left already: it has published why.
                return Err(self.better_reason(member.failure().unwrap_or(error)).await);
            }
        }
        tracing::debug!(rank, elapsed = ?self.start.elapsed(), "join: found its neighbours");
        for neighbour in neighbours {
            loop {
                let changed = member.changed().notified();
                match member.is_connected(neighbour) {
                    Ok(true) => break,
                    Ok(false) => {}
                    // A peer that has given up refuses connections, and has published why.
                    Err(error) => {
                        let failed = self.better_reason(error).await;
                        return Err(Failed {
                            rank: failed.tell.then_some(neighbour),
                            ..failed
                        });
                    }
                }
                if let Some(error) = member.failure() {
                    return Err(self.better_reason(error).await);
                }
                changed.await;
            }
        }
        tracing::debug!(rank, elapsed = ?self.start.elapsed(), "join: connected");
        Ok(())
    }

    /// Step 3: the facts of all ranks.
    async fn exchange_facts(&self, member: &Arc<Member>) -> Result<Vec<PeerInfo>, Failed> {
        let JoinOptions {
            rank, world_size, ..
        } = self.options;
        let own = encode(&self.facts)?;
        let deadline = self.options.deadline.into();
        let gather = Arc::clone(member).allgather(Use::Facts, 0, own, deadline);
        let values = match gather.await {
            Ok(values) => values,
            Err(error) if member.failure().is_some() || error.kind() == ErrorKind::PeerFailed => {
                return Err(self.better_reason(error).await);
            }
            Err(error) => return Err(error.into()),
        };
        let mut facts = Vec::with_capacity(values.len());
        for (expected, value) in (0..world_size).zip(values) {
            let info: PeerInfo = decode(&value)?;
            if info.rank != expected {
                let error = Error::new(
                    ErrorKind::Protocol,
                    format!("rank {expected} sent facts about rank {}", info.rank),
                );
                return Err(error.into());
            }
            member.learn(info.clone());
            facts.push(info);
        }
        agreement::same_settings(&facts)?;
        member.set_joined();
        tracing::debug!(rank, elapsed = ?self.start.elapsed(), "join: has the facts of all ranks");
        Ok(facts)
    }

    fn registration(&self) -> Registration {
        let mut info = self.facts.clone();
        // They can be long, and only the allgather needs to carry them.
        info.transports.clear();
        info.unavailable.clear();
        Registration {
            world_size: self.options.world_size,
            info,
        }
    }

    /// Compares what another rank says about the world with what this one was told.
    fn compare(&self, other: &Registration) -> Result<(), Failed> {
        if other.world_size == self.options.world_size {
            return Ok(());
        }
        let error = Error::new(
            ErrorKind::InvalidConfiguration,
            format!(
                "the ranks disagree about the world size: {} says {}, {} says {}; start all ranks \
                 with the same one{}",
                self.facts,
                self.options.world_size,
                other.info,
                other.world_size,
                self.differences(&other.info)
            ),
        );
        Err(error.into())
    }
}

fn rank_key(rank: Rank) -> String {
    format!("rank/{rank}")
}

fn presence_key(rank: Rank) -> String {
    format!("here/{rank}")
}
