//! Searched channels reach NCCL's bandwidth and pass a checker of their own.

use comm_graph::Options;
use comm_graph::model::build;
use comm_graph::plan::Plan;
use comm_graph::search::Graph;
use serde_json::Value;

use super::cases::cases;

#[path = "../checker/mod.rs"]
mod checker;

fn product(graph: &Value, bandwidth: &str) -> f64 {
    graph["nchannels"].as_f64().unwrap() * graph[bandwidth].as_f64().unwrap()
}

/// Ring, tree and NVLS of every domain of every case.
fn for_all(mut check: impl FnMut(&str, &Plan, usize, &str, &Graph, &Value)) {
    for case in cases() {
        let system = build(&case.document).unwrap();
        let plan = Plan::uniform(system, case.hosts, &Options::default()).unwrap();
        for (index, domain) in plan.domains().iter().enumerate() {
            let expected = &case.expected["domains"][index]["graphs"];
            for (name, graph) in [
                ("ring", &domain.ring),
                ("tree", &domain.tree),
                ("nvls", &domain.nvls),
            ] {
                check(&case.name, &plan, index, name, graph, &expected[name]);
            }
        }
    }
}

#[test]
fn channels_times_bandwidth_is_at_least_nccls() {
    for_all(|case, _, index, name, graph, theirs| {
        if theirs.is_null() {
            return;
        }
        let channels = graph.channels.len() as f64;
        for (what, ours) in [("bw_intra", graph.bw_intra), ("bw_inter", graph.bw_inter)] {
            let (ours, theirs) = (channels * f64::from(ours), product(theirs, what));
            assert!(
                ours >= theirs * (1.0 - 1e-6),
                "{case} domain {index} {name}: {ours} instead of {theirs} GB/s by {what}"
            );
        }
    });
}

#[test]
fn searched_channels_are_valid_and_overload_no_link() {
    for_all(|case, plan, index, name, graph, _| {
        let topology = &plan.domains()[index].topology;
        if let Err(problem) = checker::check(topology, graph) {
            panic!("{case} domain {index} {name}: {problem}");
        }
    });
}
