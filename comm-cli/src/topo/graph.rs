//! `commctl topo graph`.

use std::fmt::Write as _;

use comm_core::{Error, ErrorKind, Result};
use comm_graph::plan::Plan;
use comm_graph::report::GraphReport;

use super::options::Job;
use super::{Lookup, input, plan::headline};

/// Rings are printed up to this many ranks.
const MOST_RANKS: usize = 32;

/// The plan of a job, as JSON or as a summary.
pub(super) fn text(job: &Job, json: bool, lookup: Lookup<'_>) -> Result<String> {
    let (_, plan) = input::plan(job, lookup)?;
    if !json {
        return Ok(summary(&plan));
    }
    let mut text = serde_json::to_string(&GraphReport::new(&plan)).map_err(|error| {
        Error::new(ErrorKind::Internal, "the report is no JSON").with_source(error)
    })?;
    text.push('\n');
    Ok(text)
}

fn summary(plan: &Plan) -> String {
    let mut text = format!("{}\n", headline(plan));
    for (number, domain) in plan.domains().iter().enumerate() {
        let graphs = [
            ("ring", &domain.ring),
            ("tree", &domain.tree),
            ("nvls", &domain.nvls),
        ];
        for (name, graph) in graphs
            .iter()
            .filter(|(_, graph)| !graph.channels.is_empty())
        {
            let _ = writeln!(
                text,
                "domain {number} {name}: {} channels of {} GB/s inside and {} GB/s outside, {} and {}",
                graph.channels.len(),
                graph.bw_intra,
                graph.bw_inter,
                graph.type_intra,
                graph.type_inter,
            );
        }
    }
    for channel in 0..plan.channels() {
        let order = plan.ring_order(channel);
        let ranks: Vec<String> = order.iter().take(MOST_RANKS).map(u32::to_string).collect();
        let rest = if order.len() > MOST_RANKS { " ..." } else { "" };
        let _ = writeln!(text, "ring {channel}: {}{rest}", ranks.join(" "));
    }
    text
}
