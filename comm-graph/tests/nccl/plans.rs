//! Final channels over all hosts: equal to NCCL's, and valid.

use comm_graph::Options;
use comm_graph::model::build;
use comm_graph::plan::Plan;
use serde_json::{Value, json};

use super::cases::cases;

fn number(rank: Option<u32>) -> i64 {
    rank.map_or(-1, i64::from)
}

#[test]
fn final_rings_and_trees_are_equal_for_every_file_and_host_count() {
    for case in cases() {
        let system = build(&case.document).unwrap();
        let plan = Plan::uniform(system, case.hosts, &Options::default()).unwrap();
        plan.validate().unwrap();
        let wanted = &case.expected["final"];
        assert_eq!(json!(plan.channels()), wanted["nchannels"], "{}", case.name);
        assert_eq!(
            json!(plan.nodes()),
            case.expected["nccl_nodes"],
            "{}",
            case.name
        );
        let rings: Vec<Vec<u32>> = (0..plan.channels()).map(|c| plan.ring_order(c)).collect();
        assert_eq!(json!(rings), wanted["rings"], "{}", case.name);
        let ranks = plan.ranks() as u32;
        let trees = |of: &dyn Fn(u32, usize) -> Value| -> Value {
            (0..plan.channels())
                .map(|channel| (0..ranks).map(|rank| of(rank, channel)).collect::<Value>())
                .collect()
        };
        let up = trees(&|rank, channel| json!(number(plan.tree(rank, channel).unwrap().up)));
        assert_eq!(up, wanted["tree_up"], "{}", case.name);
        let down =
            trees(&|rank, channel| json!(plan.tree(rank, channel).unwrap().down.map(number)));
        assert_eq!(down, wanted["tree_down"], "{}", case.name);
    }
}

#[test]
fn hosts_of_all_files_together_have_a_valid_plan() {
    let systems: Vec<_> = cases()
        .iter()
        .filter(|case| case.hosts == 1)
        .map(|case| build(&case.document).unwrap())
        .collect();
    if systems.is_empty() {
        return;
    }
    let hosts = Plan::hosts_in_turn(&systems, 2 * systems.len() + 1);
    let plan = Plan::new(systems, &hosts, &Options::default()).unwrap();
    plan.validate().unwrap();
    let least = plan
        .domains()
        .iter()
        .map(|domain| domain.ring.channels.len())
        .min();
    assert_eq!(
        Some(plan.ring_graph().channels),
        least,
        "every host has every channel"
    );
}
