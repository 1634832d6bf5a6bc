//! What the other programs do wrong, done right: this one compiles.

use comm_api::{Communicator, DType, ReduceOp, Result, Tensor, TensorMut};

fn main() -> Result<()> {
    let comms = comm_api::init_all(1)?;
    let comm: &Communicator = &comms[0];

    // A tensor comes back when its operation is complete, and is the caller's again.
    let mut tensor = TensorMut::zeros(DType::F32, &[4])?;
    tensor.as_mut_slice::<f32>()?[0] = 1.0;
    let mut tensor = comm.recv_async(tensor, 0)?.take()?;
    tensor.as_mut_slice::<f32>()?[0] = 2.0;

    // A tensor that is being sent can be read, and sent again.
    let shared: Tensor = tensor.freeze();
    let (one, other) = (comm.send_async(&shared, 0)?, comm.send_async(&shared, 0)?);
    assert_eq!(shared.as_slice::<f32>()?[0], 2.0);
    one.wait()?;
    other.wait()?;

    // A blocking call borrows its buffer for as long as it takes, also on another thread.
    let mut buffer = [0_f32; 4];
    std::thread::scope(|scope| {
        scope.spawn(|| comm.recv(&mut buffer, 0));
    });
    comm.all_reduce(&mut buffer, ReduceOp::Sum)?;
    let part = comm.reduce_scatter(&mut buffer, ReduceOp::Sum)?;
    part[0] = 0.0;
    buffer[0] = 1.0;
    Ok(())
}
