//! What a driver is told of waiters that sleep and of functions that hang on its operation, and when it has
//! nothing more to drive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::super::*;

/// Drives nothing; counts the threads that sleep, the functions and who asks.
#[derive(Default)]
struct Counting {
    asleep: AtomicUsize,
    ended: AtomicUsize,
    functions: AtomicUsize,
    callers: AtomicUsize,
}

impl Drive for Counting {
    fn drive(&self, _: &dyn Fn() -> bool, _: Option<Instant>) -> bool {
        false
    }

    fn begin_sleep(&self) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
    }

    fn end_sleep(&self) {
        assert_ne!(self.asleep.fetch_sub(1, Ordering::SeqCst), 0);
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn note_caller(&self) {
        self.callers.fetch_add(1, Ordering::SeqCst);
    }

    fn begin_function(&self) {
        self.functions.fetch_add(1, Ordering::SeqCst);
    }

    fn end_function(&self) {
        assert_ne!(self.functions.fetch_sub(1, Ordering::SeqCst), 0);
    }
}

impl Counting {
    fn channel() -> (Arc<Self>, Work<u8>, Completer<u8>) {
        let driver = Arc::new(Self::default());
        let driving = Arc::clone(&driver) as Arc<dyn Drive>;
        let (work, completer) = WorkBuilder::new().driver(driving).channel();
        (driver, work, completer)
    }

    fn asleep(&self) -> usize {
        self.asleep.load(Ordering::SeqCst)
    }

    fn functions(&self) -> usize {
        self.functions.load(Ordering::SeqCst)
    }

    fn await_asleep(&self, count: usize) {
        while self.asleep() != count {
            thread::yield_now();
        }
    }
}

#[test]
fn a_waiter_without_a_deadline_is_announced_until_the_operation_has_ended() {
    let (driver, work, completer) = Counting::channel();
    let seen = Arc::clone(&driver);
    let next = work.then(move |_| seen.asleep());
    assert_eq!(
        work.wait_timeout(Duration::from_millis(1)).unwrap(),
        Waited::TimedOut
    );
    assert_eq!(driver.ended.load(Ordering::SeqCst), 0, "it had a deadline");
    thread::scope(|scope| {
        let waiters = [0, 1].map(|_| scope.spawn(|| work.wait()));
        driver.await_asleep(2);
        completer.complete(Ok(1));
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
    assert_eq!(next.take().unwrap(), 0, "what is waited for is user's code");
    work.wait().unwrap();
    assert_eq!(
        (driver.asleep(), driver.ended.load(Ordering::SeqCst)),
        (0, 2)
    );
}

#[test]
fn whoever_waits_for_a_later_conversion_is_not_asleep_for_the_driver_and_drives_no_more() {
    let (driver, work, completer) = Counting::channel();
    let (kept, keeping) = mpsc::channel();
    let mapped = work.map_later(move |result, completer| kept.send((result, completer)).unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mapped.wait());
        driver.await_asleep(1);
        completer.complete(Ok(1));
        let (result, completer) = keeping.recv().unwrap();
        assert_eq!(driver.asleep(), 0);
        // Nor is one that comes now.
        let late = scope.spawn(|| mapped.wait());
        thread::sleep(Duration::from_millis(5));
        assert_eq!(driver.asleep(), 0);
        completer.complete(result);
        waiter.join().unwrap().unwrap();
        late.join().unwrap().unwrap();
    });
    assert_eq!(driver.ended.load(Ordering::SeqCst), 1);
}

#[test]
fn whoever_drives_when_the_later_conversion_begins_leaves_the_driver() {
    /// Drives until it is told that there is nothing more to do.
    struct Busy(mpsc::SyncSender<()>);

    impl Drive for Busy {
        fn drive(&self, done: &dyn Fn() -> bool, _: Option<Instant>) -> bool {
            let _ = self.0.try_send(());
            while !done() {
                thread::yield_now();
            }
            true
        }
    }

    let (entered, has_entered) = mpsc::sync_channel(1);
    let (work, completer) = WorkBuilder::new()
        .driver(Arc::new(Busy(entered)))
        .channel::<u8>();
    let (kept, keeping) = mpsc::channel();
    let mapped = work.map_later(move |result, completer| kept.send((result, completer)).unwrap());
    // Shares the driver.
    let next = mapped.then(|result| result.is_ok());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| next.wait());
        has_entered.recv().unwrap();
        completer.complete(Ok(1));
        let (result, completer) = keeping.recv().unwrap();
        completer.complete(result);
        waiter.join().unwrap().unwrap();
    });
    assert!(has_entered.try_recv().is_err(), "it drove again");
    assert!(next.take().unwrap());
}

#[test]
fn a_function_counts_for_the_driver_until_it_has_run_or_was_dropped() {
    let (driver, work, completer) = Counting::channel();
    let seen = Arc::clone(&driver);
    let first = work.then(move |_| seen.functions());
    let second = first.then(|seen| *seen.as_ref().unwrap());
    assert_eq!(driver.functions(), 2);
    completer.complete(Ok(1));
    assert_eq!(
        second.take().unwrap(),
        2,
        "it counts while it and what hangs on it run"
    );
    assert_eq!(driver.functions(), 0);
    work.then(|_| ()).detach();
    assert_eq!(driver.functions(), 0, "it has run at once");

    let (driver, work, completer) = Counting::channel();
    work.then(|_| panic!("expected in this test")).detach();
    work.then(|_| ()).detach();
    assert_eq!(driver.functions(), 2);
    drop(completer);
    assert_eq!(driver.functions(), 0);
}

#[test]
fn a_function_does_not_count_for_the_driver_any_more_when_a_later_conversion_begins() {
    let (driver, work, completer) = Counting::channel();
    let (kept, keeping) = mpsc::channel();
    let mapped = work.map_later(move |result, completer| kept.send((result, completer)).unwrap());
    let seen = Arc::clone(&driver);
    let next = mapped.then(move |_| (seen.functions(), PendingFunction::count_elsewhere() > 0));
    assert_eq!(driver.functions(), 1);
    completer.complete(Ok(1));
    let (result, completer) = keeping.recv().unwrap();
    assert_eq!(driver.functions(), 0);
    assert!(PendingFunction::count_elsewhere() > 0);
    mapped.then(|_| ()).detach();
    assert_eq!(driver.functions(), 0);
    completer.complete(result);
    assert_eq!(next.take().unwrap(), (0, true));
}

#[test]
fn whoever_polls_too_early_is_noted() {
    let (driver, mut work, completer) = Counting::channel();
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut work).poll(&mut context).is_pending());
    {
        let mut waiting = std::pin::pin!(work.wait_async());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(driver.callers.load(Ordering::SeqCst), 2);
    completer.complete(Ok(1));
    assert!(Pin::new(&mut work).poll(&mut context).is_ready());
    assert_eq!(driver.callers.load(Ordering::SeqCst), 2);
}
