//! The suite of network backends over RDMA.

use std::sync::Arc;

use comm_core::Result;
use comm_core::net::NetBackend;
use comm_testkit::net::NetFixture;
use comm_transport_net::verbs::{VerbsBackend, VerbsOptions};

mod between_two_backends {
    use super::*;

    struct Verbs;

    impl NetFixture for Verbs {
        fn backends() -> Result<[Arc<dyn NetBackend>; 2]> {
            Ok([
                Arc::new(VerbsBackend::new(VerbsOptions::new())?),
                Arc::new(VerbsBackend::new(VerbsOptions::new())?),
            ])
        }

        fn unavailable() -> Option<String> {
            crate::lacking()
        }
    }

    comm_testkit::net_backend_conformance!(Verbs);
}

mod with_few_requests {
    use super::*;

    struct Verbs;

    impl NetFixture for Verbs {
        fn backends() -> Result<[Arc<dyn NetBackend>; 2]> {
            let options = VerbsOptions::new().max_outstanding(2);
            Ok([
                Arc::new(VerbsBackend::new(options.clone())?),
                Arc::new(VerbsBackend::new(options)?),
            ])
        }

        fn unavailable() -> Option<String> {
            crate::lacking()
        }
    }

    comm_testkit::net_backend_conformance!(Verbs);
}
