//! The buffer pool against a model of its rules, and from many threads.

use std::thread;

use comm_codec::{BufferPool, Lease};
use proptest::prelude::*;

/// The rules, in the simplest way that they can be written down.
#[derive(Debug, Default)]
struct Model {
    max: usize,
    active: usize,
    cached: Vec<usize>,
}

impl Model {
    fn allocated(&self) -> usize {
        self.active + self.cached.iter().sum::<usize>()
    }

    /// The length of the buffer that is lent.
    fn acquire(&mut self, bytes: usize) -> Option<usize> {
        if bytes > self.max {
            return None;
        }
        self.cached.sort_unstable();
        if let Some(place) = self.cached.iter().position(|len| *len >= bytes) {
            let len = self.cached[place];
            if len <= 2 * bytes || self.allocated() + bytes > self.max {
                self.cached.remove(place);
                self.active += len;
                return Some(len);
            }
        }
        if self.active + bytes > self.max {
            return None;
        }
        while self.allocated() + bytes > self.max {
            self.cached.pop();
        }
        self.active += bytes;
        Some(bytes)
    }

    fn release(&mut self, len: usize, is_kept: bool) {
        self.active -= len;
        if is_kept && len > 0 {
            self.cached.push(len);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire(usize),
    Drop(usize),
    Discard(usize),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..700_usize).prop_map(Step::Acquire),
        4 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Discard),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #[test]
    fn the_pool_does_what_the_model_does(
        max in 1..2000_usize,
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let pool = BufferPool::new(max);
        let mut model = Model { max, ..Model::default() };
        let mut leases: Vec<(Lease, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Acquire(bytes) => match (pool.acquire(bytes), model.acquire(bytes)) {
                    (Some(lease), Some(len)) => {
                        prop_assert_eq!(lease.len(), bytes);
                        leases.push((lease, len));
                    }
                    (None, None) => {}
                    (lease, len) => prop_assert!(false, "{:?} where {:?} was due", lease, len),
                },
                Step::Drop(place) if !leases.is_empty() => {
                    let (lease, len) = leases.swap_remove(place % leases.len());
                    drop(lease);
                    model.release(len, true);
                }
                Step::Discard(place) if !leases.is_empty() => {
                    let (lease, len) = leases.swap_remove(place % leases.len());
                    lease.discard();
                    model.release(len, false);
                }
                Step::Clear => {
                    pool.clear();
                    model.cached.clear();
                }
                Step::Drop(_) | Step::Discard(_) => {}
            }
            prop_assert_eq!(pool.allocated_bytes(), model.allocated());
            prop_assert_eq!(pool.cached_bytes(), model.cached.iter().sum::<usize>());
            prop_assert!(pool.allocated_bytes() <= max);
        }
    }
}

#[test]
fn the_smallest_that_is_large_enough_is_reused_up_to_twice_the_size() {
    let pool = BufferPool::new(1000);
    let leases = [100, 150, 300].map(|bytes| pool.acquire(bytes).unwrap());
    drop(leases);
    let small = pool.acquire(75).unwrap();
    assert_eq!(
        pool.cached_bytes(),
        450,
        "150 is twice 75, and 100 is smaller"
    );
    let fresh = pool.acquire(149).unwrap();
    assert_eq!(pool.cached_bytes(), 300, "150 for 149");
    drop((small, fresh));
    let tiny = pool.acquire(10).unwrap();
    assert_eq!(pool.allocated_bytes(), 560, "nothing idle is near");
    drop(tiny);
}

#[test]
fn beyond_the_limit_too_large_buffers_are_reused_and_idle_ones_make_room() {
    let pool = BufferPool::new(1000);
    drop(pool.acquire(950));
    let reused = pool.acquire(100).unwrap();
    assert_eq!((pool.allocated_bytes(), pool.cached_bytes()), (950, 0));
    drop(reused);
    drop(pool.acquire(1000).unwrap());
    assert_eq!(pool.allocated_bytes(), 1000, "950 went");
    assert!(pool.acquire(1001).is_none());
    let all = pool.acquire(600).unwrap();
    assert_eq!(pool.cached_bytes(), 0, "1000 is less than twice 600");
    assert!(pool.acquire(1).is_none(), "it never waits");
    drop(all);
}

#[test]
fn a_lease_can_be_cut_and_outlives_the_pool() {
    let pool = BufferPool::new(1000);
    let mut lease = pool.acquire(100).unwrap();
    lease.fill(7);
    lease.truncate(10);
    lease.truncate(50);
    assert_eq!(*lease, [7; 10]);
    assert_eq!(pool.allocated_bytes(), 100);
    drop(pool);
    assert_eq!(lease.len(), 10);
}

#[test]
fn a_buffer_in_a_panic_is_not_kept() {
    let pool = BufferPool::new(1000);
    let panicked = thread::scope(|scope| {
        let call = scope.spawn(|| {
            let _lease = pool.acquire(100).unwrap();
            panic!("in the middle of a call");
        });
        call.join().is_err()
    });
    assert!(panicked);
    assert_eq!((pool.allocated_bytes(), pool.cached_bytes()), (0, 0));
}

#[test]
fn threads_share_a_pool_and_no_two_have_the_same_buffer() {
    let pool = BufferPool::new(10_000);
    thread::scope(|scope| {
        for number in 0..8_u8 {
            let pool = pool.clone();
            scope.spawn(move || {
                for round in 0..500 {
                    let Some(mut lease) = pool.acquire(1000 + 13 * (round % 100)) else {
                        continue;
                    };
                    lease.fill(number);
                    thread::yield_now();
                    assert!(lease.iter().all(|byte| *byte == number));
                    assert!(pool.allocated_bytes() <= pool.max_bytes());
                }
            });
        }
    });
    assert_eq!(pool.allocated_bytes(), pool.cached_bytes());
}
