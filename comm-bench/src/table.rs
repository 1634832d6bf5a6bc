//! The table in the manner of nccl-tests: fixed width, comments behind `#`, one line per size with
//! the figures of both places side by side.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comm_api::PeerInfo;

use crate::edges::{self, EdgeUse};
use crate::host;
use crate::operation::Operation;
use crate::row::Row;
use crate::suite::Series;

/// Places whose figures stand beside each other, and what they are called.
const PLACES: [(bool, &str); 2] = [(false, "out of place"), (true, "in place")];
/// The width of the figures of one place.
const FIGURES: usize = 44;
const LEFT: usize = 44;

/// What stands above the first table: versions, host, CPUs and how to read the figures.
pub(crate) fn preamble(peers: &[PeerInfo]) -> String {
    let mut text = format!("# comm {}, {}\n", env!("CARGO_PKG_VERSION"), host::system());
    let mut hosts: BTreeMap<&str, (u32, Vec<u32>)> = BTreeMap::new();
    for peer in peers {
        let (cpus, ranks) = hosts.entry(&peer.host_name).or_default();
        *cpus = peer.cpus.max(*cpus);
        ranks.push(peer.rank);
    }
    for (name, (cpus, ranks)) in hosts {
        let ranks = ranks.len();
        let _ = writeln!(
            text,
            "# host {name}: {ranks} ranks, each may run on {cpus} CPU(s)"
        );
    }
    text.push_str(
        "# times in us per call, over batches of at least 20 us; the slowest rank's for \
         collectives,\n# half of the round trip for pingpong; bandwidths in GB/s (10^9 bytes per \
         second)\n",
    );
    text
}

/// The title and the column names of a table.
pub(crate) fn heading(series: &Series, ranks: usize, places: &[bool]) -> String {
    let mut text = format!("#\n# {}, {ranks} ranks", series.operation);
    match series.operation {
        Operation::Broadcast | Operation::Scatter => text.push_str(", from rank 0"),
        Operation::Reduce | Operation::Gather => text.push_str(", to rank 0"),
        Operation::Pingpong
        | Operation::Bandwidth
        | Operation::Object
        | Operation::Object8
        | Operation::Tensor
        | Operation::Tensor8 => {
            let _ = write!(text, ", rank 0 with rank {}", ranks.saturating_sub(1));
        }
        Operation::Init => text.push_str(", communicator and first all_reduce"),
        Operation::AllReduce
        | Operation::AllGather
        | Operation::ReduceScatter
        | Operation::AllToAll => {}
    }
    text.push('\n');
    if places.len() > 1 {
        let _ = write!(text, "#{:LEFT$}", "");
        for (_, name) in PLACES {
            let _ = write!(text, "{name:>FIGURES$}");
        }
        text.push('\n');
    }
    let _ = write!(
        text,
        "#{:>11} {:>6} {:>6} {:>14} {:>3}",
        "bytes", "type", "redop", "algorithm", "ch"
    );
    for _ in places {
        let _ = write!(
            text,
            "{:>11}{:>10}{:>9}{:>8}{:>6}",
            "p50", "p99", "algbw", "busbw", "wrong"
        );
    }
    text.push('\n');
    text
}

/// The line of one size: a row for each place.
pub(crate) fn line(rows: &[Row]) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let mut algorithms: Vec<&str> = rows.iter().map(|row| row.algorithm.as_str()).collect();
    algorithms.dedup();
    let channels = rows.iter().map(|row| row.channels).max().unwrap_or(0);
    let redop = first.redop.map_or("none", |op| op.as_str());
    let mut text = format!(
        "{:>12} {:>6} {redop:>6} {:>14} {channels:>3}",
        first.bytes,
        first.dtype.as_str(),
        algorithms.join("|"),
    );
    for row in rows {
        let wrong = row
            .wrong
            .map_or_else(|| "-".to_owned(), |wrong| wrong.to_string());
        let _ = write!(
            text,
            "{:>11}{:>10}{:>9}{:>8}{wrong:>6}",
            time(row.time_us.p50),
            time(row.time_us.p99),
            bandwidth(row.algbw_gbps),
            bandwidth(row.busbw_gbps),
        );
    }
    text.push('\n');
    text
}

/// What stands below a table.
pub(crate) fn footing(edges: &[EdgeUse], wrong: Option<u64>) -> String {
    let verdict = match wrong {
        None => "not checked".to_owned(),
        Some(0) => "0 OK".to_owned(),
        Some(wrong) => format!("{wrong} FAILED"),
    };
    format!(
        "# edges: {}\n# wrong elements: {verdict}\n",
        edges::summary(edges)
    )
}

/// Four digits or more, in a width that does not depend on the magnitude.
fn time(us: f64) -> String {
    let decimals = match us {
        us if us < 10.0 => 3,
        us if us < 100.0 => 2,
        us if us < 1000.0 => 1,
        _ => 0,
    };
    format!("{us:.decimals$}")
}

fn bandwidth(gbps: f64) -> String {
    format!("{gbps:.2}")
}

#[cfg(test)]
mod tests {
    use comm_api::{DType, ReduceOp};

    use super::*;
    use crate::row::tests::row;

    const SERIES: Series = Series {
        operation: Operation::AllReduce,
        dtype: DType::Bf16,
        redop: Some(ReduceOp::Avg),
    };

    #[test]
    fn columns_stand_under_their_names() {
        for places in [&[false][..], &[false, true]] {
            let heading = heading(&SERIES, 4, places);
            let names = heading.lines().last().unwrap();
            let rows: Vec<_> = places.iter().map(|&in_place| row(in_place)).collect();
            let line = line(&rows);
            assert_eq!(names.len(), line.trim_end_matches('\n').len());
            assert_eq!(
                names.trim_start_matches('#').split_whitespace().count(),
                5 + 5 * places.len()
            );
            assert_eq!(line.split_whitespace().count(), 5 + 5 * places.len());
            for (name, value) in [
                ("bytes", "1048576"),
                ("algorithm", "ring"),
                ("p50", "250.0"),
            ] {
                let end = |text: &str, part: &str| text.find(part).unwrap() + part.len();
                assert_eq!(end(names, name), end(&line, value), "{name}");
            }
        }
    }

    #[test]
    fn both_places_stand_beside_each_other() {
        let heading = heading(&SERIES, 4, &[false, true]);
        let above = heading.lines().nth(2).unwrap();
        let names = heading.lines().last().unwrap();
        assert!(
            above.ends_with("in place") && above.len() == names.len(),
            "{heading}"
        );
        assert_eq!(
            above.find("out of place").unwrap() + "out of place".len(),
            LEFT + 1 + FIGURES
        );
    }

    #[test]
    fn a_line_reads_like_nccl_tests() {
        assert_eq!(
            line(&[row(false)]),
            "     1048576   bf16    avg           ring   2      250.0     312.5     4.19    6.29     0\n"
        );
        let unchecked = Row {
            wrong: None,
            redop: None,
            ..row(false)
        };
        let text = line(&[unchecked]);
        assert!(text.contains(" none ") && text.ends_with(" -\n"), "{text}");
    }

    #[test]
    fn two_algorithms_for_one_size_are_both_named() {
        let other = Row {
            algorithm: "one_shot".to_owned(),
            ..row(true)
        };
        assert!(line(&[row(false), other]).contains(" ring|one_shot "));
    }

    #[test]
    fn times_keep_four_digits() {
        for (us, text) in [
            (0.0512, "0.051"),
            (12.345, "12.35"),
            (123.45, "123.5"),
            (12345.6, "12346"),
        ] {
            assert_eq!(time(us), text);
        }
    }

    #[test]
    fn the_verdict_is_plain() {
        assert!(footing(&[], Some(0)).ends_with("wrong elements: 0 OK\n"));
        assert!(footing(&[], Some(3)).ends_with("wrong elements: 3 FAILED\n"));
        assert!(footing(&[], None).ends_with("wrong elements: not checked\n"));
    }
}
