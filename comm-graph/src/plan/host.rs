//! Jobs on host memory: a plan from what ranks tell about themselves.

use std::collections::BTreeMap;

use comm_core::Error;

use crate::model::{HostMemory, System};
use crate::options::Options;

use super::nodes::{HostRanks, Plan};
use super::view::ChannelView;

/// What one rank tells about where it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RankFacts {
    /// Identity of the host; equal for ranks that share memory.
    pub host: u64,
    /// The NUMA node the rank is bound to; -1 when it is not.
    pub numa: i32,
}

/// The plan of a job whose ranks work on host memory.
#[derive(Clone, Debug)]
pub struct HostPlan {
    plan: Plan,
}

/// Plans a job from the facts of its ranks: `facts[r]` belongs to rank `r`.
///
/// Hosts and ranks may be mixed in any way. Every rank that calls this with the same arguments
/// gets the same plan; only then do both ends of every connection agree. Hosts with the same
/// layout of NUMA nodes are planned once, so cost is linear in ranks.
///
/// ```
/// use comm_graph::Options;
/// use comm_graph::model::HostMemory;
/// use comm_graph::plan::{RankFacts, plan_for_hosts};
///
/// // Two hosts with two ranks each, dealt out in turn.
/// let facts: Vec<_> = [7, 9, 7, 9].map(|host| RankFacts { host, numa: 0 }).into();
/// let plan = plan_for_hosts(&facts, &HostMemory::default(), &Options::default())?;
/// let view = plan.view(0, 0).unwrap();
/// assert_eq!(view.ring.next, 2, "the rank on the same host comes first");
/// # Ok::<(), comm_core::Error>(())
/// ```
///
/// # Errors
///
/// `InvalidArgument` without ranks; `ResourceExhausted` when a host has too many ranks to plan.
pub fn plan_for_hosts(
    facts: &[RankFacts],
    memory: &HostMemory,
    options: &Options,
) -> Result<HostPlan, Error> {
    let mut by_host: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (rank, fact) in (0..).zip(facts) {
        by_host.entry(fact.host).or_default().push(rank);
    }
    let mut layouts: BTreeMap<Vec<i32>, usize> = BTreeMap::new();
    let mut systems = Vec::new();
    let mut hosts = Vec::with_capacity(by_host.len());
    for ranks in by_host.into_values() {
        let layout: Vec<i32> = ranks
            .iter()
            .map(|rank| facts[*rank as usize].numa)
            .collect();
        let system = *layouts.entry(layout).or_insert_with_key(|layout| {
            systems.push(System::host(layout, memory));
            systems.len() - 1
        });
        hosts.push(HostRanks { system, ranks });
    }
    Ok(HostPlan {
        plan: Plan::new(systems, &hosts, options)?,
    })
}

impl HostPlan {
    /// The number of channels every rank has.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.plan.channels()
    }

    /// The neighbours of a rank in a channel; `None` for a rank or channel that does not exist.
    #[must_use]
    pub fn view(&self, rank: u32, channel: usize) -> Option<ChannelView> {
        self.plan.view(rank, channel)
    }

    /// The hash that ranks compare before they connect.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.plan.fingerprint()
    }

    /// The whole plan: nodes, rounds, costs.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}
