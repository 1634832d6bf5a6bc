//! How a communicator starts: [`CommunicatorBuilder`].

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use comm_core::doorbell::Doorbells;
use comm_core::fifo::FifoLayout;
use comm_core::{Error, ErrorKind, PeerInfo, Rank, Rendezvous, Result, Transport};

use super::control::Handler;
use super::{Communicator, Core, LeaveOnDrop, TransportTable, Users};
use crate::abort::AbortState;
use crate::control::host::online_cpu_count;
use crate::control::rendezvous::RendezvousAddress;
use crate::control::{ControlPlane, ControlSettings, JobSecret, JoinOptions, Launcher, Process};
use crate::edge::candidates::all_share_memory;
use crate::edge::connect::Connector;
use crate::fork::ForkGuard;
use crate::lane::{Lane, LaneKey};
use crate::plan::Planner;
use crate::settings::Settings;
use crate::wait::WaitPolicy;
use crate::worker::WorkerPool;

/// What a transport is built from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransportContext {
    /// The doorbells of this process.
    pub doorbells: Arc<Doorbells>,
    /// The addresses at which the ranks of the job reach this process, best first: loopback ones
    /// only, unless the job has a secret or goes without on purpose.
    pub addresses: Vec<IpAddr>,
}

/// Makes one rank's instance of a transport.
pub type TransportFactory = Box<dyn FnOnce(&TransportContext) -> Result<Arc<dyn Transport>> + Send>;

/// Where the ranks find each other.
#[derive(Debug)]
enum Meeting {
    Address(RendezvousAddress),
    Table(Arc<dyn Rendezvous>),
}

/// Starts a communicator: says who this rank is, how to find the others, and what may connect it.
#[derive(Default)]
pub struct CommunicatorBuilder {
    rank: Option<Rank>,
    world_size: Option<u32>,
    meeting: Option<Meeting>,
    launcher: Option<Launcher>,
    name: Option<String>,
    control: ControlSettings,
    transports: Vec<(String, TransportFactory)>,
    settings: Settings,
}

impl fmt::Debug for CommunicatorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transports: Vec<_> = self.transports.iter().map(|(name, _)| name).collect();
        f.debug_struct("CommunicatorBuilder")
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .field("meeting", &self.meeting)
            .field("transports", &transports)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl CommunicatorBuilder {
    /// A builder with default settings and no transports.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets this rank's number and the number of ranks.
    #[must_use]
    pub const fn rank(mut self, rank: Rank, world_size: u32) -> Self {
        self.rank = Some(rank);
        self.world_size = Some(world_size);
        self
    }

    /// Notes who started this process, for `explain()`.
    #[must_use]
    pub const fn launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = Some(launcher);
        self
    }

    /// Sets where the ranks find each other, by address.
    ///
    /// A unique id carries the job's secret, which then counts.
    #[must_use]
    pub fn rendezvous_at(mut self, address: RendezvousAddress) -> Self {
        self.meeting = Some(Meeting::Address(address));
        self
    }

    /// Sets where the ranks find each other: a table of the program's own.
    #[must_use]
    pub fn rendezvous(mut self, rendezvous: Arc<dyn Rendezvous>) -> Self {
        self.meeting = Some(Meeting::Table(rendezvous));
        self
    }

    /// Sets how this process listens, whom it lets in, and how long joining may take.
    #[must_use]
    pub fn control(mut self, control: ControlSettings) -> Self {
        self.control = control;
        self
    }

    /// Sets the secret that all processes of the job know.
    #[must_use]
    pub fn secret(mut self, secret: Option<JobSecret>) -> Self {
        self.control.secret = secret;
        self
    }

    /// Sets all settings at once; later calls on the builder win over them.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets how long one operation may take; `None` for any time.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.operation_timeout = timeout;
        let text = timeout.map_or_else(|| "none".to_owned(), |time| time.as_secs_f64().to_string());
        self.settings
            .note_builder("COMM_OPERATION_TIMEOUT_SECONDS", text);
        self
    }

    /// Names the communicator, the same on all its ranks.
    ///
    /// Communicators that meet at one rendezvous, also one after the other, need different names.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets how long the ranks may take to find each other.
    #[must_use]
    pub fn init_timeout(mut self, timeout: Duration) -> Self {
        self.control.join_timeout = timeout;
        self.settings.note_builder(
            "COMM_INIT_TIMEOUT_SECONDS",
            timeout.as_secs_f64().to_string(),
        );
        self
    }

    /// Sets the capacity of one slot of an edge; a multiple of 64, equal on all ranks.
    #[must_use]
    pub fn step_bytes(mut self, step_bytes: usize) -> Self {
        self.settings.plan.step_bytes = step_bytes;
        self.settings
            .note_builder("COMM_STEP_BYTES", step_bytes.to_string());
        self
    }

    /// Restricts the algorithms of collectives; equal on all ranks.
    #[must_use]
    pub fn algorithms(mut self, algorithms: Vec<comm_core::Algorithm>) -> Self {
        let names: Vec<_> = algorithms
            .iter()
            .map(|algorithm| algorithm.as_str())
            .collect();
        self.settings.note_builder("COMM_ALGO", names.join(","));
        self.settings.plan.algorithms = algorithms;
        self
    }

    /// Sets the number of channels of ring algorithms; equal on all ranks.
    #[must_use]
    pub fn channels(mut self, channels: u32) -> Self {
        self.settings.plan.channels = channels;
        self.settings
            .note_builder("COMM_CHANNELS", channels.to_string());
        self
    }

    /// Restricts the transports to these names, tried in this order.
    #[must_use]
    pub fn only_transports(mut self, names: Vec<String>) -> Self {
        self.settings
            .note_builder("COMM_TRANSPORTS", names.join(","));
        self.settings.transports = names;
        self
    }

    /// Registers a transport. The order of registration is the order in which transports are
    /// tried, and must be the same on all ranks.
    #[must_use]
    pub fn transport(
        mut self,
        name: impl Into<String>,
        factory: impl FnOnce(&TransportContext) -> Result<Arc<dyn Transport>> + Send + 'static,
    ) -> Self {
        self.transports.push((name.into(), Box::new(factory)));
        self
    }

    /// Joins the other ranks.
    ///
    /// Blocks until all ranks have come, at most for the init timeout.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] if rank, world size or rendezvous are missing, a
    /// transport was asked for that is not registered, or the ranks' settings differ; the errors of
    /// [`ControlPlane::join`] otherwise. An error on one rank is an error on all that can be
    /// reached.
    pub fn build(mut self) -> Result<Communicator> {
        let missing = |what: &'static str| Error::new(ErrorKind::InvalidConfiguration, what);
        let rank = self.rank.ok_or_else(|| {
            missing("set rank and world size, or start the program by a launcher")
        })?;
        let world_size = self
            .world_size
            .ok_or_else(|| missing("set the world size"))?;
        let meeting = self
            .meeting
            .take()
            .ok_or_else(|| missing("set a rendezvous, for instance COMM_RENDEZVOUS=host:port"))?;
        if let Meeting::Address(RendezvousAddress::UniqueId(id)) = &meeting {
            self.control.secret = Some(id.secret()?);
        }
        FifoLayout::new(self.settings.plan.step_bytes)?;
        let order = self.order()?;
        let fork = ForkGuard::new()?;
        let process = Process::acquire(&self.control.process_options())?;
        let (secret, insecure) = (self.control.secret.clone(), self.control.insecure);
        let rendezvous = match meeting {
            Meeting::Table(table) => table,
            Meeting::Address(address) => address.open(&process, rank, secret.clone(), insecure)?,
        };
        let context = TransportContext {
            doorbells: Arc::clone(process.doorbells()),
            addresses: process
                .addresses(self.control.process_options().listen_scope())
                .iter()
                .map(SocketAddr::ip)
                .collect(),
        };
        let (transports, transport_table) = self.make_transports(&order, &context);

        let mut facts = PeerInfo::new(rank, process.host(), process.id());
        facts.settings = self.shared_settings();
        for transport in &transports {
            facts
                .transports
                .insert(transport.name().to_owned(), transport.facts()?);
        }
        let mut options = JoinOptions::new(rank, world_size, rendezvous)
            .deadline(Instant::now() + self.control.join_timeout)
            .secret(secret)
            .insecure(insecure)
            .heartbeat(self.control.heartbeat);
        if let Some(name) = self.name.take() {
            options = options.name(name);
        }
        let handler = Arc::new(Handler::default());
        let (control, peers) = ControlPlane::join(
            Arc::clone(&process),
            options,
            facts,
            Arc::clone(&handler) as _,
        )?;
        same_settings(&peers)?;

        let own = peers
            .get(rank as usize)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the facts of this rank are missing"))?;
        let policy = WaitPolicy::from_facts(own, &peers, online_cpu_count());
        let step_bytes = self.settings.plan.step_bytes;
        let shares_memory = all_share_memory(&transports, &peers, step_bytes);
        let doorbells = Arc::clone(process.doorbells());
        let lanes = || {
            (0..world_size)
                .map(|_| OnceLock::new())
                .collect::<Box<[OnceLock<Lane>]>>()
        };
        let core = Arc::new(Core {
            rank,
            abort: AbortState::new(Arc::clone(&doorbells)),
            policy,
            planner: Planner::new(rank, world_size, self.settings.plan.clone())
                .sharing_memory(shares_memory),
            workers: WorkerPool::of_process(&doorbells),
            process,
            control,
            transports,
            transport_table,
            launcher: self.launcher,
            connector: Connector::default(),
            connect_timeout: self.settings.connect_timeout,
            operation_timeout: self.settings.operation_timeout,
            collective: Lane::new(LaneKey::Collective),
            send: lanes(),
            recv: lanes(),
            users: Users::default(),
            left: Mutex::new(HashSet::new()),
            warned: Mutex::new(HashSet::new()),
            settings: self.settings.table().to_vec(),
            fork,
            this: OnceLock::new(),
            peers,
        });
        let _ = core.this.set(Arc::downgrade(&core));
        core.note_user();
        handler.attach(&core);
        let leave = Arc::new(LeaveOnDrop {
            core: Arc::clone(&core),
        });
        Ok(Communicator {
            core,
            _leave: leave,
        })
    }

    /// Names of the transports to be used, in order.
    fn order(&self) -> Result<Vec<String>> {
        let registered: Vec<_> = self
            .transports
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        if self.settings.transports.is_empty() {
            return Ok(registered);
        }
        for name in &self.settings.transports {
            if !registered.contains(name) {
                return Err(Error::new(
                    ErrorKind::InvalidConfiguration,
                    format!(
                        "transport '{name}' is not compiled in or registered; there is {}. Enable \
                         the Cargo feature of that name, or choose another one",
                        if registered.is_empty() {
                            "none".to_owned()
                        } else {
                            registered.join(", ")
                        }
                    ),
                ));
            }
        }
        Ok(self.settings.transports.clone())
    }

    /// Makes the transports; one that cannot be made is listed with the reason.
    fn make_transports(
        &mut self,
        order: &[String],
        context: &TransportContext,
    ) -> (Vec<Arc<dyn Transport>>, TransportTable) {
        let mut made = Vec::new();
        let mut table = Vec::new();
        for name in order {
            let Some(index) = self.transports.iter().position(|(other, _)| other == name) else {
                continue;
            };
            let (_, factory) = self.transports.remove(index);
            let usable = factory(context).and_then(|transport| {
                transport.facts()?;
                Ok(transport)
            });
            match usable {
                Ok(transport) => {
                    table.push((name.clone(), None));
                    made.push(transport);
                }
                Err(error) => {
                    tracing::info!(transport = %name, %error, "transport unavailable");
                    table.push((name.clone(), Some(error.to_string())));
                }
            }
        }
        (made, table)
    }

    fn shared_settings(&self) -> std::collections::BTreeMap<String, String> {
        let plan = &self.settings.plan;
        let algorithms: Vec<_> = plan.algorithms.iter().map(|one| one.as_str()).collect();
        [
            ("COMM_STEP_BYTES", plan.step_bytes.to_string()),
            ("COMM_CHANNELS", plan.channels.to_string()),
            ("COMM_ONE_SHOT_BYTES", plan.one_shot_bytes.to_string()),
            ("COMM_TREE_RANKS", plan.tree_ranks.to_string()),
            ("COMM_TREE_BYTES", plan.tree_bytes.to_string()),
            ("COMM_TREE_CHUNK_BYTES", plan.tree_chunk_bytes.to_string()),
            ("COMM_ALGO", algorithms.join(",")),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// Whether all ranks have equal settings; all ranks come to the same answer.
fn same_settings(peers: &[PeerInfo]) -> Result<()> {
    let Some(first) = peers.first() else {
        return Ok(());
    };
    for peer in peers {
        for (name, value) in &first.settings {
            let other = peer.settings.get(name).map_or("(unset)", String::as_str);
            if other != value {
                return Err(Error::new(
                    ErrorKind::InvalidConfiguration,
                    format!(
                        "{name} must be equal on all ranks, but rank {} has '{value}' and rank {} \
                         has '{other}'",
                        first.rank, peer.rank
                    ),
                ));
            }
        }
    }
    Ok(())
}
