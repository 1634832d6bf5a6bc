//! The timing rule.
//!
//! # Contract
//!
//! * Calls are timed in batches of at least 20 us, so that reading the clock does not show and a
//!   time is resolved to less than a nanosecond. Statistics are over batches.
//! * The batches of one case are made in a few rounds, before each of which the ranks meet; within a
//!   round they follow each other without a barrier.
//! * Of a batch the slowest rank's time counts, for messages that of the rank that is answered.
//! * Everything is warm: buffers are touched, edges connected, and calls were made before.
//! * The number of calls is decided by rank 0 from what was measured, so all ranks make the same
//!   number. A case takes about as long as it was given, also when other programs take the CPUs
//!   away: then it has fewer rounds. One round of three batches is always made.

use std::time::{Duration, Instant};

use comm_api::Result;

use crate::coordinator::Coordinator;
use crate::operation::{Calls, Operation};

/// The least duration of a batch that is accepted when the number of calls is decided; above the
/// 20 us of the rule, since later batches may be faster.
const BATCH_NS: u64 = 30_000;
/// Calls that take no measurable time are not made more often than this.
const MOST_CALLS: u64 = 1 << 20;
/// Of so many tries the fastest counts: one may have been interrupted for milliseconds.
const TRIES: u32 = 3;
const LEAST_BATCHES: u64 = 3;
/// Rounds into which the batches are divided, unless that leaves too few for each.
const ROUNDS: u64 = 10;
/// Enough for a 99th percentile; more would only fill memory.
const MOST_BATCHES: u64 = 20_000;
/// One in so many batches is made before the clock starts.
const WARM_UP_SHARE: u64 = 20;

/// The durations of the batches of one case.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    /// Calls in each batch.
    pub(crate) calls: u64,
    /// The duration of each batch, equal on all ranks.
    pub(crate) batch_ns: Vec<u64>,
}

/// Times the prepared case for about `time`.
pub(crate) fn measure(
    operation: Operation,
    calls_of: &mut dyn Calls,
    least_calls: u64,
    rank: u32,
    coordinator: Coordinator<'_>,
    time: Duration,
) -> Result<Batches> {
    let mut calls = least_calls;
    let shortest_ns = loop {
        let mut shortest_ns = u64::MAX;
        for _ in 0..TRIES {
            let mut slowest = [nanoseconds(|| calls_of.run(calls))?];
            coordinator.largest(&mut slowest)?;
            shortest_ns = shortest_ns.min(slowest[0]);
            // All ranks see the same number.
            if slowest[0] >= in_nanoseconds(time) {
                break;
            }
        }
        match coordinator.decide(more_calls(calls, shortest_ns))? {
            0 => break shortest_ns,
            more => calls = more,
        }
    };
    let batches = coordinator.decide(batch_count(shortest_ns, time))?;

    for _ in 0..batches / WARM_UP_SHARE {
        calls_of.run(calls)?;
    }
    let in_round = batches.div_ceil(ROUNDS).max(LEAST_BATCHES);
    let mut batch_ns = Vec::with_capacity(usize::try_from(batches + in_round).unwrap_or(0));
    let start = Instant::now();
    loop {
        coordinator.meet()?;
        let mut last = Instant::now();
        for _ in 0..in_round {
            calls_of.run(calls)?;
            let now = Instant::now();
            batch_ns.push(in_nanoseconds(now - last));
            last = now;
        }
        let goes_on = start.elapsed() < time && (batch_ns.len() as u64) < batches;
        if coordinator.decide(goes_on.into())? == 0 {
            break;
        }
    }
    if !operation.is_timed_on(rank) {
        batch_ns.fill(0);
    }
    coordinator.largest(&mut batch_ns)?;
    Ok(Batches { calls, batch_ns })
}

/// How many calls to try next in place of `calls`, which took `batch_ns`; 0 when they are enough.
fn more_calls(calls: u64, batch_ns: u64) -> u64 {
    if batch_ns >= BATCH_NS || calls >= MOST_CALLS {
        return 0;
    }
    // A fifth more than seems needed, so that the next try succeeds. One unusually slow call must
    // not make the batch ten times too short, nor a clock that stood still make it endless.
    let factor = (BATCH_NS as f64 * 1.2 / batch_ns.max(1) as f64).clamp(1.2, 64.0);
    ((calls as f64 * factor).ceil() as u64).max(calls + 1)
}

/// How many batches of `batch_ns` fill the given time.
fn batch_count(batch_ns: u64, time: Duration) -> u64 {
    (in_nanoseconds(time) / batch_ns.max(1)).clamp(LEAST_BATCHES, MOST_BATCHES)
}

fn nanoseconds(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let start = Instant::now();
    work()?;
    Ok(in_nanoseconds(start.elapsed()))
}

pub(crate) fn in_nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls on which the search settles when each takes `call_ns`.
    fn settled(call_ns: f64) -> u64 {
        let mut calls = 1;
        for _ in 0..100 {
            match more_calls(calls, (calls as f64 * call_ns) as u64) {
                0 => return calls,
                more => calls = more,
            }
        }
        panic!("no end of the search for {call_ns} ns");
    }

    #[test]
    fn a_batch_is_long_enough_but_not_much_longer() {
        for call_ns in [0.2, 3.0, 50.0, 400.0, 9_000.0, 29_999.0] {
            let batch_ns = settled(call_ns) as f64 * call_ns;
            assert!(batch_ns >= 20e3, "{call_ns}: {batch_ns}");
            assert!(batch_ns <= 70e3, "{call_ns}: {batch_ns}");
        }
        assert_eq!(settled(1e9), 1);
        assert!(
            settled(0.0) >= MOST_CALLS,
            "the search ends also when nothing takes time"
        );
    }

    #[test]
    fn the_time_decides_the_number_of_batches_within_limits() {
        let second = Duration::from_secs(1);
        assert_eq!(batch_count(1_000_000, second), 1000);
        assert_eq!(batch_count(10_000_000_000, second), LEAST_BATCHES);
        assert_eq!(batch_count(0, second), MOST_BATCHES);
    }
}
