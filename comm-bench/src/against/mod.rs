//! Comparing the library with other systems on the same machine.
//!
//! Whoever measures brings [`Sample`]s, round by round; a [`Comparison`] makes [`Line`]s of them, one
//! for each operation, medium, number of ranks and size: medians over the rounds, and how our time
//! relates to each peer's.
//!
//! # Contract
//!
//! * A ratio is the median over rounds of (our time / the peer's time in the same round), so what
//!   disturbs a whole round disturbs both sides of it. Below 1 the library is faster.
//! * Only what was measured is compared: a size that one side lacks has no ratio.
//! * [`plot`] draws the same lines, [`Line`] is what the JSON file holds, `Display` of a comparison is
//!   the table.

mod comparison;
mod plot;
pub mod programs;
mod table;

pub use comparison::{Comparison, Key, Line, Medium, OURS, Peer, Sample};
pub use plot::plot;
