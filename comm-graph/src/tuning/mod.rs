//! What a collective costs: predicted time per algorithm, protocol and size.
//!
//! # Contract
//!
//! * `time = latency + bytes / bandwidth`, with one latency and one *algorithm bandwidth* per
//!   (collective, algorithm, protocol), computed once from the plan and a [`CostTable`].
//! * For GPUs the constants are NCCL 2.30's; for host memory they are our own defaults. A table is
//!   plain data (serialisable), so that measured values can replace it; ranks must use equal
//!   tables, or they choose different algorithms.
//! * What a machine cannot run has no entry.

mod choice;
mod constants;
mod model;
mod names;

pub use choice::Choice;
pub use constants::{CostTable, HopLatency, ProtocolLatency};
pub use model::{Cost, CostModel, Prediction};
pub use names::{Algorithm, Collective, Protocol};
