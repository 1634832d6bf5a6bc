//! The end of a builder: joining, and what a communicator is put together from.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use comm_core::fifo::FifoLayout;
use comm_core::{Error, ErrorKind, PeerInfo, Result, Transport};

use super::{CommunicatorBuilder, Meeting, TransportContext};
use crate::abort::AbortState;
use crate::blocked::Acted;
use crate::communicator::control::Handler;
use crate::communicator::family::Origin;
use crate::communicator::leave::LeaveOnDrop;
use crate::communicator::{Communicator, Core, TransportTable, Users};
use crate::control::host::online_cpu_count;
use crate::control::rendezvous::RendezvousAddress;
use crate::control::{ControlPlane, JoinOptions, Process, WORLD};
use crate::edge::candidates::{all_may_map_memory, all_share_memory};
use crate::edge::connect::Connector;
use crate::fork::ForkGuard;
use crate::lane::{Lane, LaneKey};
use crate::plan::{Planner, RankOrder};
use crate::region::Neighbours;
use crate::settings::CHANNELS;
use crate::wait::WaitPolicy;
use crate::worker::WorkerPool;

impl CommunicatorBuilder {
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
        self.check_plan()?;
        let order = self.order()?;
        let fork = ForkGuard::new()?;
        let options = self.control.process_options();
        let process = Process::acquire(&options.doorbells(self.doorbells.take()))?;
        let rendezvous = match meeting {
            Meeting::Table(table) => table,
            Meeting::Address(address) => address.open(&process, self.control.visitor(rank))?,
        };
        let meeting = rendezvous.describe();
        let context = TransportContext {
            doorbells: Arc::clone(process.doorbells()),
            addresses: process
                .addresses(self.control.process_options().listen_scope())
                .iter()
                .map(SocketAddr::ip)
                .collect(),
            ports: self.control.data_ports()?,
        };
        let (transports, transport_table) = self.make_transports(&order, &context);

        let mut facts = PeerInfo::new(rank, process.host(), process.id());
        facts.settings = self.shared_settings();
        for transport in &transports {
            facts
                .transports
                .insert(transport.name().to_owned(), transport.facts()?);
        }
        let reasons = transport_table.iter();
        facts.unavailable = reasons
            .filter_map(|(name, reason)| Some((name.clone(), reason.clone()?)))
            .collect();
        let joined_by = self.control.join_deadline();
        let mut options = JoinOptions::new(rank, world_size, rendezvous)
            .deadline(joined_by)
            .secret(self.control.secret.clone())
            .insecure(self.control.insecure)
            .heartbeat(self.control.heartbeat);
        let name = self.name.take();
        if let Some(name) = &name {
            options = options.name(name);
        }
        let handler = Arc::new(Handler::default());
        let (control, peers) = ControlPlane::join(
            Arc::clone(&process),
            options,
            facts,
            Arc::clone(&handler) as _,
        )?;

        let own = peers
            .get(rank as usize)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the facts of this rank are missing"))?;
        let policy = WaitPolicy::from_facts(own, &peers, online_cpu_count());
        let step_bytes = self.settings.plan.step_bytes;
        let order = RankOrder::from_facts(&peers);
        order.compare(&control, &peers, joined_by)?;
        let shares_memory = all_share_memory(&transports, &peers, step_bytes);
        let maps_memory = all_may_map_memory(&transports, &peers, step_bytes);
        let neighbours = Neighbours::new(process.regions(), rank, &peers);
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
                .sharing_memory(shares_memory)
                .mapping_memory(maps_memory)
                .in_order(order),
            workers: WorkerPool::of_process(&doorbells),
            process,
            control,
            transports,
            transport_table,
            meeting,
            connector: Connector::default(),
            neighbours,
            connect_timeout: self.settings.connect_timeout,
            operation_timeout: self.settings.operation_timeout,
            collective: Lane::new(LaneKey::Collective),
            send: lanes(),
            recv: lanes(),
            frame_send: lanes(),
            frame_recv: lanes(),
            frame_window_bytes: self.settings.frame_window_bytes as u64,
            users: Users::default(),
            acted: Acted::default(),
            left: Mutex::new(HashSet::new()),
            warned: Mutex::new(HashSet::new()),
            origin: Origin {
                name: name.unwrap_or_else(|| WORLD.to_owned()),
                control: self.control,
                settings: self.settings,
                shared: self.shared,
                launcher: self.launcher,
                splits: AtomicU64::new(0),
            },
            fork,
            this: OnceLock::new(),
            peers,
        });
        let this = Arc::downgrade(&core);
        core.neighbours.begin(&this, &core.peers);
        let _ = core.this.set(this);
        core.note_user();
        handler.attach(&core);
        let leave = Arc::new(LeaveOnDrop::new(Arc::clone(&core)));
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
                        "transport '{name}' is not compiled in or registered; there is {}. Choose \
                         another one (TCP belongs to `net`), or enable the Cargo feature of the \
                         one that you want",
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

    /// What the environment's parser has looked at, in case the program said otherwise.
    fn check_plan(&self) -> Result<()> {
        let plan = &self.settings.plan;
        FifoLayout::new(plan.step_bytes)?;
        if !CHANNELS.contains(&plan.channels) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the number of channels must be from 1 to 64",
            )
            .with("channels", plan.channels));
        }
        Ok(())
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
                    table.push((name.clone(), Some(reason(&error))));
                }
            }
        }
        (made, table)
    }

    fn shared_settings(&self) -> BTreeMap<String, String> {
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
        .chain(self.shared.iter().cloned())
        .collect()
    }
}

/// The text of an error for whoever reads that a transport is unavailable, which it need not repeat.
fn reason(error: &Error) -> String {
    let text = error.to_string();
    let kind = format!("{}: ", ErrorKind::Unavailable);
    text.strip_prefix(&kind).unwrap_or(&text).to_owned()
}
