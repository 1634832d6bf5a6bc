//! Conformance suites and mocks.
