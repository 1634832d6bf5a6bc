//! The contract of network backends, clause by clause.
#![cfg(target_os = "linux")]

use std::sync::Arc;

use comm_core::Result;
use comm_core::net::NetBackend;
use comm_testkit::net::NetFixture;
use transport_uds::UdsBackend;

/// A backend for each end, as two processes have them.
struct TwoProcesses;

impl NetFixture for TwoProcesses {
    fn backends() -> Result<[Arc<dyn NetBackend>; 2]> {
        Ok([Arc::new(UdsBackend::new()?), Arc::new(UdsBackend::new()?)])
    }
}

comm_testkit::net_backend_conformance!(TwoProcesses);
