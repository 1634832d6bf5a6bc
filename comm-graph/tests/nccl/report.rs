//! The report has NCCL's field names and values.

use comm_graph::model::build;
use comm_graph::plan::Plan;
use comm_graph::report::GraphReport;
use comm_graph::{CrossNic, Options};

use super::cases::cases;

#[test]
fn the_report_has_the_fields_of_the_expected_files() {
    for case in cases() {
        let system = build(&case.document).unwrap();
        let mut ticks = 0.0;
        let hosts = Plan::hosts_in_turn(std::slice::from_ref(&system), case.hosts);
        let clock = || {
            ticks += 1.5;
            ticks
        };
        let plan = Plan::with_clock(vec![system], &hosts, &Options::default(), clock).unwrap();
        let report = serde_json::to_value(GraphReport::new(&plan)).unwrap();
        for pointer in [
            "/nranks",
            "/nccl_nodes",
            "/min_cc",
            "/max_cc",
            "/rank_domain",
            "/final/nchannels",
            "/final/rings",
            "/final/tree_up",
            "/final/tree_down",
            "/p2p_schedule/send",
            "/p2p_schedule/group_size",
        ] {
            let expected = case.expected.pointer(pointer);
            assert_eq!(report.pointer(pointer), expected, "{} {pointer}", case.name);
        }
        let domains = case.expected["domains"].as_array().unwrap();
        assert_eq!(report["domains"].as_array().unwrap().len(), domains.len());
        for (ours, theirs) in report["domains"].as_array().unwrap().iter().zip(domains) {
            for (name, graph) in theirs["graphs"].as_object().unwrap() {
                let keys = |value: &serde_json::Value| {
                    value
                        .as_object()
                        .unwrap()
                        .keys()
                        .cloned()
                        .collect::<Vec<_>>()
                };
                assert_eq!(
                    keys(&ours["graphs"][name]),
                    keys(graph),
                    "{} {name}",
                    case.name
                );
                assert_eq!(ours["graphs"][name]["search_ms"], 1.5);
                for key in ["pattern", "type_intra", "type_inter"] {
                    assert_eq!(
                        ours["graphs"][name][key], graph[key],
                        "{} {name}",
                        case.name
                    );
                }
            }
            for table in ["gpu_gpu", "gpu_net", "net_gpu", "gpu_cpu"] {
                let rows = |value: &serde_json::Value| value[table].as_array().unwrap().len();
                assert_eq!(
                    rows(&ours["paths"]),
                    rows(&theirs["paths"]),
                    "{}",
                    case.name
                );
            }
        }
        for (collective, tuning) in case.expected["tuning"].as_object().unwrap() {
            let theirs = tuning["lat_bw"].as_object().unwrap();
            let ours = report["tuning"][collective]["lat_bw"].as_object().unwrap();
            assert!(ours.keys().eq(theirs.keys()), "{} {collective}", case.name);
            let sizes = |choices: &serde_json::Value| -> Vec<u64> {
                let choices = choices.as_array().unwrap().iter();
                choices.map(|choice| choice[0].as_u64().unwrap()).collect()
            };
            let ours = &report["tuning"][collective]["choice"];
            assert_eq!(sizes(ours), sizes(&tuning["choice"]), "{}", case.name);
        }
    }
}

/// NCCL's answer for this setting: 8 channels at 45 GB/s, through relays.
#[test]
fn without_cross_nic_an_h100_machine_reaches_nccls_bandwidth() {
    let Some(case) = cases()
        .into_iter()
        .find(|case| case.name == "azure-ndv5-n2")
    else {
        return;
    };
    let mut options = Options::default();
    options.cross_nic = CrossNic::Never;
    let plan = Plan::uniform(build(&case.document).unwrap(), 2, &options).unwrap();
    plan.validate().unwrap();
    let ring = plan.ring_graph();
    assert!(
        ring.channels as f32 * ring.bw_inter >= 8.0 * 45.0,
        "{ring:?}"
    );
}
