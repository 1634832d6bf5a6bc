//! The conformance suite of [`comm_core::net::NetBackend`]: one function per clause of the
//! contract, named after it.
//!
//! A backend gets all of them with one line:
//!
//! ```
//! use std::sync::Arc;
//! use comm_core::{Result, net::NetBackend};
//! use comm_testkit::net::{MockConfig, MockFabric, NetFixture};
//!
//! struct Mock;
//!
//! impl NetFixture for Mock {
//!     fn backends() -> Result<[Arc<dyn NetBackend>; 2]> {
//!         let fabric = MockFabric::new(MockConfig::default())?;
//!         Ok([Arc::new(fabric.card()?), Arc::new(fabric.card()?)])
//!     }
//! }
//!
//! comm_testkit::net_backend_conformance!(Mock);
//! ```
//!
//! A broken promise is a panic or an error that says which one.

mod connecting;
mod direct;
mod failure;
mod memory;
mod messages;
mod progress;

pub use comm_core::Result;

pub use connecting::{
    n1_a_connection_goes_from_connect_to_accept, n1_every_connect_is_accepted_once,
    n2_nobody_there_is_none_not_a_wait, n3_a_dropped_listener_refuses,
    n3_a_handle_of_another_network_is_refused,
};
pub use direct::{
    n18_a_direct_transfer_of_another_length_fails_both_ends,
    n18_a_lost_peer_ends_a_direct_transfer, n18_direct_transfers_have_their_place_in_the_order,
};
pub use failure::{
    n13_invalid_arguments_have_no_effect, n13_one_failed_connection_harms_no_other,
    n14_a_dropped_receiver_fails_the_sender, n14_a_dropped_sender_fails_the_receiver,
    n14_messages_that_were_sent_before_are_received,
};
pub use memory::{
    n9_memory_of_another_backend_is_refused, n10_memory_is_left_alone_after_the_request_is_done,
    n11_quiesced_memory_is_left_alone, n11_quiescing_fails_the_connection,
    n12_requests_keep_their_memory_alive,
};
pub use messages::{
    n4_messages_arrive_in_order, n4_receives_may_be_posted_first, n4_sends_may_be_posted_first,
    n5_a_receive_may_be_longer, n5_empty_messages_are_messages, n6_a_longer_message_is_truncated,
    n7_a_sender_that_is_not_received_from_is_held_up, n8_a_request_is_tested_once,
    put_comes_before_the_next_message, put_outside_of_a_window_fails,
};
pub use progress::{n15_any_thread_may_drive, n16_an_idle_backend_lets_sleep};

/// Makes a test of every clause, for a [`NetFixture`](crate::net::NetFixture).
///
/// See [`conformance`](crate::net::conformance) for an example.
#[macro_export]
macro_rules! net_backend_conformance {
    ($fixture:ty) => {
        $crate::net_backend_conformance! { @ $fixture:
            n1_a_connection_goes_from_connect_to_accept
            n1_every_connect_is_accepted_once
            n2_nobody_there_is_none_not_a_wait
            n3_a_dropped_listener_refuses
            n3_a_handle_of_another_network_is_refused
            n4_messages_arrive_in_order
            n4_receives_may_be_posted_first
            n4_sends_may_be_posted_first
            n5_a_receive_may_be_longer
            n5_empty_messages_are_messages
            n6_a_longer_message_is_truncated
            n7_a_sender_that_is_not_received_from_is_held_up
            n8_a_request_is_tested_once
            n9_memory_of_another_backend_is_refused
            n10_memory_is_left_alone_after_the_request_is_done
            n11_quiesced_memory_is_left_alone
            n11_quiescing_fails_the_connection
            n12_requests_keep_their_memory_alive
            n13_invalid_arguments_have_no_effect
            n13_one_failed_connection_harms_no_other
            n14_a_dropped_receiver_fails_the_sender
            n14_a_dropped_sender_fails_the_receiver
            n14_messages_that_were_sent_before_are_received
            n15_any_thread_may_drive
            n16_an_idle_backend_lets_sleep
            n18_direct_transfers_have_their_place_in_the_order
            n18_a_direct_transfer_of_another_length_fails_both_ends
            n18_a_lost_peer_ends_a_direct_transfer
            put_comes_before_the_next_message
            put_outside_of_a_window_fails
        }
    };
    (@ $fixture:ty: $($clause:ident)*) => {$(
        #[test]
        fn $clause() -> $crate::net::conformance::Result<()> {
            if let Some(reason) = <$fixture as $crate::net::NetFixture>::unavailable() {
                println!("skipped: {reason}");
                return Ok(());
            }
            $crate::net::conformance::$clause::<$fixture>()
        }
    )*};
}
