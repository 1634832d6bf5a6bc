//! What foreign code can do to the thread that ends an operation.

use std::sync::Arc;

use super::*;

#[test]
fn a_panic_of_foreign_code_goes_no_further_than_the_end_of_its_operation() {
    struct Fragile;

    impl Drop for Fragile {
        fn drop(&mut self) {
            panic!("dropped, on purpose");
        }
    }

    struct Rash;

    impl Wake for Rash {
        fn wake(self: Arc<Self>) {
            panic!("woken, on purpose");
        }
    }

    // The destructor of a result that nobody wants, and that of a hook.
    let (work, completer) = Work::channel();
    drop(work);
    completer.complete(Ok(Fragile));
    let hook = Fragile;
    let (work, completer) = WorkBuilder::new()
        .on_cancel(move || drop(hook))
        .channel::<u8>();
    completer.complete(Ok(1));
    assert_eq!(work.take().unwrap(), 1);
    // A waker; those behind it are woken.
    let (mut work, completer) = Work::<u8>::channel();
    let rash = Waker::from(Arc::new(Rash));
    assert!(
        Pin::new(&mut work)
            .poll(&mut Context::from_waker(&rash))
            .is_pending()
    );
    let (counter, waker) = counting_waker();
    work.as_async_work().register_waker(&waker);
    completer.complete(Ok(1));
    assert_eq!(counter.woken.load(Ordering::SeqCst), 1);
    assert!(work.is_done());
}
