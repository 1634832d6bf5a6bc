//! Conformance suites and mocks: how an implementation of a contract of `comm-core` is tested.
//!
//! A transport is tested against every clause of [`Transport`](comm_core::Transport) and of the
//! connections that it makes by one line:
//!
//! ```
//! use std::sync::Arc;
//!
//! use comm_core::doorbell::Doorbells;
//! use comm_core::{HostId, ProcessId, Result};
//! use comm_testkit::transport::{LoopbackTransport, TestRank, TransportFixture};
//!
//! /// Two ranks in one process.
//! struct Threads;
//!
//! impl TransportFixture for Threads {
//!     fn ranks() -> Result<[TestRank; 2]> {
//!         let bells = Doorbells::local();
//!         let rank = |rank| {
//!             let transport = Arc::new(LoopbackTransport::new(Arc::clone(&bells)));
//!             TestRank::new(rank, HostId([1; 16]), ProcessId([1; 16]), transport, Arc::clone(&bells))
//!         };
//!         Ok([rank(0)?, rank(1)?])
//!     }
//! }
//!
//! // In a test file: one #[test] for each clause.
//! comm_testkit::transport_conformance!(Threads);
//!
//! // A clause can also be called alone.
//! comm_testkit::transport::clauses::steps::steps_arrive_in_order::<Threads>();
//! # Ok::<(), comm_core::Error>(())
//! ```
//!
//! * [`transport`]: the suite for transports, and a reference implementation of the contract.
//! * [`net`]: the suite for network backends, and a mock network and device.
//! * [`codec`]: the suite for codecs, and data like that of ML jobs.
//! * [`device`]: the suite for devices.
//! * [`network`]: what network there is for ranks of several hosts.
//! * [`ports`]: ports for jobs that a test starts.
//! * [`watchdog`]: ends a test that is stuck.

pub mod codec;
pub mod device;
pub mod net;
pub mod network;
pub mod ports;
pub mod transport;
pub mod watchdog;
