//! Latencies and bandwidths of the cost model are NCCL's within 1e-3.

use comm_graph::Options;
use comm_graph::model::build;
use comm_graph::plan::Plan;
use comm_graph::tuning::{Algorithm, Collective, CostModel, Protocol};

use super::cases::cases;

#[test]
fn the_cost_tables_are_equal_for_every_file_and_host_count() {
    for case in cases() {
        let system = build(&case.document).unwrap();
        let plan = Plan::uniform(system, case.hosts, &Options::default()).unwrap();
        let model = CostModel::new(&plan);
        let mut problems = Vec::new();
        for collective in Collective::ALL {
            let expected = &case.expected["tuning"][collective.as_str()]["lat_bw"];
            for algorithm in Algorithm::ALL {
                for protocol in Protocol::ALL {
                    let key = format!("{algorithm}/{protocol}");
                    let ours = model.cost(*collective, *algorithm, *protocol);
                    let theirs = expected
                        .get(&key)
                        .map(|pair| (pair[0].as_f64().unwrap(), pair[1].as_f64().unwrap()));
                    let near = |a: f64, b: f64| (a - b).abs() <= 1e-3 * b.abs();
                    let equal = match (ours, theirs) {
                        (None, None) => true,
                        (Some(a), Some(b)) => near(a.latency_us, b.0) && near(a.gbps, b.1),
                        _ => false,
                    };
                    if !equal {
                        problems.push(format!("{collective} {key}: {ours:?}, NCCL {theirs:?}"));
                    }
                }
            }
        }
        assert!(problems.is_empty(), "{}: {problems:#?}", case.name);
    }
}

/// NCCL prints for each size what it would choose and how long it expects that to take.
#[test]
fn the_choice_of_algorithm_and_its_time_are_nccls_for_every_size() {
    for case in cases() {
        let system = build(&case.document).unwrap();
        let plan = Plan::uniform(system, case.hosts, &Options::default()).unwrap();
        let model = CostModel::new(&plan);
        let mut problems = Vec::new();
        for collective in Collective::ALL {
            let choices = &case.expected["tuning"][collective.as_str()]["choice"];
            for choice in choices.as_array().unwrap() {
                let bytes = 1 << choice[0].as_u64().unwrap();
                let chosen = model.choose(*collective, bytes).unwrap();
                let best = &chosen.prediction;
                let (algorithm, protocol) = (choice[1].as_str(), choice[2].as_str());
                let time = choice[5].as_f64().unwrap();
                let same = Some(best.algorithm.as_str()) == algorithm
                    && Some(best.protocol.as_str()) == protocol;
                // Two ways may take equally long.
                let near = (best.time_us - time).abs() <= 1e-3 * time;
                let size = (choice[3].as_u64(), choice[4].as_u64());
                let as_large = size == (Some(chosen.channels as u64), Some(chosen.warps));
                if !near || (same && !as_large) {
                    problems.push(format!(
                        "{collective} {choice}: {chosen:?}, same way: {same}"
                    ));
                }
            }
        }
        assert!(problems.is_empty(), "{}: {problems:#?}", case.name);
    }
}
