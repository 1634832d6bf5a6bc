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
//!    connected, so whoever is through may let go of the rendezvous.
//!
//! A rank that finds a reason why the communicator cannot be, publishes it under the `fault` key,
//! which every rank watches all the time, and tells it over its links: all ranks end with the
//! first reason. A rank that stays away is found out at the deadline, and the reason then lists
//! everybody who is missing, not only the neighbours of the rank that ran out of patience.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::{Error, ErrorKind, PeerInfo, Rank, Rendezvous, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::allgather::{self, Use};
use super::failure::{Failure, WireFailure};
use super::hello::CommunicatorId;
use super::host;
use super::liveness::Heartbeat;
use super::member::{Member, MemberSpec};
use super::plane::ControlHandler;
use super::process::{Core, ListenScope};
use super::secret::{self, Admission, JobSecret};

/// How long a join may take unless the user says otherwise (`COMM_INIT_TIMEOUT_SECONDS`).
pub const DEFAULT_JOIN_TIMEOUT: Duration = Duration::from_secs(300);

/// How long a failed join takes to tell its reason to the others.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// How long a rank that lost a peer waits for a better reason than that loss.
const REASON_LIMIT: Duration = Duration::from_millis(200);

/// How a rank joins; see [`super::ControlPlane::join`].
#[derive(Clone, Debug)]
pub struct JoinOptions {
    rank: Rank,
    world_size: u32,
    rendezvous: Arc<dyn Rendezvous>,
    name: String,
    admission: Admission,
    heartbeat: Heartbeat,
    deadline: Instant,
}

impl JoinOptions {
    /// Joins as `rank` of `world_size` ranks that meet at `rendezvous`.
    #[must_use]
    pub fn new(rank: Rank, world_size: u32, rendezvous: Arc<dyn Rendezvous>) -> Self {
        Self {
            rank,
            world_size,
            rendezvous,
            name: "world".to_owned(),
            admission: Admission::default(),
            heartbeat: Heartbeat::default(),
            deadline: Instant::now() + DEFAULT_JOIN_TIMEOUT,
        }
    }

    /// Names the communicator. All its ranks use one name; communicators that meet at the same
    /// rendezvous, also one after the other, have different names.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the job secret.
    #[must_use]
    pub fn secret(mut self, secret: Option<JobSecret>) -> Self {
        self.admission.secret = secret;
        self
    }

    /// Allows connections between hosts without a secret (`COMM_INSECURE=1`).
    #[must_use]
    pub const fn insecure(mut self, insecure: bool) -> Self {
        self.admission.insecure = insecure;
        self
    }

    /// Sets when a silent peer counts as dead.
    #[must_use]
    pub const fn heartbeat(mut self, heartbeat: Heartbeat) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Sets when the join gives up.
    #[must_use]
    pub const fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = deadline;
        self
    }

    /// From which networks a process of this job has to take connections.
    #[must_use]
    pub const fn scope(&self) -> ListenScope {
        if self.admission.may_leave_host() {
            ListenScope::Network
        } else {
            ListenScope::Loopback
        }
    }
}

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

/// Why a join failed.
struct Failed {
    error: Error,
    /// The rank that failed, if it is one.
    rank: Option<Rank>,
    /// The others have to be told, because this rank found the reason.
    tell: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self {
            error,
            rank: None,
            tell: true,
        }
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
                Ok(result) => result,
                Err(_) => Err(self.who_is_missing().await),
            },
            error = self.watch_fault() => Err(Failed { error, rank: None, tell: false }),
        }
    }

    fn check_arguments(&self) -> Result<(), Failed> {
        let JoinOptions {
            rank, world_size, ..
        } = self.options;
        if rank < world_size {
            return Ok(());
        }
        let error = Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "pid {} on {} was started as rank {rank} of a world of {world_size}; ranks go \
                 from 0 to the world size, exclusive",
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
                let opening: Opening = self.lookup("opening", self.options.deadline).await?;
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
            let registration: Registration = decode(&found?)?;
            self.compare(&registration)?;
            neighbours.push(registration.info.rank);
            member.learn(registration.info.clone());
            member.route(registration.info.rank)?;
        }
        tracing::debug!(rank, elapsed = ?self.start.elapsed(), "join: found its neighbours");
        for neighbour in neighbours {
            loop {
                let changed = member.changed().notified();
                match member.is_connected(neighbour) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        return Err(Failed {
                            rank: Some(neighbour),
                            error,
                            tell: true,
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
            Err(error) if member.failure().is_some() => {
                return Err(self.better_reason(error).await);
            }
            Err(error) if error.kind() == ErrorKind::Timeout => {
                return Err(self.who_is_missing().await);
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
        member.set_joined();
        tracing::debug!(rank, elapsed = ?self.start.elapsed(), "join: has the facts of all ranks");
        Ok(facts)
    }

    fn registration(&self) -> Registration {
        let mut info = self.facts.clone();
        // They can be long, and only the allgather needs to carry them.
        info.transports.clear();
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
                 with the same one",
                self.facts, self.options.world_size, other.info, other.world_size
            ),
        );
        Err(error.into())
    }

    fn key(&self, key: &str) -> String {
        format!("{}/{key}", self.options.name)
    }

    async fn publish(&self, key: &str, value: &impl Serialize) -> Result<(), Failed> {
        let key = self.key(key);
        let value = encode(value)?;
        let rendezvous = &self.options.rendezvous;
        let error = match rendezvous.publish(&key, value, self.options.deadline).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // If another rank took the place, say who it is.
        let taken = match rendezvous.lookup(&key, Instant::now()).await {
            Ok(taken) => decode::<Registration>(&taken)
                .or_else(|_| decode::<Opening>(&taken).map(|opening| opening.registration)),
            Err(_) => return Err(error.into()),
        };
        match taken {
            Ok(other) if other.info.process != self.facts.process => {
                let error = Error::new(
                    ErrorKind::Rendezvous,
                    format!(
                        "rank {} is claimed twice: by {} and by {}; start every rank once, and \
                         give every job a rendezvous of its own",
                        self.options.rank, other.info, self.facts
                    ),
                )
                .with("rendezvous", rendezvous.describe())
                .with_source(error);
                Err(Failed {
                    rank: Some(self.options.rank),
                    error,
                    tell: true,
                })
            }
            _ => Err(error.into()),
        }
    }

    async fn lookup<T: DeserializeOwned>(&self, key: &str, deadline: Instant) -> Result<T> {
        decode(
            &self
                .options
                .rendezvous
                .lookup(&self.key(key), deadline)
                .await?,
        )
    }

    /// The reason that another rank published, as soon as there is one.
    async fn watch_fault(&self) -> Error {
        match self
            .lookup::<WireFailure>("fault", self.options.deadline)
            .await
        {
            Ok(fault) => Failure::from(fault).to_error(),
            // The other steps meet the same trouble and know more about it.
            Err(_) => std::future::pending().await,
        }
    }

    /// A peer that failed to join also closes its connections; its reason is the better one.
    async fn better_reason(&self, error: Error) -> Failed {
        let deadline = Instant::now() + REASON_LIMIT;
        match self.lookup::<WireFailure>("fault", deadline).await {
            Ok(fault) => Failed {
                error: Failure::from(fault).to_error(),
                rank: None,
                tell: false,
            },
            Err(_) => Failed {
                error,
                rank: None,
                tell: true,
            },
        }
    }

    /// The reason when the deadline has passed: everybody who never published an address.
    async fn who_is_missing(&self) -> Failed {
        let now = Instant::now();
        if let Ok(fault) = self.lookup::<WireFailure>("fault", now).await {
            return Failed {
                error: Failure::from(fault).to_error(),
                rank: None,
                tell: false,
            };
        }
        let mut lookups = JoinSet::new();
        for rank in 0..self.options.world_size {
            let key = self.key(&rank_key(rank));
            let rendezvous = Arc::clone(&self.options.rendezvous);
            lookups.spawn(async move { (rank, rendezvous.lookup(&key, now).await) });
        }
        let mut missing = Vec::new();
        while let Some(Ok((rank, found))) = lookups.join_next().await {
            match found {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Timeout => missing.push(rank),
                Err(error) => return error.into(),
            }
        }
        missing.sort_unstable();
        let waited = self.start.elapsed().as_secs_f64();
        let message = if missing.is_empty() {
            format!(
                "all {} ranks came to the rendezvous, but could not all connect to each other \
                 within {waited:.1} s; check the network and firewalls between the hosts",
                self.options.world_size
            )
        } else {
            format!(
                "{} of {} ranks did not come within {waited:.1} s: {}; check that they were \
                 started and reach the rendezvous (COMM_INIT_TIMEOUT_SECONDS sets the limit)",
                missing.len(),
                self.options.world_size,
                list(&missing)
            )
        };
        Error::new(ErrorKind::Timeout, message)
            .with("rendezvous", self.options.rendezvous.describe())
            .into()
    }

    /// Tells the others why, and takes the member down.
    async fn give_up(&self, failed: Failed, member: Option<Arc<Member>>) -> Error {
        let Failed { error, rank, tell } = failed;
        tracing::debug!(rank = self.options.rank, %error, "join: failed");
        let failure = Failure {
            origin: self.options.rank,
            failed: rank,
            kind: error.kind(),
            message: text_of(&error),
        };
        let deadline = Instant::now() + FAREWELL_LIMIT;
        let told = async {
            if tell && let Ok(fault) = encode(&failure.to_wire()) {
                // Another rank may have been first, or the rendezvous be what is broken.
                let rendezvous = &self.options.rendezvous;
                let _ = rendezvous
                    .publish(&self.key("fault"), fault, deadline)
                    .await;
            }
        };
        // A user's rendezvous may ignore its deadline.
        let _ = tokio::time::timeout_at(deadline.into(), told).await;
        if let Some(member) = member {
            member.fail(failure);
            member.leave(deadline.into()).await;
        }
        error.with("rank", self.options.rank)
    }
}

/// The error's text without its kind, which travels beside it.
fn text_of(error: &Error) -> String {
    let text = error.to_string();
    let prefix = format!("{}: ", error.kind());
    text.strip_prefix(&prefix).unwrap_or(&text).to_owned()
}

fn rank_key(rank: Rank) -> String {
    format!("rank/{rank}")
}

/// Ranks in the shortest readable form, for example `1, 4-7`.
fn list(ranks: &[Rank]) -> String {
    let mut ranges: Vec<(Rank, Rank)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let ranges = ranges.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    });
    ranges.collect::<Vec<_>>().join(", ")
}

fn encode(value: &impl Serialize) -> Result<Bytes> {
    postcard::to_allocvec(value)
        .map(Bytes::from)
        .map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                format!("facts of a rank do not encode: {error}"),
            )
        })
}

fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T> {
    postcard::from_bytes(value).map_err(|error| {
        Error::new(
            ErrorKind::Rendezvous,
            format!(
                "an entry of the rendezvous does not decode: {error}; another release or another \
                 program uses the same place"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_listed_shortly() {
        assert_eq!(list(&[1]), "1");
        assert_eq!(list(&[0, 1, 3]), "0, 1, 3");
        assert_eq!(list(&[2, 4, 5, 6, 7, 9]), "2, 4-7, 9");
    }
}
