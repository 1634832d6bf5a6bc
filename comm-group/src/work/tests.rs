use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use comm_core::{AsyncWork, Completer, Drive, Error, ErrorKind, Waited, Work, WorkBuilder};

use super::*;

fn failure() -> Error {
    Error::new(ErrorKind::PeerDied, "rank 3 died")
}

/// The smallest executor: parks between polls.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// A work that its waiter ends by driving it, with the thread's id.
fn driven() -> Work<thread::ThreadId> {
    struct Driver(Mutex<Option<Completer<thread::ThreadId>>>);
    impl Drive for Driver {
        fn drive(&self, _: &dyn Fn() -> bool, _: Option<Instant>) -> bool {
            let completer = lock(&self.0).take();
            completer.is_some_and(|completer| {
                completer.complete(Ok(thread::current().id()));
                true
            })
        }
    }
    let driver = Arc::new(Driver(Mutex::new(None)));
    let (work, completer) = WorkBuilder::new()
        .driver(Arc::clone(&driver) as Arc<dyn Drive>)
        .channel();
    *lock(&driver.0) = Some(completer);
    work
}

#[test]
fn a_function_runs_on_the_thread_that_ends_its_trigger_and_yields_its_result() {
    let (trigger, completer) = Work::channel();
    let done = FuncWork::after(&trigger, |result| {
        Ok((*result.as_ref().unwrap() + 1, thread::current().id()))
    });
    assert!(!done.is_done());
    let ending = thread::spawn(move || completer.complete(Ok(41)));
    let id = ending.thread().id();
    block_on(done.wait_async()).unwrap();
    done.wait().unwrap();
    assert_eq!(done.wait_timeout(Duration::ZERO).unwrap(), Waited::Done);
    assert_eq!(block_on(done).unwrap(), (42, id));
    let late = FuncWork::after(&Work::ready(Ok(1)), |_| Ok(thread::current().id()));
    assert_eq!(late.take().unwrap(), thread::current().id());
}

#[test]
fn the_error_or_panic_of_a_function_is_the_handles() {
    let trigger = Work::ready(Ok(1));
    let failed = FuncWork::<u8>::after(&trigger, |_| Err(failure()));
    assert_eq!(failed.wait().unwrap_err().kind(), ErrorKind::PeerDied);
    let panicked = FuncWork::<u8>::after(&trigger, |_| panic!("boom {}", 7));
    let error = panicked.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("boom 7"), "{error}");
    let panicked = FuncWork::<u8>::chain(&trigger, |_| panic!("boom"));
    assert_eq!(panicked.wait().unwrap_err().kind(), ErrorKind::Internal);
    let failed = FuncWork::<u8>::chain(&trigger, |_| Err(failure()));
    assert_eq!(block_on(failed).unwrap_err().kind(), ErrorKind::PeerDied);
}

#[test]
fn a_failed_trigger_runs_the_function_with_its_error() {
    let (trigger, completer) = Work::<u8>::channel();
    let seen = FuncWork::after(&trigger, |result| Ok(result.as_ref().unwrap_err().kind()));
    let any = FuncWork::after_any(&trigger.as_async_work(), |outcome| {
        Ok(outcome.unwrap_err().kind())
    });
    completer.complete(Err(failure()));
    assert_eq!(seen.take().unwrap(), ErrorKind::PeerDied);
    assert_eq!(any.take().unwrap(), ErrorKind::PeerDied);
}

#[test]
fn a_function_that_returns_a_work_defers_the_end_to_the_end_of_that_works_chain() {
    let (trigger, start) = Work::channel();
    let (inner, end_inner) = Work::channel();
    let (gate, open_gate) = Work::<()>::channel();
    // The chain of the inner work ends when the gate opens.
    let chained = FuncWork::after(&inner, |result| Ok(result.is_ok()));
    let deferred = FuncWork::chain(&trigger, move |_: &Result<()>| Ok(inner));
    let gated = FuncWork::chain(&chained, move |_| Ok(gate));
    start.complete(Ok(()));
    assert!(!deferred.is_done());
    end_inner.complete(Ok("inner"));
    assert!(!deferred.is_done() && !gated.is_done());
    open_gate.complete(Ok(()));
    gated.wait().unwrap();
    assert_eq!(deferred.take().unwrap(), "inner");
}

#[test]
fn a_chain_that_fails_behind_the_returned_work_fails_the_handle() {
    let (inner, end_inner) = Work::<u8>::channel();
    let (last, end_last) = Work::<u8>::channel();
    let second = FuncWork::chain(&inner, move |_| Ok(last));
    assert!(inner.last_work().is_some());
    let _keep = second;
    let deferred = FuncWork::chain(&Work::ready(Ok(())), move |_| Ok(inner));
    end_inner.complete(Ok(1));
    end_last.complete(Err(failure()));
    assert_eq!(deferred.wait().unwrap_err().kind(), ErrorKind::PeerDied);
}

#[test]
fn waiting_for_a_function_drives_its_trigger_and_the_work_it_returns() {
    let here = thread::current().id();
    let after = FuncWork::after(&driven(), |result| Ok(*result.as_ref().unwrap()));
    assert_eq!(after.take().unwrap(), here);
    let chained = FuncWork::chain(&driven(), |_| Ok(driven()));
    assert_eq!(chained.take().unwrap(), here);
    let any = FuncWork::after_any(&driven().as_async_work(), |outcome| outcome);
    any.wait().unwrap();
}

#[test]
fn many_functions_of_one_trigger_run_in_order_also_when_their_handles_are_dropped() {
    let (trigger, completer) = Work::channel();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for index in 0..100 {
        let seen = Arc::clone(&seen);
        let work = FuncWork::after(&trigger, move |_: &Result<u8>| {
            lock(&seen).push(index);
            Ok(())
        });
        drop(work);
    }
    drop(trigger);
    completer.complete(Ok(1));
    assert_eq!(*lock(&seen), (0..100).collect::<Vec<_>>());
}

#[test]
fn what_a_function_holds_is_released_when_it_has_run() {
    let payload = Arc::new(());
    let (trigger, completer) = Work::channel();
    let held = Arc::clone(&payload);
    let work = FuncWork::after(&trigger, move |_: &Result<u8>| {
        drop(held);
        Ok(())
    });
    let (inner, end_inner) = Work::<u8>::channel();
    let held = Arc::clone(&payload);
    let chained = FuncWork::chain(&trigger, move |_| {
        drop(held);
        Ok(inner)
    });
    assert_eq!(Arc::strong_count(&payload), 3);
    completer.complete(Ok(1));
    assert_eq!(Arc::strong_count(&payload), 1);
    end_inner.complete(Ok(1));
    assert!(work.is_done() && chained.is_done());
}

#[test]
fn cancelling_a_deferred_handle_reaches_the_work_it_stands_for() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let (inner, completer) = WorkBuilder::new()
        .on_cancel(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        })
        .channel::<u8>();
    let (trigger, start) = Work::channel();
    let deferred = FuncWork::chain(&trigger, move |_: &Result<()>| Ok(inner));
    start.complete(Ok(()));
    assert!(deferred.cancel());
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    completer.complete(Err(Error::new(ErrorKind::Cancelled, "cancelled")));
    assert_eq!(deferred.wait().unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn several_works_end_as_one_with_the_first_failure_of_the_list() {
    assert!(CollWork::new([]).is_done());
    let (works, completers): (Vec<_>, Vec<_>) = (0..5).map(|_| Work::<u8>::channel()).unzip();
    let all: CollWork = works.iter().map(Work::as_async_work).collect();
    let seen = all.then(|outcome| outcome.is_err());
    let mut completers: Vec<_> = completers.into_iter().map(Some).collect();
    for index in [4, 1, 3, 0] {
        let error = Error::new(ErrorKind::Timeout, format!("number {index}"));
        let result = if index % 2 == 1 { Err(error) } else { Ok(0) };
        completers[index].take().unwrap().complete(result);
        assert!(!all.is_done());
        assert_eq!(all.wait_timeout(Duration::ZERO).unwrap(), Waited::TimedOut);
    }
    completers[2].take().unwrap().complete(Ok(0));
    for _ in 0..2 {
        assert_eq!(all.wait().unwrap_err().message(), "number 1");
    }
    assert_eq!(
        block_on(all.wait_async()).unwrap_err().message(),
        "number 1"
    );
    assert!(seen.take().unwrap());
}

#[test]
fn waiting_for_several_works_drives_each_and_joining_makes_one_of_two() {
    let works = [driven(), driven(), driven()];
    CollWork::new(works.iter().map(Work::as_async_work))
        .join(CollWork::new([driven().as_async_work()]))
        .wait()
        .unwrap();
    assert!(works.iter().all(Work::is_done));
}

#[test]
fn cancelling_several_works_cancels_those_that_can_be() {
    let (work, completer) = WorkBuilder::new().on_cancel(|| {}).channel::<u8>();
    let all = CollWork::new([Work::ready(Ok(1)).as_async_work(), work.as_async_work()]);
    assert!(all.cancel());
    completer.complete(Err(Error::new(ErrorKind::Cancelled, "cancelled")));
    assert_eq!(all.wait().unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(!CollWork::new([Work::ready(Ok(1)).as_async_work()]).cancel());
}

#[test]
fn operations_of_a_key_run_in_the_order_of_issue_whatever_becomes_of_them() {
    let order = ChannelOrder::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (blocker, release) = Work::channel();
    let first = order.issue("key", move || Ok(blocker));
    let mut handles = Vec::new();
    for index in 0..50 {
        let log = Arc::clone(&log);
        handles.push(order.issue("key", move || {
            lock(&log).push(index);
            match index % 3 {
                0 => Err(failure()),
                1 => Ok(Work::ready(Err(failure()))),
                _ => Ok(Work::ready(Ok(index))),
            }
        }));
    }
    let panicked = order.issue::<u8>("key", || panic!("boom"));
    let last = order.issue("key", || Ok(Work::ready(Ok(()))));
    assert!(lock(&log).is_empty() && !last.is_done());
    release.complete(Ok(0));
    last.wait().unwrap();
    assert_eq!(*lock(&log), (0..50).collect::<Vec<_>>());
    assert_eq!(first.take().unwrap(), 0);
    assert_eq!(panicked.wait().unwrap_err().kind(), ErrorKind::Internal);
    for (index, handle) in handles.into_iter().enumerate() {
        assert_eq!(
            block_on(handle).ok(),
            (index % 3 == 2).then_some(index as i32)
        );
    }
    assert_eq!(
        order.active_keys(),
        0,
        "a key is forgotten when nothing is under way"
    );
}

#[test]
fn a_thousand_ready_operations_of_a_key_do_not_nest() {
    let order = ChannelOrder::new();
    let (blocker, release) = Work::<u8>::channel();
    drop(order.issue(1, move || Ok(blocker)));
    let works: Vec<_> = (0..100_000)
        .map(|_| order.issue(1, || Ok(Work::ready(Ok(())))))
        .collect();
    release.complete(Ok(0));
    assert!(works.iter().all(|work| work.is_done()));
}

#[test]
fn an_operation_cancelled_before_its_turn_is_not_started() {
    let order = ChannelOrder::new();
    let (blocker, release) = Work::<u8>::channel();
    let first = order.issue(1, move || Ok(blocker));
    let second = order.issue::<u8>(1, || panic!("was started"));
    let third = order.issue(1, || Ok(Work::ready(Ok(3))));
    assert!(second.cancel());
    release.complete(Ok(0));
    assert_eq!(second.wait().unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(third.take().unwrap(), 3);
    first.wait().unwrap();
}

#[test]
fn keys_and_issuing_threads_do_not_disturb_each_other() {
    let order = ChannelOrder::new();
    let counts: Vec<_> = (0..4).map(|_| Arc::new(Mutex::new(Vec::new()))).collect();
    thread::scope(|scope| {
        for (key, count) in counts.iter().enumerate() {
            let order = order.clone();
            scope.spawn(move || {
                for index in 0..500 {
                    let count = Arc::clone(count);
                    let (work, completer) = Work::channel();
                    let issued = order.issue(key, move || {
                        lock(&count).push(index);
                        Ok(work)
                    });
                    completer.complete(Ok(index));
                    assert_eq!(issued.take().unwrap(), index);
                }
            });
        }
    });
    for count in counts {
        assert_eq!(*lock(&count), (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn answers_reach_their_questions_in_any_order() {
    let replies = Replies::new();
    let mut questions: Vec<_> = (0..1000).map(|_| replies.expect()).collect();
    for (id, _) in questions.iter().rev() {
        assert!(replies.fulfil(*id, Ok(id.to_string())));
        assert!(!replies.fulfil(*id, Ok("twice".to_owned())));
    }
    assert_eq!(replies.waiting(), 0);
    for (id, work) in questions.drain(..) {
        work.wait().unwrap();
        assert_eq!(block_on(work).unwrap(), id.to_string());
    }
}

#[test]
fn a_cancelled_question_refuses_its_answer_and_a_broken_way_fails_all() {
    let replies = Replies::new();
    let (id, cancelled) = replies.expect();
    let (_, pending) = replies.expect();
    let (dropped, handle) = replies.expect();
    drop(handle);
    assert!(cancelled.cancel() && !cancelled.cancel());
    assert_eq!(cancelled.wait().unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(!replies.fulfil(id, Ok(1)));
    assert!(replies.fulfil(dropped, Ok(2)));
    replies.fail(failure());
    assert_eq!(pending.wait().unwrap_err().kind(), ErrorKind::PeerDied);
    assert_eq!(
        replies.expect().1.wait().unwrap_err().kind(),
        ErrorKind::PeerDied
    );
    let (done, work) = Replies::<u8>::new().expect();
    drop(work);
    assert_eq!(done.to_string(), "0");
}

#[test]
fn who_waits_for_a_work_that_is_not_there_yet_drives_it_when_it_is() {
    let order = ChannelOrder::new();
    let (blocker, release) = Work::<u8>::channel();
    drop(order.issue(1, move || Ok(blocker)));
    let later = order.issue(1, || Ok(driven()));
    assert_eq!(
        later.wait_timeout(Duration::from_millis(1)).unwrap(),
        Waited::TimedOut
    );
    let waiter = thread::spawn(move || (later.take().unwrap(), thread::current().id()));
    // Whether the waiter sleeps already or comes later makes no difference to the outcome.
    thread::sleep(Duration::from_millis(20));
    release.complete(Ok(0));
    let (driver, waiting) = waiter.join().unwrap();
    assert_eq!(driver, waiting);

    let failing = order.issue::<u8>(1, || Err(failure()));
    assert_eq!(failing.wait().unwrap_err().kind(), ErrorKind::PeerDied);
}

#[test]
fn a_trigger_that_wakes_again_while_the_function_runs_is_heard_once() {
    #[derive(Debug, Default)]
    struct Eager {
        is_done: AtomicBool,
        waker: Mutex<Option<Waker>>,
    }

    impl Eager {
        fn wake(&self) {
            let waker = lock(&self.waker).clone();
            waker.unwrap().wake();
        }
    }

    impl AsyncWork for Eager {
        fn is_done(&self) -> bool {
            self.is_done.load(Ordering::SeqCst)
        }

        fn wait_deadline(&self, _: Option<Instant>) -> Result<Waited> {
            Ok(Waited::Done)
        }

        fn register_waker(&self, waker: &Waker) {
            *lock(&self.waker) = Some(waker.clone());
        }

        fn cancel(&self) -> bool {
            false
        }

        fn next_work(&self) -> Option<Arc<dyn AsyncWork>> {
            None
        }
    }

    let eager = Arc::new(Eager::default());
    let again = Arc::clone(&eager);
    let trigger = Arc::clone(&eager) as Arc<dyn AsyncWork>;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let after = FuncWork::after_any(&trigger, move |outcome| {
        counted.fetch_add(1, Ordering::SeqCst);
        again.wake();
        outcome
    });
    eager.wake();
    assert!(!after.is_done());
    eager.is_done.store(true, Ordering::SeqCst);
    eager.wake();
    after.take().unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}
