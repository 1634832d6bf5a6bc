//! Clauses of the doorbells' contract.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use super::*;

/// Long enough for a sleeper to be asleep; only slows the test down if it is not.
const A_MOMENT: Duration = Duration::from_millis(30);

#[test]
fn a_ring_after_the_ticket_ends_the_wait_at_once() {
    let bells = Doorbells::local();
    let bell = bells.claim().unwrap();
    let ticket = bell.ticket();
    bells.ring(bell.number());
    assert!(bell.wait(ticket, None));
    assert!(bell.wait(ticket, None), "the ticket stays used up");
}

#[test]
fn a_ring_before_the_ticket_does_not_count() {
    let bell = Doorbells::local().claim().unwrap();
    bell.ring();
    assert!(!bell.wait(bell.ticket(), Some(Duration::from_millis(5))));
}

#[test]
fn a_wait_without_a_ring_ends_when_its_time_is_over_and_not_before() {
    let bell = Doorbells::local().claim().unwrap();
    let ticket = bell.ticket();
    let start = Instant::now();
    // `wait` may return early: go on until the time has really passed.
    while start.elapsed() < A_MOMENT {
        assert!(!bell.wait(ticket, Some(A_MOMENT.saturating_sub(start.elapsed()))));
    }
    assert!(!bell.wait(ticket, Some(Duration::ZERO)));
}

#[test]
fn numbers_outside_the_set_are_ignored() {
    let bells = Doorbells::local();
    let bell = bells.claim().unwrap();
    let ticket = bell.ticket();
    for number in [
        0,
        DOORBELLS_PER_SET as u32,
        DOORBELLS_PER_SET as u32 + 1,
        u32::MAX,
    ] {
        bells.ring(number);
    }
    assert_eq!(bell.ticket(), ticket);
}

#[test]
fn number_0_is_never_handed_out_and_numbers_are_reused() {
    let bells = Doorbells::local();
    let all: Vec<_> = (1..DOORBELLS_PER_SET)
        .map(|_| bells.claim().unwrap())
        .collect();
    let mut numbers: Vec<_> = all.iter().map(Doorbell::number).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..DOORBELLS_PER_SET as u32));
    assert_eq!(
        bells.claim().unwrap_err().kind(),
        ErrorKind::ResourceExhausted
    );
    drop(all);
    assert!(bells.claim().is_ok());
}

#[test]
fn ping_pong_by_doorbells_alone_loses_no_wake_up() {
    const ROUNDS: u64 = 20_000;
    let bells = Doorbells::local();
    let (first, second) = (bells.claim().unwrap(), bells.claim().unwrap());
    let turn = AtomicU64::new(0);
    let play = |own: &Doorbell, other: &Doorbell, mine: u64| {
        for round in 0..ROUNDS {
            loop {
                let ticket = own.ticket();
                // Relaxed: the rings order it.
                if turn.load(Ordering::Relaxed) == 2 * round + mine {
                    break;
                }
                own.wait(ticket, None);
            }
            turn.fetch_add(1, Ordering::Relaxed);
            other.ring();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| play(&first, &second, 0));
        play(&second, &first, 1);
    });
    assert_eq!(turn.into_inner(), 2 * ROUNDS);
}

#[test]
fn one_waiter_hears_all_of_many_ringers() {
    const RINGERS: u64 = 4;
    const RINGS: u64 = 5_000;
    let bells = Doorbells::local();
    let bell = bells.claim().unwrap();
    let sum = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..RINGERS {
            scope.spawn(|| {
                for _ in 0..RINGS {
                    // Relaxed: the ring orders it.
                    sum.fetch_add(1, Ordering::Relaxed);
                    bells.ring(bell.number());
                }
            });
        }
        loop {
            let ticket = bell.ticket();
            // Relaxed: as above.
            if sum.load(Ordering::Relaxed) == RINGERS * RINGS {
                break;
            }
            bell.wait(ticket, None);
        }
    });
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::Arc;

    use super::*;

    fn cpu_time_of_this_thread() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    #[test]
    fn an_idle_waiter_uses_no_cpu() {
        let bell = Doorbells::local().claim().unwrap();
        let ticket = bell.ticket();
        let used = cpu_time_of_this_thread();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {
            bell.wait(ticket, Some(Duration::from_millis(300)));
        }
        let used = cpu_time_of_this_thread() - used;
        // A waiter that polled would have used the whole 300 ms, or half of it on a shared core.
        assert!(used < Duration::from_millis(60), "used {used:?}");
    }

    fn map_as_peer(bells: &Doorbells) -> PeerDoorbells {
        PeerDoorbells::map(bells.fd().unwrap().try_clone_to_owned().unwrap()).unwrap()
    }

    #[test]
    fn a_peer_wakes_a_sleeper_through_its_own_mapping() {
        let bells = Doorbells::shared().unwrap();
        let bell = bells.claim().unwrap();
        let peer = RingTarget::Peer(Arc::new(map_as_peer(&bells)));
        let rung = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(A_MOMENT);
                // Relaxed: the ring orders it.
                rung.store(true, Ordering::Relaxed);
                peer.ring(bell.number());
            });
            loop {
                let ticket = bell.ticket();
                // Relaxed: as above.
                if rung.load(Ordering::Relaxed) {
                    break;
                }
                bell.wait(ticket, None);
            }
        });
    }

    #[test]
    fn a_peers_numbers_outside_the_set_are_ignored() {
        let bells = Doorbells::shared().unwrap();
        let bell = bells.claim().unwrap();
        let ticket = bell.ticket();
        let peer = map_as_peer(&bells);
        for number in [0, DOORBELLS_PER_SET as u32, u32::MAX] {
            peer.ring(number);
        }
        assert_eq!(bell.ticket(), ticket);
    }

    #[test]
    fn only_a_shared_set_has_a_file_and_only_a_set_can_be_mapped() {
        assert!(Doorbells::local().fd().is_none());
        let other = crate::memory::SealedMemory::create("other", 4096).unwrap();
        let refused = PeerDoorbells::map(other.fd().try_clone_to_owned().unwrap());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Protocol);
    }
}
