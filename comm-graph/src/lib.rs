//! Pure functions from a machine's topology to the channels of its communicators.
//!
//! ```text
//! xml::parse -> model::build -> path::Topology -> search::search -> plan::Plan -> report, tuning
//!   a file       nodes, links    paths, domains    channels of a      neighbours    as JSON,
//!                                                  domain             of every rank as times
//! ```
//!
//! # Contract
//!
//! * Everything here is a function of its arguments: no environment, clock, file or global state
//!   is read, except that [`detect`] reads the files of a machine. Equal inputs give equal results
//!   on every rank, so ranks that exchanged their facts need no leader to agree on a plan.
//! * Any input ends in a value or an [`Error`](comm_core::Error); malformed files and absurd
//!   numbers never panic.
//! * Bandwidths are GB/s (1e9 bytes per second), times are microseconds, unless a name says
//!   otherwise.
//! * Jobs on GPUs start from topology files ([`plan::Plan::new`]), jobs on host memory from what
//!   ranks tell about themselves ([`plan::plan_for_hosts`]).
//!
//! ```
//! use comm_graph::{Options, model, plan::Plan, tuning, xml};
//!
//! let file = br#"<system version="1">
//!   <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">
//!     <endpoint dev="0"/> <endpoint dev="1"/>
//!   </cpu>
//! </system>"#;
//! let document = xml::parse("two-slots.xml", file)?;
//! let system = model::build(&document)?;
//! let plan = Plan::uniform(system, 3, &Options::default())?;
//! assert_eq!(plan.ranks(), 6);
//! assert_eq!(plan.ring_order(0).len(), 6);
//! let model = tuning::CostModel::new(&plan);
//! let best = model.predict(tuning::Collective::AllReduce, 1 << 30)[0];
//! assert!(best.bus_gbps > 0.0);
//! # Ok::<(), comm_core::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod detect;
pub mod draw;
pub mod model;
mod options;
pub mod path;
pub mod pattern;
pub mod plan;
pub mod report;
pub mod search;
pub mod tuning;
pub mod xml;

pub use options::{CrossNic, NetDevsPolicy, Options};
