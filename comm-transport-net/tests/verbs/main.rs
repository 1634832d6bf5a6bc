//! The RDMA backend: its contract, and the NET transport over it.
//!
//! Needs a card; a soft one in a virtual machine will do (`cargo xtask rdma`). Elsewhere every test
//! prints that it is skipped.
#![cfg(feature = "verbs")]

mod conformance;
mod processes;
mod transport;

use comm_core::ErrorKind;
use comm_transport_net::verbs::{VerbsBackend, VerbsOptions};

/// Set where a missing card is a failure, not a reason to skip.
const REQUIRED: &str = "COMM_TEST_RDMA_REQUIRED";

/// Why there is no RDMA here, if there is none.
fn lacking() -> Option<String> {
    let error = VerbsBackend::new(VerbsOptions::new()).err()?;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(std::env::var_os(REQUIRED).is_none(), "{error}");
    Some(error.to_string())
}

#[test]
fn without_a_card_a_backend_says_so() {
    let unheard_of = VerbsOptions::new().devices(["no such device"]);
    let error = VerbsBackend::new(unheard_of).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
