//! Shared memory of one host.
