//! Paths, domains and local networks are equal to NCCL's.

use comm_graph::Options;
use comm_graph::model::{NodeKind, build};
use comm_graph::path::Topology;
use serde_json::{Value, json};

use super::cases::cases;

fn table(topology: &Topology, from: NodeKind, to: NodeKind) -> Value {
    let system = topology.system();
    let rows = system.of_kind(from).iter().map(|from| {
        let row = system.of_kind(to).iter().map(|to| {
            let path = topology.paths().get(*from, *to);
            json!([path.kind, path.gbps, path.hops()])
        });
        row.collect::<Value>()
    });
    rows.collect()
}

fn differences(what: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{what}[{index}]"), a, b, found);
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            if (a - b).abs() > 1e-4 * b.abs().max(1.0) {
                found.push(format!("{what}: {a} instead of {b}"));
            }
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{what}: {ours} instead of {theirs}")),
    }
}

#[test]
fn paths_and_domains_are_equal_for_every_file_and_host_count() {
    for case in cases() {
        let system = build(&case.document).unwrap();
        let per_host = system.of_kind(NodeKind::Endpoint).len();
        let ranks = per_host * case.hosts;
        assert_eq!(case.expected["nranks"], json!(ranks), "{}", case.name);
        let (domains, domain_of) = Topology::domains(&system, ranks, &Options::default()).unwrap();
        let mut found = Vec::new();
        let by_rank: Vec<usize> = (0..ranks)
            .map(|rank| {
                let local = u32::try_from(rank % per_host).unwrap();
                let index = system.ranks().iter().position(|r| *r == local).unwrap();
                domain_of[index]
            })
            .collect();
        differences(
            "rank_domain",
            &json!(by_rank),
            &case.expected["rank_domain"],
            &mut found,
        );
        let expected = case.expected["domains"].as_array().unwrap();
        assert_eq!(domains.len(), expected.len(), "{}", case.name);
        for (index, (topology, expected)) in domains.iter().zip(expected).enumerate() {
            use NodeKind::{Cpu, Endpoint, Net};
            for (name, from, to) in [
                ("gpu_gpu", Endpoint, Endpoint),
                ("gpu_net", Endpoint, Net),
                ("net_gpu", Net, Endpoint),
                ("gpu_cpu", Endpoint, Cpu),
            ] {
                let ours = table(topology, from, to);
                let what = format!("{index}.{name}");
                differences(&what, &ours, &expected["paths"][name], &mut found);
            }
            let theirs = &expected["system"];
            let ours = json!([
                topology.max_gbps(),
                topology.total_gbps(),
                topology.is_part() as u8
            ]);
            let theirs = json!([theirs["max_bw"], theirs["total_bw"], theirs["inter"]]);
            differences("max, total, inter", &ours, &theirs, &mut found);
            let gdr: Value = (0..topology.system().of_kind(Endpoint).len())
                .map(|endpoint| {
                    let ports = 0..topology.system().of_kind(Net).len();
                    let uses = |net, sending| {
                        u8::from(topology.uses_gdr(&Options::default(), endpoint, net, sending))
                    };
                    ports
                        .map(|net| json!([uses(net, false), uses(net, true)]))
                        .collect::<Value>()
                })
                .collect();
            differences("gdr", &gdr, &expected["gdr"], &mut found);
            let local = topology.local_nets();
            let nets = topology.system().of_kind(Net).len();
            let ours: Vec<i64> = (0..nets)
                .map(|n| local.endpoint(n).map_or(-1, |e| e as i64))
                .collect();
            let theirs: Value = expected["system"]["nets"]
                .as_array()
                .unwrap()
                .iter()
                .map(|net| net["local_gpu"].clone())
                .collect();
            differences("local_gpu", &json!(ours), &theirs, &mut found);
        }
        let shown = &found[..found.len().min(8)];
        assert!(
            found.is_empty(),
            "{}: {} differences: {shown:#?}",
            case.name,
            found.len()
        );
    }
}
