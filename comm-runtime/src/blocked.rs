//! Operations that stay blocked: deadlines, mismatches that never meet, and circular waits.
//!
//! # Contract
//!
//! * An operation that stays blocked past its first sleep tells the ranks that it waits for what
//!   it is, and repeats that while it waits. A rank that carried out another operation at the same
//!   place of the same lane fails the communicator; the error names both.
//! * A report carries the chain of ranks that wait for each other. A rank that is blocked itself
//!   passes it on with its own place added, [once](passed) for each round of reports; a report that
//!   comes back to the rank that started it closes a circle (the edge-chasing algorithm of Chandy,
//!   Misra and Haas, 1983).
//! * An operation that finds an edge closed waits a moment for the control plane to tell why, which says
//!   more: the failure or the end of the peer's process, or that it has left.
//! * A rank that has left may have sent all that it had to before: its edges are looked at on, until they
//!   close or have not moved [for a while](stall).
//! * What a blocked operation waits for at a peer is the other end of its lane if something is under way
//!   there, and else the peer's user, who is to call something. The former is the peer's business alone
//!   for messages and frames: they go on by themselves.
//! * A rank whose user waits for nothing at the moment may do next what its peers wait for; a chain goes
//!   on only through lanes that [hold](crate::lane::Held) its thread. So may a function of the user that
//!   hangs on an operation: then nobody can be sure.
//! * Ranks that wait for each other in a [circle](circle) that cannot resolve itself fail the
//!   communicator; the error lists them.

mod acted;
mod circle;
mod passed;
mod stall;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind, Rank, Result, Signature};
use serde::{Deserialize, Serialize};

use crate::call::Active;
use crate::communicator::Core;
use crate::control::FAILED_RANK;
use crate::edge::ends::mismatch;
use crate::lane::{BlockedState, Lane, LaneKey, LaneState};
pub(crate) use acted::Acted;
pub(crate) use passed::Passed;
pub(crate) use stall::Stall;

/// How long a rank that saw a step of an unknown operation waits for its peer's explanation.
const EXPLANATION: Duration = Duration::from_secs(2);

/// How often it asks meanwhile for what is certain: a short operation is recorded when its first step
/// has been sent.
const QUESTIONS: u32 = 5;

/// Longest chain of waiting ranks that is followed.
const LONGEST_CHAIN: usize = 64;

/// One rank's place in a chain of waiting ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Link {
    rank: Rank,
    lane: LaneKey,
    signature: Signature,
    /// How long it has been blocked, its user has waited for that and nothing else of it has moved, in
    /// milliseconds.
    blocked_ms: u64,
    /// How long ago it began to look at its edges for the last time, in vain, in milliseconds.
    looked_ms: u64,
    /// Whether a thread of the user waits for this, and can do nothing else.
    is_held: bool,
    /// Whether nobody else could act for the rank, as far as that matters.
    single_threaded: bool,
}

/// What a blocked rank tells the ranks that it waits for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BlockedReport {
    /// Counts what the lane that started it has started.
    round: u64,
    /// When it was started, by the [clock](clock_ms) of the rank that did.
    started_ms: u64,
    /// The chain, starting with the rank that started the report; the last link is the sender.
    chain: Vec<Link>,
}

/// A step arrived here that another operation sent: "what were you doing there?"
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MismatchQuery {
    pub(crate) lane: LaneKey,
    pub(crate) signature: Signature,
    /// The hash that the step carried.
    pub(crate) step_hash: u32,
    /// Whether the operation with the same number, or the latest one, is an answer if none has this hash.
    pub(crate) accepts_guess: bool,
}

/// Milliseconds of a clock that only this process has.
fn clock_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    in_ms(START.get_or_init(Instant::now).elapsed())
}

fn in_ms(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

impl Core {
    /// Looks at deadline and peers of an operation that is blocked.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] if its deadline has passed; [`ErrorKind::PeerDied`] if a rank that it
    /// waits for has left.
    pub(crate) fn watch(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        active: &mut Active,
        now: Instant,
    ) -> Result<()> {
        active.first_look.get_or_insert(now);
        let since = active.stall.watch(now);
        if active.deadline().is_some_and(|deadline| deadline <= now) {
            return Err(self.timeout_error(state, active, now - since));
        }
        let Some(identity) = active.identity else {
            return Ok(());
        };
        if !active.stall.is_report_due(now) {
            return Ok(());
        }
        let waits_for = self.waits_for(state, active);
        if let Some(peer) = waits_for.iter().find(|peer| self.has_left(**peer)) {
            if active
                .stall
                .outlasts_goodbye(now, active.operation.is_some())
            {
                return Err(self.has_left_waiting(&identity.signature, *peer));
            }
            return Ok(());
        }
        active.stall.report(now);
        let blocked = BlockedState {
            signature: identity.signature,
            waits_for,
            since,
            looked: active.stall.looked().unwrap_or(since),
        };
        lane.set_blocked(Some(blocked.clone()));
        self.report_blocked(lane, &blocked)
    }

    /// Starts a report of what a lane is blocked in.
    pub(crate) fn report_blocked(&self, lane: &Lane, blocked: &BlockedState) -> Result<()> {
        let report = BlockedReport {
            round: lane.passed().start(),
            started_ms: clock_ms(),
            chain: Vec::new(),
        };
        self.pass_on(lane, blocked, lane.held.since(), &report)
    }

    /// Adds the own link and sends the report to everybody that is waited for; `held` is since when the
    /// lane has held a thread of the user, if it does.
    fn pass_on(
        &self,
        lane: &Lane,
        blocked: &BlockedState,
        held: Option<Instant>,
        report: &BlockedReport,
    ) -> Result<()> {
        // Its user may have done something else until it began to wait.
        let since = held.map_or(blocked.since, |held| held.max(blocked.since));
        let blocked_ms = in_ms(since.elapsed());
        let acted_ms = self.acted.ago_ms().unwrap_or(u64::MAX);
        let mut chain = report.chain.clone();
        chain.push(Link {
            rank: self.rank,
            lane: lane.key,
            signature: blocked.signature,
            blocked_ms: blocked_ms.min(acted_ms),
            looked_ms: in_ms(blocked.looked.elapsed()),
            is_held: held.is_some(),
            // What nobody waits for is waited for by no user's doing.
            single_threaded: held.is_none() || self.is_alone_in(lane),
        });
        let report = BlockedReport { chain, ..*report };
        for peer in blocked.waits_for.iter().filter(|peer| **peer != self.rank) {
            match self.tell_blocked(*peer, &report) {
                // What a rank that has left sent before is looked for first. If this one has left, what
                // it submitted before goes its way without a word.
                Err(error) if !self.has_left(*peer) && !self.control.has_left() => {
                    let gone = self.gone(&blocked.signature, *peer, "cannot be reached any more");
                    return Err(gone.with_source(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A peer that waits for this rank tells what it is in.
    pub(crate) fn on_blocked_report(&self, from: Rank, report: BlockedReport) {
        let Some(last) = report.chain.last() else {
            return;
        };
        if last.rank != from || report.chain.len() > LONGEST_CHAIN {
            return;
        }
        // It waits for what this rank sends, or for this rank to take what it sent.
        let Some(end) = self.lane(last.lane.other_end(from)) else {
            return;
        };
        let own = end.history.find(last.signature.sequence);
        if let Some(own) = own.filter(|own| *own != last.signature) {
            self.fail(mismatch(self.rank, &own, from, &last.signature));
            return;
        }
        let is_under_way = !end.is_idle();
        if is_under_way && end.key != LaneKey::Collective {
            return;
        }
        // Whether what is waited for is what this lane is in, or its user.
        let is_it = |lane: &Lane, is_held: bool| match is_under_way {
            true => lane.key == end.key,
            false => is_held,
        };
        if report.chain[0].rank == self.rank {
            let Some(lane) = self.lane(report.chain[0].lane) else {
                return;
            };
            if is_it(lane, report.chain[0].is_held) {
                self.on_circle(&report.chain, clock_ms().saturating_sub(report.started_ms));
            }
        } else if report.chain.iter().all(|link| link.rank != self.rank) {
            for lane in self.lanes() {
                let held = lane.held.since();
                if is_it(lane, held.is_some())
                    && let Some(blocked) = lane.blocked()
                    && lane.passed().takes(&report, lane.key, &blocked.signature)
                {
                    // A peer that cannot be reached is noticed by the blocked operation itself.
                    let _ = self.pass_on(lane, &blocked, held, &report);
                }
            }
        }
    }

    /// A peer got a step of mine while it was in another operation.
    pub(crate) fn on_mismatch_query(&self, from: Rank, query: &MismatchQuery) {
        let own = self.lane(query.lane.other_end(from)).and_then(|lane| {
            let history = &lane.history;
            let guess = || {
                let latest = || history.last();
                history.find(query.signature.sequence).or_else(latest)
            };
            let certain = history.find_hash(query.step_hash);
            certain.or_else(|| query.accepts_guess.then(guess)?)
        });
        if let Some(own) = own {
            self.fail(mismatch(self.rank, &own, from, &query.signature));
        }
    }

    /// Fails the communicator because of an error in an operation; what the user gets to see.
    #[cold]
    pub(crate) fn fail_operation(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        active: &Active,
        error: Error,
    ) -> Error {
        lane.set_blocked(None);
        if let Some(cause) = self.abort.cause() {
            return cause.clone();
        }
        let unknown = state
            .ends
            .recv
            .iter()
            .find_map(|end| Some((end.peer, end.mismatched?)));
        if let (Some((peer, step_hash)), Some(identity)) = (unknown, active.identity) {
            for question in 1..=QUESTIONS {
                let query = MismatchQuery {
                    lane: lane.key,
                    signature: identity.signature,
                    step_hash,
                    accepts_guess: question == QUESTIONS,
                };
                if self.ask_mismatch(peer, &query).is_err() {
                    break;
                }
                if self.wait_for_failure_or(EXPLANATION / QUESTIONS, || false) {
                    return self.abort.error();
                }
            }
        }
        // What a closed edge comes from is told over the control plane, maybe a moment later: the
        // peer's failure, its end, or that it has left.
        let error = if error.kind() == ErrorKind::PeerDied {
            let waits_for = self.waits_for(state, active);
            let left = || waits_for.iter().find(|peer| self.has_left(**peer));
            if self.wait_for_failure_or(EXPLANATION, || left().is_some()) {
                return self.abort.error();
            }
            match (left(), active.identity) {
                (Some(peer), Some(identity)) => self.has_left_waiting(&identity.signature, *peer),
                _ => error,
            }
        } else {
            error
        };
        let error = match active.identity {
            Some(identity) if error.kind() != ErrorKind::Mismatch => error
                .with("rank", self.rank)
                .with("operation", identity.signature),
            _ => error,
        };
        self.fail(error);
        self.abort.error()
    }

    /// Waits until the communicator failed, or something else is the case; whether it has failed.
    ///
    /// Counts its looks and not the time: if this process was stopped, its control thread was, too.
    fn wait_for_failure_or(&self, limit: Duration, other: impl Fn() -> bool) -> bool {
        for _ in 0..limit.as_millis() {
            if self.abort.cause().is_some() {
                return true;
            }
            if other() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.abort.cause().is_some()
    }

    /// A rank that this one waits for has left.
    #[cold]
    pub(crate) fn has_left_waiting(&self, signature: &Signature, peer: Rank) -> Error {
        self.gone(signature, peer, "has left the communicator")
    }

    /// A rank that this one waits for does not answer any more.
    #[cold]
    fn gone(&self, signature: &Signature, peer: Rank, how: &'static str) -> Error {
        let rank = self.rank;
        Error::new(
            ErrorKind::PeerDied,
            format!("rank {rank} waits in {signature} for rank {peer}, which {how}"),
        )
        .with(FAILED_RANK, peer)
    }
}
