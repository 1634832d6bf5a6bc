//! Trees, ring construction and rounds are equal to NCCL's.

use comm_graph::pattern::{P2pSchedule, double_tree, ring_order};
use serde_json::{Value, json};

use super::cases::{cases, trees};

/// FNV-1a with the table's offset basis, which lacks the usual one's last decimal digit.
fn fnv(values: &[i32]) -> String {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    let hash = bytes.fold(1_469_598_103_934_665_603_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[test]
fn double_binary_trees_are_equal() {
    let Some(table) = trees() else { return };
    for (count, expected) in table["dtree"].as_object().unwrap() {
        let count: u32 = count.parse().unwrap();
        let mut columns = vec![Vec::new(); 8];
        let number = |node: Option<u32>| node.map_or(-1, |node| i32::try_from(node).unwrap());
        for node in 0..count {
            for (index, tree) in double_tree(node, count).unwrap().trees.iter().enumerate() {
                columns[index * 4].push(number(tree.parent));
                columns[index * 4 + 1].push(number(tree.children[0]));
                columns[index * 4 + 2].push(number(tree.children[1]));
                columns[index * 4 + 3].push(tree.side.map_or(-1, i32::from));
            }
        }
        let names = [
            "up0", "d0_0", "d0_1", "type0", "up1", "d1_0", "d1_1", "type1",
        ];
        for (name, column) in names.iter().zip(&columns) {
            let shown = expected[name].as_array().unwrap();
            assert_eq!(
                json!(column[..shown.len()]),
                expected[name],
                "{name} of {count}"
            );
        }
        let hashes: Vec<String> = columns.iter().map(|column| fnv(column)).collect();
        assert_eq!(json!(hashes), expected["fnv"], "{count}");
    }
}

fn ranks(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_u64().unwrap() as u32)
        .collect()
}

#[test]
fn ring_construction_and_its_errors_are_equal() {
    let Some(table) = trees() else { return };
    for ring in table["rings"].as_array().unwrap() {
        let start = ring["rank"].as_u64().unwrap() as u32;
        let order = ring_order(start, &ranks(&ring["next"]), &ranks(&ring["prev"])).unwrap();
        assert_eq!(json!(order), ring["ring"]);
    }
    for ring in table["ring_errors"].as_array().unwrap() {
        let start = ring["rank"].as_u64().unwrap() as u32;
        let next = ranks(&ring["next"]);
        let mut prev = vec![0; next.len()];
        for (rank, next) in next.iter().enumerate() {
            prev[*next as usize] = rank as u32;
        }
        assert_ne!(ring["result"], json!(0));
        assert!(ring_order(start, &next, &prev).is_err(), "{}", ring["what"]);
    }
}

#[test]
fn p2p_rounds_are_equal_for_every_file_and_host_count() {
    for case in cases() {
        let expected = &case.expected;
        let domains = expected["domains"].as_array().unwrap().len();
        let domain_of = expected["rank_domain"].as_array().unwrap();
        let per_host = domain_of.len() / case.hosts;
        let node_of: Vec<u32> = domain_of
            .iter()
            .enumerate()
            .map(|(rank, domain)| {
                (rank / per_host * domains) as u32 + domain.as_u64().unwrap() as u32
            })
            .collect();
        let schedule = P2pSchedule::new(&node_of);
        let sends: Vec<Vec<u32>> = (0..node_of.len() as u32)
            .map(|rank| schedule.rounds(rank).map(|round| round.send).collect())
            .collect();
        let wanted = &expected["p2p_schedule"];
        assert_eq!(
            json!(schedule.group_size()),
            wanted["group_size"],
            "{}",
            case.name
        );
        assert_eq!(json!(sends), wanted["send"], "{}", case.name);
    }
}
