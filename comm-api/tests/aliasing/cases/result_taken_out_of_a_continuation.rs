//! A continuation sees the result, but cannot keep it: the handle yields it once, to one owner.

use comm_api::{Result, TensorMut, Work};

fn wrong(work: &Work<TensorMut>) {
    work.then(|received: &Result<TensorMut>| {
        let tensor: TensorMut = received.as_ref().map(|tensor| *tensor).unwrap(); //~ E0507
        drop(tensor);
    });
}

fn main() {
    let _ = wrong;
}
