//! Conformance suites and mocks.

pub mod net;
