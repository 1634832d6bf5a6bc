//! What a benchmark prints and writes.

use std::collections::BTreeSet;

use comm_bench::Operation;
use comm_core::{DType, ReduceOp};

use crate::command::{bench_with_rows, commctl, rows};

#[test]
fn every_operation_is_measured_checked_and_written() {
    let (ended, rows) = bench_with_rows("--ranks 2 --max-bytes 128K --factor 128 --time 0.005");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for operation in Operation::ALL {
        let rows: Vec<_> = rows.iter().filter(|row| row.op == operation).collect();
        let sizes: BTreeSet<_> = rows.iter().map(|row| row.bytes).collect();
        let wanted = match operation {
            Operation::Init => BTreeSet::from([8]),
            _ => BTreeSet::from([8, 1024, 128 << 10]),
        };
        assert_eq!(sizes, wanted, "{operation}");
        let places = if operation.is_collective() { 2 } else { 1 };
        assert_eq!(rows.len(), places * sizes.len(), "{operation}");
        for row in rows {
            assert_eq!((row.ranks, row.wrong), (2, Some(0)), "{row:?}");
            assert_eq!(row.transport, "shm", "{row:?}");
            assert_eq!(row.redop.is_some(), operation.reduces(), "{row:?}");
            let time = row.time_us;
            assert!(
                time.min > 0.0 && time.min <= time.p50 && time.p50 <= time.p99,
                "{row:?}"
            );
        }
    }
}

#[test]
fn the_tables_are_plain_text_with_the_transport_of_each_edge() {
    let (ended, _) = bench_with_rows("--op pingpong,init --ranks 2 --max-bytes 8 --time 0.001");
    assert!(
        ended.stdout.chars().all(|c| c == '\n' || !c.is_control()),
        "{ended:?}"
    );
    assert_eq!(ended.stderr, "", "no progress where nobody watches");
    for part in [
        "# comm 0.",
        "# host ",
        "# pingpong, 2 ranks",
        "# init, 2 ranks",
    ] {
        assert_eq!(ended.stdout.matches(part).count(), 1, "{part}: {ended:?}");
    }
    assert_eq!(
        ended.stdout.matches("# edges: shm 2 (0>1 1>0)\n").count(),
        2,
        "{ended:?}"
    );
    assert_eq!(
        ended.stdout.matches("# wrong elements: 0 OK\n").count(),
        2,
        "{ended:?}"
    );
}

#[test]
fn every_element_type_and_operator_is_right() {
    let types = "f32,f64,f16,bf16,i8,u8,i32,u32,i64,u64";
    let (ended, rows) = bench_with_rows(&format!(
        "--op all_reduce --ranks 3 --dtype {types} --redop sum,prod,min,max,avg \
         --min-bytes 1000 --max-bytes 100000 --factor 100 --time 0.0001"
    ));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(rows.len(), 10 * 5 * 2 * 2);
    let pairs: BTreeSet<_> = rows
        .iter()
        .map(|row| (row.dtype as u8, row.redop.unwrap() as u8))
        .collect();
    assert_eq!(pairs.len(), 10 * ReduceOp::ALL.len());
    assert!(rows.iter().all(|row| row.wrong == Some(0)), "{ended:?}");
    // Whole elements only: 1000 bytes are 125 of the largest.
    assert!(
        rows.iter()
            .all(|row| row.bytes % row.dtype.size_bytes() as u64 == 0)
    );
    assert!(
        rows.iter()
            .any(|row| row.dtype == DType::F64 && row.bytes == 1000)
    );
}

#[test]
fn unchecked_results_are_not_called_right() {
    let (ended, rows) =
        bench_with_rows("--op broadcast --in-place --no-check --max-bytes 8 --time 0.001");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.contains("# wrong elements: not checked"),
        "{ended:?}"
    );
    assert_eq!(rows.len(), 1);
    assert!(rows[0].in_place && rows[0].wrong.is_none(), "{rows:?}");
}

#[test]
fn an_empty_message_is_a_size_too() {
    let (ended, rows) =
        bench_with_rows("--op all --ranks 2 --min-bytes 0 --max-bytes 0 --time 0.001");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for operation in Operation::ALL {
        let empty = rows
            .iter()
            .filter(|row| row.op == operation && row.bytes == 0)
            .count();
        let wanted = match operation {
            Operation::Init => 0,
            operation if operation.is_collective() => 2,
            _ => 1,
        };
        assert_eq!(empty, wanted, "{operation}");
    }
}

#[test]
fn the_json_file_is_written_anew_by_each_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.json");
    let file = path.to_str().unwrap();
    let arguments = "bench --op pingpong --max-bytes 8 --time 0.001 --json".split(' ');
    let arguments: Vec<_> = arguments.chain([file]).collect();
    for _ in 0..2 {
        assert_eq!(commctl(&arguments, &[]).code, Some(0));
        assert_eq!(rows(&path).len(), 1);
    }
}
