//! Which transport each edge got.

use std::collections::{BTreeMap, BTreeSet};

use comm_api::{Communicator, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::coordinator::Coordinator;

/// More pairs of ranks than this are counted but not listed.
const LISTED_PAIRS: usize = 12;

/// A connected edge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EdgeUse {
    /// The name of the transport; `self` from a rank to itself.
    pub transport: String,
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
}

/// The edges on which this rank sends.
pub(crate) fn of(comm: &Communicator) -> Vec<EdgeUse> {
    let sending = comm.explain().edges.into_iter().filter(|edge| edge.sends);
    sending
        .map(|edge| EdgeUse {
            transport: edge.transport,
            from: comm.rank(),
            to: edge.peer,
        })
        .collect()
}

/// Brings the edges of all ranks to rank 0; the others get nothing.
pub(crate) fn gather(own: Vec<EdgeUse>, coordinator: Coordinator<'_>) -> Result<Vec<EdgeUse>> {
    let internal = |error: serde_json::Error| {
        Error::new(ErrorKind::Internal, "the list of edges is not what it was").with_source(error)
    };
    let text = serde_json::to_string(&own).map_err(internal)?;
    let mut all = Vec::new();
    for text in coordinator.gather(text)? {
        all.append(&mut serde_json::from_slice::<Vec<EdgeUse>>(&text).map_err(internal)?);
    }
    all.sort();
    Ok(all)
}

/// The transports that carry the edges, as in `shm` or `net+shm`; edges of ranks to themselves show
/// only when there is nothing else.
pub(crate) fn transports(edges: &[EdgeUse]) -> String {
    let names = |between: bool| -> BTreeSet<&str> {
        let edges = edges.iter().filter(|edge| !between || edge.from != edge.to);
        edges.map(|edge| edge.transport.as_str()).collect()
    };
    let mut shown = names(true);
    if shown.is_empty() {
        shown = names(false);
    }
    if shown.is_empty() {
        return "none".to_owned();
    }
    shown.into_iter().collect::<Vec<_>>().join("+")
}

/// How many edges each transport carries and, if they are few, between which ranks:
/// `shm 2 (0>1 1>0)`.
pub(crate) fn summary(edges: &[EdgeUse]) -> String {
    #[derive(Default)]
    struct Carried {
        edges: usize,
        pairs: BTreeSet<(u32, u32)>,
    }
    let mut by_transport: BTreeMap<&str, Carried> = BTreeMap::new();
    for edge in edges {
        let carried = by_transport.entry(&edge.transport).or_default();
        carried.edges += 1;
        carried.pairs.insert((edge.from, edge.to));
    }
    if by_transport.is_empty() {
        return "none".to_owned();
    }
    let pairs: usize = by_transport
        .values()
        .map(|carried| carried.pairs.len())
        .sum();
    let groups: Vec<String> = by_transport
        .into_iter()
        .map(|(transport, carried)| {
            let count = carried.edges;
            if pairs > LISTED_PAIRS {
                return format!("{transport} {count}");
            }
            let pairs: Vec<_> = carried
                .pairs
                .into_iter()
                .map(|(from, to)| format!("{from}>{to}"))
                .collect();
            format!("{transport} {count} ({})", pairs.join(" "))
        })
        .collect();
    groups.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(transport: &str, from: u32, to: u32) -> EdgeUse {
        EdgeUse {
            transport: transport.to_owned(),
            from,
            to,
        }
    }

    #[test]
    fn a_row_names_the_transports_between_ranks() {
        assert_eq!(
            transports(&[edge("shm", 0, 1), edge("self", 0, 0), edge("net", 0, 2)]),
            "net+shm"
        );
        assert_eq!(transports(&[edge("self", 0, 0)]), "self");
        assert_eq!(transports(&[]), "none");
    }

    #[test]
    fn few_edges_are_listed_by_pair() {
        let edges = [edge("shm", 0, 1), edge("shm", 1, 0), edge("net", 0, 2)];
        assert_eq!(summary(&edges), "net 1 (0>2), shm 2 (0>1 1>0)");
    }

    #[test]
    fn several_channels_between_two_ranks_are_counted() {
        assert_eq!(
            summary(&[edge("shm", 0, 1), edge("shm", 0, 1)]),
            "shm 2 (0>1)"
        );
    }

    #[test]
    fn many_edges_are_counted_only() {
        let edges: Vec<_> = (0..8)
            .flat_map(|from| {
                (0..8)
                    .filter(move |to| *to != from)
                    .map(move |to| edge("shm", from, to))
            })
            .collect();
        assert_eq!(summary(&edges), "shm 56");
        assert_eq!(summary(&[]), "none");
    }
}
