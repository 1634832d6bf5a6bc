//! What a communicator is made of, in words.

use std::collections::BTreeMap;
use std::fmt;

use comm_core::{PeerInfo, Rank};

use super::Communicator;
use crate::control::Launcher;
use crate::edge::connect::ConnectedEdge;
use crate::region::MemStats;
use crate::settings::Setting;
use crate::wait::WaitPolicy;

/// Names of transports in the order in which they are tried, each with what keeps it from being
/// used, if anything does.
pub type TransportTable = Vec<(String, Option<String>)>;

/// The effective configuration and the connections of one rank.
///
/// A snapshot: edges that connect later are missing. `Display` prints all of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The rank that explains itself.
    pub rank: Rank,
    /// Who started the processes; `None` if the program said by itself who it is.
    pub launcher: Option<Launcher>,
    /// Where the ranks met, without any secret.
    pub meeting: String,
    /// All ranks.
    pub peers: Vec<PeerInfo>,
    /// The ranks in the order in which they stand in rings: near ones are neighbours.
    pub ring: Vec<Rank>,
    /// Registered transports in the order in which they are tried, with what keeps this rank from
    /// using them.
    pub transports: TransportTable,
    /// Edges connected so far: those of collectives first, by peer and channel.
    pub edges: Vec<ConnectedEdge>,
    /// The ranks that the latest [`mem_alloc`](Communicator::mem_alloc) of this rank concerned, each
    /// with what keeps it from reading the memory directly; nothing if it does.
    pub readers: Vec<(Rank, Option<String>)>,
    /// What this process has allocated for direct reading and mapped of others.
    pub memory: MemStats,
    /// Every effective value and its source.
    pub settings: Vec<Setting>,
    /// What else is to be said of the environment, such as variables that nothing reads.
    pub notes: Vec<String>,
    /// How this rank waits.
    pub wait: WaitPolicy,
}

impl Communicator {
    /// Tells what this rank is connected to, how, and with which settings.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        let core = &self.core;
        let mut edges = core.connector.connected();
        edges.sort_by_key(|edge| (edge.index, edge.peer, edge.channel, !edge.sends));
        Explanation {
            rank: core.rank,
            launcher: core.origin.launcher,
            meeting: core.meeting.clone(),
            peers: core.peers.clone(),
            ring: core.planner.order().ranks(core.world_size()),
            transports: core.transport_table.clone(),
            edges,
            readers: core.neighbours.readers(),
            memory: self.mem_stats(),
            settings: core.origin.settings.table().to_vec(),
            notes: core.origin.settings.notes.clone(),
            wait: core.policy,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.peers.len())?;
        match self.launcher {
            Some(launcher) => writeln!(f, ", started by {launcher}")?,
            None => writeln!(f)?,
        }
        writeln!(f, "met at {}", self.meeting)?;
        let mut hosts: BTreeMap<_, Vec<&PeerInfo>> = BTreeMap::new();
        for peer in &self.peers {
            hosts
                .entry((peer.host, peer.host_name.as_str()))
                .or_default()
                .push(peer);
        }
        for ((_, name), peers) in hosts {
            let ranks: Vec<_> = peers
                .iter()
                .map(|peer| format!("{} (pid {})", peer.rank, peer.pid))
                .collect();
            writeln!(
                f,
                "host {name}: {} CPU(s), ranks {}",
                peers[0].cpus,
                ranks.join(", ")
            )?;
        }
        if !self.ring.is_sorted() {
            writeln!(f, "ring: {:?}", self.ring)?;
        }
        if self.transports.is_empty() {
            writeln!(f, "transport: none is compiled in or registered")?;
        }
        for (name, unavailable) in &self.transports {
            match unavailable {
                None => writeln!(f, "transport {name}: available")?,
                Some(reason) => writeln!(f, "transport {name}: unavailable, {reason}")?,
            }
        }
        for edge in &self.edges {
            let direction = if edge.sends { "to" } else { "from" };
            write!(
                f,
                "edge {direction} {} ({:?}, channel {}): {}",
                edge.peer, edge.index, edge.channel, edge.transport
            )?;
            for (name, reason) in &edge.passed_over {
                write!(f, "; not {name}: {reason}")?;
            }
            writeln!(f)?;
        }
        for (rank, obstacle) in &self.readers {
            match obstacle {
                None => writeln!(f, "memory of mem_alloc: read directly by rank {rank}")?,
                Some(reason) => {
                    writeln!(f, "memory of mem_alloc: not read by rank {rank}, {reason}")?;
                }
            }
        }
        if self.memory != MemStats::default() {
            writeln!(f, "memory for direct reading: {}", self.memory)?;
        }
        writeln!(
            f,
            "waits: {} spins, {} yields, then sleeps",
            self.wait.spins, self.wait.yields
        )?;
        for setting in &self.settings {
            writeln!(f, "{}={} ({})", setting.name, setting.value, setting.source)?;
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}
