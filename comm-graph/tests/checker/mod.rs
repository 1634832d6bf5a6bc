//! An independent checker of searched channels: it knows the model and the paths, not the search.

use comm_graph::model::{NodeId, NodeKind};
use comm_graph::path::Topology;
use comm_graph::search::{Graph, Pattern};

/// Every order visits every endpoint once, ports exist, and the sum of what all channels send over
/// a link stays within the link's bandwidth.
pub(crate) fn check(topology: &Topology, graph: &Graph) -> Result<(), String> {
    let system = topology.system();
    let endpoints = system.of_kind(NodeKind::Endpoint);
    let nets = system.of_kind(NodeKind::Net);
    let mut load = vec![0.0_f64; system.link_count()];
    let mut send = |from: NodeId, to: NodeId, gbps: f32| -> Result<(), String> {
        if from == to {
            return Ok(());
        }
        let path = topology.paths().get(from, to);
        let ends = (path.links.first(), path.links.last());
        let (Some(first), Some(last)) = ends else {
            return Err("a hop has no path".into());
        };
        if system.link(*first).from != from || system.link(*last).to != to {
            return Err("a path does not lead from its start to its end".into());
        }
        for pair in path.links.windows(2) {
            if system.link(pair[0]).to != system.link(pair[1]).from {
                return Err("a path has a gap".into());
            }
        }
        for link in &path.links {
            load[link.index()] += f64::from(gbps);
        }
        Ok(())
    };
    for channel in &graph.channels {
        let order = &channel.endpoints;
        if graph.pattern == Pattern::Nvls {
            let [head] = order[..] else {
                return Err("an NVLS channel has one head".into());
            };
            let switch = system.of_kind(NodeKind::NvSwitch)[0];
            for (index, endpoint) in endpoints.iter().enumerate() {
                let times = if index == head { 2.0 } else { 1.0 };
                send(*endpoint, switch, graph.bw_intra * times)?;
                send(switch, *endpoint, graph.bw_intra * times)?;
            }
        } else {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..endpoints.len()) {
                return Err(format!("{order:?} does not visit every endpoint once"));
            }
            for pair in order.windows(2) {
                send(endpoints[pair[0]], endpoints[pair[1]], graph.bw_intra)?;
            }
        }
        let (first, last) = (order[0], order[order.len() - 1]);
        match channel.nets {
            None if graph.pattern == Pattern::Ring => {
                send(endpoints[last], endpoints[first], graph.bw_intra)?;
            }
            None => {}
            Some([enter, leave]) => {
                if enter >= nets.len() || leave >= nets.len() {
                    return Err("a port does not exist".into());
                }
                send(nets[enter], endpoints[first], graph.bw_inter)?;
                let (enter, leave) = (nets[enter], nets[leave]);
                match graph.pattern {
                    Pattern::Ring => send(endpoints[last], leave, graph.bw_inter)?,
                    Pattern::BalancedTree if order.len() > 1 => {
                        send(endpoints[first], leave, graph.bw_inter / 2.0)?;
                        send(endpoints[order[1]], leave, graph.bw_inter / 2.0)?;
                    }
                    Pattern::SplitTree if order.len() > 1 => {
                        send(endpoints[order[1]], leave, graph.bw_inter)?;
                    }
                    _ if enter != leave => return Err("a tree leaves on another port".into()),
                    _ => send(endpoints[first], leave, graph.bw_inter)?,
                }
            }
        }
    }
    for kind in NodeKind::ALL {
        for node in system.of_kind(kind) {
            for (id, link) in system.links_of(*node) {
                let (load, limit) = (load[id.index()], f64::from(link.gbps));
                if load > limit + 1e-2 {
                    return Err(format!(
                        "a {:?} link carries {load} of {limit} GB/s",
                        link.kind
                    ));
                }
            }
        }
    }
    Ok(())
}
