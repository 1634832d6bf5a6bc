//! The conformance suite for [`Transport`]s.
//!
//! # How to use it
//!
//! Implement [`TransportFixture`] for a type of your test crate and call
//! [`transport_conformance!`](crate::transport_conformance) with it. Every clause of the contract
//! becomes a `#[test]` of its name; new versions of this crate bring new clauses.
//!
//! # What it checks
//!
//! The contracts of `comm_core`'s `Transport`, `SendSetup`, `RecvSetup`, of the step FIFO and of
//! `MessageSend` and `MessageRecv`. A transport may yield `ConnInfo::Memory*` or
//! `ConnInfo::Message*`: the clauses look at both through [`SendEnd`] and [`RecvEnd`].
//!
//! Both ends run in one process, as two threads where it matters. Handles are handed over in
//! memory, their descriptors as they are.
//!
//! # Rules for the test binary
//!
//! [`clauses::setup::dropped_edges_release_everything`] counts the descriptors of the process, so
//! the suite must be alone in its test binary (a file of its own in `tests/`). No clause asserts
//! an upper bound of time; a [watchdog](crate::watchdog) ends a stuck one.
//!
//! # Reference
//!
//! [`LoopbackTransport`] is the smallest transport that fulfils the contract.

pub mod clauses;
mod ends;
mod loopback;
mod resources;
mod rig;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use comm_core::doorbell::Doorbells;
use comm_core::{HostId, PeerInfo, ProcessId, Rank, Result, Transport};

pub use ends::{Attempt, Received, RecvEnd, SendEnd, Waiter};
pub use loopback::LoopbackTransport;
pub use resources::Resources;
pub use rig::{Connected, Rig, block_on, copy_handle};

use crate::watchdog::with_watchdog;

/// What the suite needs of the tested transport.
pub trait TransportFixture {
    /// Two ranks whose transports can connect to each other, fresh for every test.
    ///
    /// # Errors
    ///
    /// Whatever keeps the transport from working here; the test fails with it.
    fn ranks() -> Result<[TestRank; 2]>;

    /// Why the transport cannot be tested on this machine; the tests then print it and pass.
    ///
    /// For transports that need hardware. `None`, the default, for those that work everywhere.
    #[must_use]
    fn unavailable() -> Option<String> {
        None
    }

    /// Step sizes with which edges are made; the first one is used where the size does not matter.
    #[must_use]
    fn step_bytes() -> Vec<usize> {
        vec![4096, 64, 64 * 1024, 1024 * 1024]
    }

    /// Bytes that the network buffers of one edge, beside the slots of both ends, at most.
    #[must_use]
    fn network_buffer_bytes() -> usize {
        0
    }
}

/// One rank of a test: its transport and what the other one knows about it.
#[derive(Debug)]
pub struct TestRank {
    /// The tested transport.
    pub transport: Arc<dyn Transport>,
    /// The doorbells at which the threads of this rank wait; those that the transport was made
    /// with.
    pub doorbells: Arc<Doorbells>,
    /// The facts about the rank, with those of its transport.
    pub info: PeerInfo,
}

impl TestRank {
    /// A rank of which the other one knows `host`, `process` and the transport's facts.
    ///
    /// # Errors
    ///
    /// If the transport refuses its facts.
    pub fn new(
        rank: Rank,
        host: HostId,
        process: ProcessId,
        transport: Arc<dyn Transport>,
        doorbells: Arc<Doorbells>,
    ) -> Result<Self> {
        let mut info = PeerInfo::new(rank, host, process);
        info.transports
            .insert(transport.name().to_owned(), transport.facts()?);
        Ok(Self {
            transport,
            doorbells,
            info,
        })
    }
}

/// After this time a clause counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(300);

/// Taken shared by clauses, exclusively by those that look at the whole process.
static PROCESS: RwLock<()> = RwLock::new(());

/// Runs a clause beside other ones, under the watchdog.
pub fn run(clause: impl FnOnce()) {
    let _shared = PROCESS.read().unwrap_or_else(PoisonError::into_inner);
    with_watchdog(STUCK_AFTER, clause);
}

/// Runs a clause that no other clause may disturb, under the watchdog.
pub fn run_alone(clause: impl FnOnce()) {
    let _exclusive = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    with_watchdog(STUCK_AFTER, clause);
}

/// Makes a `#[test]` of every clause of the transport contract, for a [`TransportFixture`].
///
/// Use it once per module; see [`transport`](crate::transport).
#[macro_export]
macro_rules! transport_conformance {
    ($fixture:ty) => {
        $crate::transport_conformance! { @tests $fixture, run,
            facts: [
                the_name_is_lower_case,
                facts_are_stable,
                can_connect_is_pure_and_symmetric,
                a_peer_without_facts_is_refused_with_a_reason,
                foreign_facts_get_an_answer,
            ],
            setup: [
                every_channel_and_index_connects,
                every_step_size_carries_full_slots,
                wrong_bytes_in_a_handle_are_refused,
                wrong_descriptors_in_a_handle_are_refused,
                a_connect_without_its_peer_ends_by_its_deadline,
            ],
            steps: [
                steps_arrive_in_order,
                empty_steps_arrive,
                steps_wrap_around_the_slots,
                small_steps_mix_with_slots,
                slot_and_step_stay_until_published_and_consumed,
                slots_and_steps_are_handed_out_ahead,
                the_signature_travels_with_the_step,
                an_oversize_step_is_an_error_and_nothing_is_sent,
                back_pressure_bounds_memory,
                edges_do_not_disturb_each_other,
            ],
            waiting: [
                a_receiver_may_wait_before_the_sender_sends,
                a_sender_that_waits_for_credit_is_woken,
                ping_pong_between_sleeping_threads_loses_no_wake_up,
                one_doorbell_serves_several_edges,
                abort_from_another_thread_wakes_a_sleeping_receiver,
                abort_from_another_thread_wakes_a_sleeping_sender,
            ],
            closing: [
                steps_sent_before_the_sender_closed_arrive,
                a_closed_sender_wakes_a_sleeping_receiver,
                a_closed_receiver_wakes_a_sleeping_sender,
                a_closed_edge_leaves_the_other_direction_alone,
            ],
        }
        $crate::transport_conformance! { @tests $fixture, run_alone,
            setup: [dropped_edges_release_everything],
        }
    };
    (@tests $fixture:ty, $run:ident, $($module:ident: [$($clause:ident),* $(,)?],)*) => {
        $($(
            #[test]
            fn $clause() {
                let lacking = <$fixture as $crate::transport::TransportFixture>::unavailable();
                if let Some(reason) = lacking {
                    println!("skipped: {reason}");
                    return;
                }
                $crate::transport::$run($crate::transport::clauses::$module::$clause::<$fixture>);
            }
        )*)*
    };
}
