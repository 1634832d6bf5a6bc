//! How many channels there are in the end.

use crate::options::Options;
use crate::search::MAX_CHANNELS;

use super::align::CommonGraph;

/// The channels that are used in the end: every searched channel twice (once per tree of the
/// double binary tree), more copies where network cards need them, then the user's limits.
pub(super) fn final_channels(
    ring: &CommonGraph,
    tree: &CommonGraph,
    nodes: usize,
    slowest_capability: u32,
    options: &Options,
) -> Vec<(u32, u8)> {
    let searched = ring.channels.min(tree.channels) as u32;
    let mut channels: Vec<(u32, u8)> = (0..2)
        .flat_map(|tree| (0..searched).map(move |channel| (channel, tree)))
        .collect();
    channels.truncate(MAX_CHANNELS);
    if slowest_capability >= 90 && nodes > 1 && ring.bw_intra > 45.0 && channels.len() < 16 {
        let wanted = 2 * channels.len();
        copy_up_to(&mut channels, wanted);
    }
    channels.truncate(options.max_channels.unwrap_or(MAX_CHANNELS));
    copy_up_to(&mut channels, options.min_channels.unwrap_or(0));
    channels
}

/// Repeats channels from the first on until there are `wanted`.
fn copy_up_to(channels: &mut Vec<(u32, u8)>, wanted: usize) {
    let start = channels.len();
    for index in start..wanted.min(MAX_CHANNELS) {
        channels.push(channels[index - start]);
    }
}
