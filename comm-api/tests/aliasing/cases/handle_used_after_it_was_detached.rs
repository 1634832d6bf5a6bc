//! Detaching gives the tensor up: its operation frees it.

use comm_api::{Result, TensorMut, Work};

fn wrong(work: Work<TensorMut>) -> Result<TensorMut> {
    work.detach();
    work.take() //~ E0382
}

fn main() {
    let _ = wrong;
}
