//! Models of what a driver is told of waiters that sleep, whatever ends at the same moment.

use std::sync::Arc;
use std::time::Instant;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::*;

/// Drives nothing; counts the threads that sleep.
#[derive(Default)]
struct Counting {
    asleep: AtomicUsize,
    announced: AtomicUsize,
}

impl Drive for Counting {
    fn drive(&self, _: &dyn Fn() -> bool, _: Option<Instant>) -> bool {
        false
    }

    fn begin_sleep(&self) {
        self.asleep.fetch_add(1, Ordering::Relaxed);
        self.announced.fetch_add(1, Ordering::Relaxed);
    }

    fn end_sleep(&self) {
        assert_ne!(self.asleep.fetch_sub(1, Ordering::Relaxed), 0);
    }
}

fn channel() -> (Arc<Counting>, Work<u8>, Completer<u8>) {
    let driver = Arc::new(Counting::default());
    let driving = Arc::clone(&driver) as Arc<dyn Drive>;
    let (work, completer) = WorkBuilder::new().driver(driving).channel();
    (driver, work, completer)
}

#[test]
fn loom_every_waiter_is_woken_and_none_counts_as_asleep_afterwards() {
    loom::model(|| {
        let (driver, work, completer) = channel();
        let work = Arc::new(work);
        let other = Arc::clone(&work);
        let waiter = thread::spawn(move || other.wait().unwrap());
        let ending = thread::spawn(move || completer.complete(Ok(1)));
        work.wait().unwrap();
        waiter.join().unwrap();
        ending.join().unwrap();
        assert_eq!(driver.asleep.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn loom_a_stage_that_ends_takes_every_sleeper_from_its_driver_and_gets_no_new_one() {
    loom::model(|| {
        let (driver, work, completer) = channel();
        let (seen, kept) = (Arc::clone(&driver), Arc::new(Mutex::new(None)));
        let keep = Arc::clone(&kept);
        let mapped = work.map_later(move |result, completer| {
            assert_eq!(seen.asleep.load(Ordering::Relaxed), 0);
            let announced = seen.announced.load(Ordering::Relaxed);
            *keep.lock().unwrap() = Some((result, completer, announced));
        });
        let ending = thread::spawn(move || {
            completer.complete(Ok(1));
            let (result, completer, announced) = kept.lock().unwrap().take().unwrap();
            completer.complete(result);
            announced
        });
        mapped.wait().unwrap();
        let announced = ending.join().unwrap();
        assert_eq!(driver.asleep.load(Ordering::Relaxed), 0);
        assert_eq!(driver.announced.load(Ordering::Relaxed), announced);
    });
}
