//! `commctl topo detect`.

use comm_core::Result;
use comm_graph::detect::Slots;

use super::options::Detect;
use super::{Lookup, input};

/// Detects this machine; the file as text, unless it was written to `--output`.
pub(super) fn run(options: &Detect, lookup: Lookup<'_>) -> Result<Option<String>> {
    let slots = match options.slots {
        Some(count) => Slots::PerNode(count as usize),
        None => Slots::Auto,
    };
    let text = input::detected(&options.root, slots, lookup)?.to_xml();
    match &options.output {
        Some(path) => input::write(path, &text).map(|()| None),
        None => Ok(Some(text)),
    }
}
