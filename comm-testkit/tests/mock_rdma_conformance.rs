//! The mock network keeps the contract that it is used to prove.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::time::Duration;

use comm_core::Result;
use comm_core::net::NetBackend;
use comm_testkit::net::{MockConfig, MockFabric, NetFixture};

fn cards(config: MockConfig) -> Result<[Arc<dyn NetBackend>; 2]> {
    let fabric = MockFabric::new(config)?;
    Ok([Arc::new(fabric.card()?), Arc::new(fabric.card()?)])
}

mod as_it_is {
    use super::*;

    struct Mock;

    impl NetFixture for Mock {
        fn backends() -> Result<[Arc<dyn NetBackend>; 2]> {
            cards(MockConfig::default())
        }
    }

    comm_testkit::net_backend_conformance!(Mock);
}

mod with_one_request_at_a_time {
    use super::*;

    struct Narrow;

    impl NetFixture for Narrow {
        fn backends() -> Result<[Arc<dyn NetBackend>; 2]> {
            let mut config = MockConfig::default();
            config.seed = 2;
            config.max_outstanding = 1;
            config.refuse_one_in = 2;
            config.max_delay = Duration::ZERO;
            cards(config)
        }
    }

    comm_testkit::net_backend_conformance!(Narrow);
}
