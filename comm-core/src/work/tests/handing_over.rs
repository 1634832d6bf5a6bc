//! Results that are handed on by value: `map`, `map_later`, `forward`, `hand_over`.

use super::*;

#[test]
fn a_mapped_work_owns_the_result_is_driven_and_cancelled_in_place_of_its_source() {
    let here = thread::current().id();
    let mapped = driven().map(|result| Ok((result?, "converted")));
    mapped.wait().unwrap();
    assert_eq!(mapped.take().unwrap(), (here, "converted"));

    let (work, completer) = WorkBuilder::new().try_cancel(|| true).channel::<u8>();
    let mapped = work.map(|result| result.map(u32::from));
    assert!(mapped.cancel());
    assert!(!mapped.cancel());
    completer.complete(Err(Error::new(ErrorKind::Cancelled, "cancelled")));
    assert_eq!(mapped.take().unwrap_err().kind(), ErrorKind::Cancelled);
    let (work, completer) = WorkBuilder::new().try_cancel(|| false).channel::<u8>();
    let mapped = work.map(|result| result);
    assert!(!mapped.cancel(), "the source says that it is too late");
    completer.complete(Ok(1));
    assert_eq!(mapped.take().unwrap(), 1);
}

#[test]
fn mapping_comes_after_the_continuations_and_contains_panics() {
    let (work, completer) = Work::channel();
    let seen = work.then(|result: &Result<Vec<u8>>| result.as_ref().unwrap().len());
    let mapped = work.map(|result| Ok(result?.into_iter().map(u32::from).sum::<u32>()));
    completer.complete(Ok(vec![1, 2, 3]));
    assert_eq!((seen.take().unwrap(), mapped.take().unwrap()), (3, 6));
    let panicked = Work::ready(Ok(1)).map(|_: Result<u8>| -> Result<u8> { panic!("boom") });
    assert_eq!(panicked.take().unwrap_err().kind(), ErrorKind::Internal);
    let (outer, completer) = Work::channel();
    Work::ready(Ok(7)).forward(completer);
    assert_eq!(outer.take().unwrap(), 7);
}

#[test]
fn a_conversion_may_end_its_work_later_on_another_thread_and_is_driven_and_cancelled_as_any() {
    /// Ends the source on the thread that drives, and has nothing to drive afterwards.
    struct SourceDriver(Mutex<Option<Completer<thread::ThreadId>>>);

    impl Drive for SourceDriver {
        fn drive(&self, _: &dyn Fn() -> bool, _: Option<Instant>) -> bool {
            let completer = self.0.lock().unwrap().take();
            completer.is_some_and(|completer| {
                completer.complete(Ok(thread::current().id()));
                true
            })
        }
    }

    let driver = Arc::new(SourceDriver(Mutex::new(None)));
    let driving = Arc::clone(&driver) as Arc<dyn Drive>;
    let (work, completer) = WorkBuilder::new().driver(driving).channel();
    *driver.0.lock().unwrap() = Some(completer);
    let mapped = work.map_later(|result, completer| {
        thread::spawn(move || completer.complete(result));
    });
    mapped.wait().unwrap();
    let here = thread::current().id();
    assert_eq!(mapped.take().unwrap(), here, "the waiter drove");

    let (work, completer) = WorkBuilder::new().try_cancel(|| true).channel::<u8>();
    let (kept, keeping) = std::sync::mpsc::channel();
    let mapped = work.map_later(move |result, completer| kept.send((result, completer)).unwrap());
    assert!(mapped.cancel());
    completer.complete(Ok(1));
    assert!(!mapped.is_done());
    let (result, completer) = keeping.recv().unwrap();
    completer.complete(result.map(u32::from));
    assert_eq!(mapped.take().unwrap(), 1);

    let panicked = Work::ready(Ok(1_u8))
        .map_later(|_, _: Completer<u8>| panic!("with the completer in its hands"));
    assert_eq!(panicked.take().unwrap_err().kind(), ErrorKind::Internal);
}
