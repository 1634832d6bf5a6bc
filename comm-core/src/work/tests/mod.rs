//! One test per clause of the module's contract.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::task::Wake;
use std::thread;

use super::*;

mod asleep;
mod foreign;
mod handing_over;

/// Counts how often it was woken and unparks its thread.
struct CountingWaker {
    woken: AtomicUsize,
    thread: thread::Thread,
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn counting_waker() -> (Arc<CountingWaker>, Waker) {
    let counter = Arc::new(CountingWaker {
        woken: AtomicUsize::new(0),
        thread: thread::current(),
    });
    (Arc::clone(&counter), Waker::from(counter))
}

/// The smallest executor: shows that none is assumed.
fn block_on<F: Future>(future: F) -> F::Output {
    let (_, waker) = counting_waker();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn failure() -> Error {
    Error::new(ErrorKind::PeerDied, "gone").with("peer", 3)
}

/// A value that can be sent to another thread but not shared.
type NotSync = std::cell::Cell<u32>;

#[test]
fn handles_cross_threads_even_if_the_result_is_not_sync() {
    fn send_sync<X: Send + Sync>() {}
    fn send_sync_unpin<X: Send + Sync + Unpin>() {}
    send_sync_unpin::<Work<NotSync>>();
    send_sync::<Completer<NotSync>>();
    send_sync::<Arc<dyn AsyncWork>>();
    send_sync::<Arc<dyn Drive>>();
    fn send<X: Send>(_: &X) {}
    let (work, completer) = Work::<NotSync>::channel();
    send(&work.wait_async());
    drop(completer);
}

#[test]
fn wait_repeats_and_take_yields_once() {
    let (work, completer) = Work::channel();
    assert!(!work.is_done());
    completer.complete(Ok(7));
    assert!(work.is_done());
    for _ in 0..3 {
        work.wait().unwrap();
    }
    assert_eq!(work.take().unwrap(), 7);
    let second = work.take().unwrap_err();
    assert_eq!(second.kind(), ErrorKind::InvalidArgument);
    assert!(second.message().contains("already taken"), "{second}");
    work.wait().unwrap();
    assert!(work.is_done());
    assert_eq!(
        block_on(work).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn a_failure_repeats_for_every_form_of_waiting() {
    let work = Work::<u8>::ready(Err(failure()));
    assert_eq!(work.wait().unwrap_err().kind(), ErrorKind::PeerDied);
    assert_eq!(
        work.wait_timeout(Duration::ZERO).unwrap_err().kind(),
        ErrorKind::PeerDied
    );
    assert_eq!(work.take().unwrap_err().kind(), ErrorKind::PeerDied);
    assert_eq!(work.take().unwrap_err().kind(), ErrorKind::PeerDied);
    assert_eq!(
        block_on(work.wait_async()).unwrap_err().kind(),
        ErrorKind::PeerDied
    );
    assert_eq!(block_on(work).unwrap_err().kind(), ErrorKind::PeerDied);
}

#[test]
fn several_threads_can_wait_for_one_operation() {
    let (work, completer) = Work::channel();
    let work = &work;
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..4)
            .map(|index| {
                scope.spawn(move || {
                    if index % 2 == 0 {
                        work.wait()
                    } else {
                        block_on(work.wait_async())
                    }
                })
            })
            .collect();
        scope.spawn(move || completer.complete(Ok(1)));
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_timeout_only_stops_the_wait() {
    let (work, completer) = Work::channel();
    assert_eq!(
        work.wait_timeout(Duration::from_millis(1)).unwrap(),
        Waited::TimedOut
    );
    assert_eq!(
        work.wait_deadline(Some(Instant::now())).unwrap(),
        Waited::TimedOut
    );
    completer.complete(Ok(()));
    assert_eq!(work.wait_timeout(Duration::MAX).unwrap(), Waited::Done);
}

#[test]
fn a_dropped_completer_fails_the_operation() {
    let (work, completer) = Work::<u8>::channel();
    let waiter = thread::spawn(move || work.wait());
    drop(completer);
    assert_eq!(
        waiter.join().unwrap().unwrap_err().kind(),
        ErrorKind::Internal
    );
}

#[test]
fn a_panic_of_the_completing_thread_fails_the_operation() {
    let (work, completer) = Work::<u8>::channel();
    let worker = thread::spawn(move || {
        let _completer = completer;
        panic!("worker");
    });
    assert!(worker.join().is_err());
    assert_eq!(work.wait().unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn continuations_run_in_order_on_the_completing_thread_before_waiters_go_on() {
    let (work, completer) = Work::channel();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for index in 0..5 {
        let seen = Arc::clone(&seen);
        work.then(move |result: &Result<u32>| {
            seen.lock()
                .unwrap()
                .push((index, *result.as_ref().unwrap(), thread::current().id()));
        })
        .detach();
    }
    let completing = thread::spawn(move || {
        completer.complete(Ok(9));
        thread::current().id()
    });
    work.wait().unwrap();
    let seen = seen.lock().unwrap().clone();
    let id = completing.join().unwrap();
    assert_eq!(seen, (0..5).map(|index| (index, 9, id)).collect::<Vec<_>>());
    assert_eq!(work.take().unwrap(), 9);
}

#[test]
fn a_continuation_after_the_end_runs_at_once_on_the_calling_thread() {
    let work = Work::ready(Ok(5_u32));
    let next = work.then(|result| (*result.as_ref().unwrap() + 1, thread::current().id()));
    assert!(next.is_done());
    assert_eq!(next.take().unwrap(), (6, thread::current().id()));
    assert_eq!(work.take().unwrap(), 5);
}

#[test]
fn a_continuation_after_the_take_gets_the_error_of_a_second_take() {
    let work = Work::ready(Ok(5));
    work.take().unwrap();
    let kind = work
        .then(|result| result.as_ref().unwrap_err().kind())
        .take()
        .unwrap();
    assert_eq!(kind, ErrorKind::InvalidArgument);
    let work = Work::<u8>::ready(Err(failure()));
    work.take().unwrap_err();
    let kind = work
        .then(|result| result.as_ref().unwrap_err().kind())
        .take()
        .unwrap();
    assert_eq!(kind, ErrorKind::PeerDied);
}

#[test]
fn a_panicking_continuation_fails_only_its_own_work() {
    let (work, completer) = Work::channel();
    let bad = work.then(|_| panic!("boom {}", 1));
    let good = work.then(|result| *result.as_ref().unwrap());
    completer.complete(Ok(2));
    let error = bad.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("boom 1"), "{error}");
    assert_eq!(good.take().unwrap(), 2);
    work.wait().unwrap();
}

#[test]
fn inside_a_continuation_the_operation_counts_as_done_and_cannot_be_taken() {
    let (work, completer) = Work::channel();
    let work = Arc::new(work);
    let inner = Arc::clone(&work);
    let check = work.then(move |_: &Result<u8>| {
        inner.wait().unwrap();
        assert!(inner.is_done());
        let nested = inner.then(|_| ());
        assert!(!nested.is_done(), "runs after this continuation, in order");
        inner.take().unwrap_err().kind()
    });
    completer.complete(Ok(4));
    assert_eq!(check.take().unwrap(), ErrorKind::InvalidArgument);
    assert_eq!(work.take().unwrap(), 4);
}

#[test]
fn chains_link_next_and_last_work() {
    let (work, completer) = Work::channel();
    assert!(work.next_work().is_none() && work.last_work().is_none());
    let second = work.then(|result: &Result<u32>| result.as_ref().unwrap() + 1);
    let third = second.then(|result| result.as_ref().unwrap() * 10);
    let last = work.last_work().unwrap();
    assert!(!last.is_done());
    assert!(last.next_work().is_none());
    assert!(work.next_work().unwrap().next_work().is_some());
    thread::spawn(move || completer.complete(Ok(1)));
    assert_eq!(last.wait_deadline(None).unwrap(), Waited::Done);
    assert_eq!(third.take().unwrap(), 20);
}

#[test]
fn cancel_passes_one_request_on_and_only_while_pending() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let (work, completer) = WorkBuilder::new()
        .on_cancel(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        })
        .channel::<u8>();
    assert!(work.cancel());
    assert!(!work.cancel());
    assert!(
        !work.is_done(),
        "cancelling is a request; the completer ends the operation"
    );
    completer.complete(Err(Error::new(ErrorKind::Cancelled, "cancelled")));
    assert_eq!(work.take().unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(requests.load(Ordering::SeqCst), 1);

    let (work, completer) = WorkBuilder::new()
        .on_cancel(|| panic!("not called"))
        .channel();
    completer.complete(Ok(1));
    assert!(!work.cancel());
    let (work, completer) = Work::<u8>::channel();
    assert!(!work.cancel(), "without a hook there is nothing to pass on");
    drop(completer);
}

#[test]
fn a_cancel_hook_that_came_too_late_says_so() {
    let (work, completer) = WorkBuilder::new().try_cancel(|| false).channel();
    assert!(!work.cancel());
    completer.complete(Ok(1));
    assert_eq!(work.take().unwrap(), 1);
}

#[test]
fn a_thread_that_must_not_wait_gets_an_error_and_the_operation_goes_on() {
    struct Busy;

    impl Drive for Busy {
        fn drive(&self, _: &dyn Fn() -> bool, _: Option<Instant>) -> bool {
            false
        }

        fn may_wait(&self) -> Result<()> {
            Err(Error::new(ErrorKind::InvalidArgument, "not here"))
        }
    }

    let (work, completer) = WorkBuilder::new().driver(Arc::new(Busy)).channel();
    for error in [work.wait().unwrap_err(), work.take().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    completer.complete(Ok(1));
    work.wait().unwrap();
    assert_eq!(work.take().unwrap(), 1);
}

#[test]
fn a_panicking_cancel_hook_is_contained() {
    let (work, completer) = WorkBuilder::new().on_cancel(|| panic!("hook")).channel();
    assert!(work.cancel());
    completer.complete(Ok(1));
    assert_eq!(work.take().unwrap(), 1);
}

#[test]
fn what_the_operation_holds_is_released_at_its_end_not_with_the_handle() {
    let payload = Arc::new(());
    let (in_hook, in_continuation) = (Arc::clone(&payload), Arc::clone(&payload));
    let (work, completer) = WorkBuilder::new()
        .on_cancel(move || drop(in_hook))
        .channel();
    work.then(move |_| drop(in_continuation)).detach();
    assert_eq!(Arc::strong_count(&payload), 3);
    completer.complete(Ok(()));
    assert_eq!(Arc::strong_count(&payload), 1);
    drop(work);
}

#[test]
fn dropping_the_handle_detaches_and_the_result_goes_at_the_end() {
    let payload = Arc::new(());
    let (work, completer) = Work::channel();
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    assert!(!completer.is_detached());
    work.then(move |_| flag.store(true, Ordering::SeqCst))
        .detach();
    drop(work);
    assert!(
        !completer.is_detached(),
        "a continuation will see the result"
    );
    completer.complete(Ok(Arc::clone(&payload)));
    assert!(ran.load(Ordering::SeqCst));
    assert_eq!(Arc::strong_count(&payload), 1);
    let (work, completer) = Work::<u8>::channel();
    drop(work);
    assert!(completer.is_detached());
}

#[test]
fn many_wakers_are_woken_once_each() {
    let (work, completer) = Work::<u8>::channel();
    let shared = work.as_async_work();
    let wakers: Vec<_> = (0..5).map(|_| counting_waker()).collect();
    for (_, waker) in &wakers {
        shared.register_waker(waker);
        shared.register_waker(waker);
    }
    completer.complete(Ok(0));
    for (counter, _) in &wakers {
        assert_eq!(counter.woken.load(Ordering::SeqCst), 1);
    }
    let (late, waker) = counting_waker();
    shared.register_waker(&waker);
    assert_eq!(
        late.woken.load(Ordering::SeqCst),
        1,
        "registered after the end: woken at once"
    );
}

#[test]
fn a_future_polled_with_changing_wakers_wakes_the_latest_only() {
    let (mut work, completer) = Work::<u8>::channel();
    let wakers: Vec<_> = (0..100).map(|_| counting_waker()).collect();
    for (_, waker) in &wakers {
        assert!(
            Pin::new(&mut work)
                .poll(&mut Context::from_waker(waker))
                .is_pending()
        );
    }
    let (abandoned, waker) = counting_waker();
    {
        let mut wait = std::pin::pin!(work.wait_async());
        assert!(
            wait.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    completer.complete(Ok(3));
    assert_eq!(
        abandoned.woken.load(Ordering::SeqCst),
        0,
        "a dropped wait forgets its waker"
    );
    let woken: Vec<_> = wakers
        .iter()
        .map(|(c, _)| c.woken.load(Ordering::SeqCst))
        .collect();
    assert_eq!(woken.iter().sum::<usize>(), 1);
    assert_eq!(woken[99], 1);
    assert_eq!(block_on(work).unwrap(), 3);
}

/// Completes the operation on the thread that drives.
struct CompletingDriver {
    completer: Mutex<Option<Completer<thread::ThreadId>>>,
}

impl Drive for CompletingDriver {
    fn drive(&self, done: &dyn Fn() -> bool, _: Option<Instant>) -> bool {
        let Some(completer) = self.completer.lock().unwrap().take() else {
            return false;
        };
        assert!(!done());
        completer.complete(Ok(thread::current().id()));
        assert!(done());
        true
    }
}

fn driven() -> Work<thread::ThreadId> {
    let driver = Arc::new(CompletingDriver {
        completer: Mutex::new(None),
    });
    let (work, completer) = WorkBuilder::new()
        .driver(Arc::clone(&driver) as Arc<dyn Drive>)
        .channel();
    *driver.completer.lock().unwrap() = Some(completer);
    work
}

#[test]
fn a_blocking_waiter_drives_and_a_future_does_not() {
    let here = thread::current().id();
    let work = driven();
    work.wait().unwrap();
    assert_eq!(work.take().unwrap(), here);
    assert_eq!(driven().take().unwrap(), here);
    assert_eq!(
        driven()
            .then(|result| *result.as_ref().unwrap())
            .take()
            .unwrap(),
        here
    );

    let mut work = driven();
    let (_, waker) = counting_waker();
    assert!(
        Pin::new(&mut work)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    assert!(!work.is_done());
}

/// Sleeps inside `drive` until interrupted.
struct SleepingDriver {
    entered: mpsc::Sender<()>,
    interrupts: Mutex<mpsc::Receiver<()>>,
    interrupt: mpsc::Sender<()>,
}

impl Drive for SleepingDriver {
    fn drive(&self, done: &dyn Fn() -> bool, _: Option<Instant>) -> bool {
        let Ok(interrupts) = self.interrupts.try_lock() else {
            return false;
        };
        while !done() {
            self.entered.send(()).unwrap();
            interrupts.recv().unwrap();
        }
        true
    }

    fn interrupt(&self) {
        self.interrupt.send(()).unwrap();
    }
}

#[test]
fn completion_by_somebody_else_interrupts_a_sleeping_driver() {
    let (entered, has_entered) = mpsc::channel();
    let (interrupt, interrupts) = mpsc::channel();
    let driver = SleepingDriver {
        entered,
        interrupts: Mutex::new(interrupts),
        interrupt,
    };
    let (work, completer) = WorkBuilder::new().driver(Arc::new(driver)).channel();
    let chained = work.then(|result: &Result<u8>| *result.as_ref().unwrap());
    thread::scope(|scope| {
        let driving = scope.spawn(|| chained.wait());
        has_entered.recv().unwrap();
        // The second waiter cannot drive and sleeps.
        let sleeping = scope.spawn(|| work.wait());
        completer.complete(Ok(1));
        driving.join().unwrap().unwrap();
        sleeping.join().unwrap().unwrap();
    });
}

#[test]
fn a_driver_that_gives_up_at_the_deadline_is_a_timeout() {
    struct Idle;
    impl Drive for Idle {
        fn drive(&self, done: &dyn Fn() -> bool, deadline: Option<Instant>) -> bool {
            while !done() && deadline.is_some_and(|deadline| Instant::now() < deadline) {
                thread::yield_now();
            }
            true
        }
    }
    let (work, completer) = WorkBuilder::new().driver(Arc::new(Idle)).channel::<u8>();
    assert_eq!(
        work.wait_timeout(Duration::from_millis(2)).unwrap(),
        Waited::TimedOut
    );
    completer.complete(Ok(1));
    assert_eq!(work.wait_timeout(Duration::ZERO).unwrap(), Waited::Done);
}

#[test]
fn racing_waiters_takers_continuations_and_completion_lose_nothing() {
    for round in 0..2_000_u32 {
        let (work, completer) = Work::channel();
        let runs = Arc::new(AtomicUsize::new(0));
        let work = &work;
        thread::scope(|scope| {
            scope.spawn(move || completer.complete(Ok(std::cell::Cell::new(round))));
            let takers: Vec<_> = (0..2)
                .map(|_| scope.spawn(move || work.take().ok().map(std::cell::Cell::into_inner)))
                .collect();
            let chained: Vec<_> = (0..3)
                .map(|_| {
                    let runs = Arc::clone(&runs);
                    work.then(move |_| {
                        runs.fetch_add(1, Ordering::SeqCst);
                    })
                })
                .collect();
            work.wait().unwrap();
            let taken: Vec<_> = takers
                .into_iter()
                .filter_map(|t| t.join().unwrap())
                .collect();
            assert_eq!(taken, [round]);
            for chained in chained {
                chained.wait().unwrap();
            }
        });
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }
}
