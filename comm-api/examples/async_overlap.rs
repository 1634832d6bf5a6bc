//! Reduces the gradients of one layer while the next layer's are still being computed.
//!
//! ```text
//! cargo xtask launch -n 2 -- target/release/examples/async_overlap
//! ```

use comm_api::{Communicator, ReduceOp, Result, TensorMut};

const LAYERS: usize = 8;
const ELEMENTS: usize = 1 << 20;

fn main() -> Result<()> {
    let comm = Communicator::from_env()?;

    // Backwards, as training does: each layer's reduction starts as soon as its gradients are
    // there, and runs while this thread computes the next ones. The handle owns the tensor.
    let mut reductions = Vec::new();
    for layer in (0..LAYERS).rev() {
        let gradients = TensorMut::from_vec(backward(layer, comm.rank()), &[ELEMENTS])?;
        reductions.push((layer, comm.all_reduce_async(gradients, ReduceOp::Avg)?));
    }
    let hidden = reductions.iter().filter(|(_, work)| work.is_done()).count();

    // Reductions of one communicator end in the order in which they were started.
    for (layer, work) in reductions {
        let gradients = work.take()?;
        let expected = layer as f32 + (comm.world_size() - 1) as f32 / 2.0;
        assert!(
            gradients
                .as_slice::<f32>()?
                .iter()
                .all(|average| *average == expected),
            "an average of layer {layer} is wrong"
        );
    }
    println!(
        "rank {}: {hidden} of {LAYERS} reductions had ended before the last layer was computed",
        comm.rank()
    );
    comm.barrier()
}

/// Stands for the work of a backward pass.
fn backward(layer: usize, rank: u32) -> Vec<f32> {
    let mut gradients = vec![0.0_f32; ELEMENTS];
    for step in 0..8 {
        for (index, gradient) in gradients.iter_mut().enumerate() {
            *gradient += std::hint::black_box(((index + step) % 3) as f32);
        }
    }
    gradients.fill(layer as f32 + rank as f32);
    gradients
}
