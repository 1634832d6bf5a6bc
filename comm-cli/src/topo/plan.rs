//! `commctl topo plan`.

use std::fmt::Write as _;

use comm_bench::Size;
use comm_core::Result;
use comm_graph::plan::Plan;
use comm_graph::tuning::CostModel;

use super::options::{Job, Operation};
use super::{Lookup, input};

/// Predictions for one size, fastest first.
pub(super) fn table(job: &Job, op: Operation, bytes: Size, lookup: Lookup<'_>) -> Result<String> {
    let (_, plan) = input::plan(job, lookup)?;
    let collective = op.collective();
    let mut text = String::new();
    let _ = writeln!(text, "{}", headline(&plan));
    let _ = writeln!(text, "{collective} of {bytes} per rank\n");
    let predictions = CostModel::new(&plan).predict(collective, bytes.0);
    if predictions.is_empty() {
        text.push_str("one rank alone has nobody to talk to; add --hosts\n");
        return Ok(text);
    }
    let _ = writeln!(
        text,
        "{:<10} {:<8} {:>14} {:>16} {:>16}",
        "algorithm", "protocol", "time", "algorithm GB/s", "bus GB/s"
    );
    for found in predictions {
        let algorithm_gbps = bytes.0 as f64 / (1e3 * found.time_us);
        let _ = writeln!(
            text,
            "{:<10} {:<8} {:>14} {:>16.2} {:>16.2}",
            found.algorithm.as_str(),
            found.protocol.as_str(),
            time(found.time_us),
            algorithm_gbps,
            found.bus_gbps,
        );
    }
    Ok(text)
}

/// How large a job is.
pub(super) fn headline(plan: &Plan) -> String {
    format!(
        "{} ranks on {} nodes, {} channels",
        plan.ranks(),
        plan.nodes(),
        plan.channels()
    )
}

/// Microseconds in the unit that keeps them short.
fn time(us: f64) -> String {
    if us < 1e3 {
        format!("{us:.1} us")
    } else if us < 1e6 {
        format!("{:.2} ms", us / 1e3)
    } else {
        format!("{:.2} s", us / 1e6)
    }
}
