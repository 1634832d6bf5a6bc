//! A trainer that sends weights and a rollout worker that sends trajectories back: two unlike workers
//! that may be programs of their own, started apart.
//!
//! ```console
//! $ cargo build --release -p comm-api --example weights_and_trajectories
//! $ target/release/examples/weights_and_trajectories              # both, as threads
//! $ export COMM_RENDEZVOUS=127.0.0.1:29400                        # both, as processes
//! $ target/release/examples/weights_and_trajectories trainer &
//! $ target/release/examples/weights_and_trajectories rollout
//! ```

use std::sync::Arc;
use std::thread;

use comm_api::{
    DType, Error, ErrorKind, LocalRendezvous, Piggyback, Result, SendOptions, Tensor, TensorDict,
    TensorMut, Worker, WorkerAddress,
};
use serde::{Deserialize, Serialize};

const ROUNDS: u64 = 3;
const STEPS: usize = 16;

/// What a rollout sends: an ordinary struct with tensors in it.
#[derive(Debug, Serialize, Deserialize)]
struct Trajectory {
    policy_version: u64,
    observations: Vec<TensorDict>,
    rewards: Tensor,
    finished: bool,
}

fn trainer(worker: &Worker) -> Result<()> {
    let mut weights: TensorDict = (0..4)
        .map(|layer| {
            Ok((
                format!("layer.{layer}"),
                Tensor::zeros(DType::F32, &[256, 256])?,
            ))
        })
        .collect::<Result<_>>()?;
    let rollout = worker.group_with("rollout", 0)?;
    for version in 1..=ROUNDS {
        // The version rides along with the weights; the send goes on in the background.
        let options = SendOptions::new().piggyback(Some(Piggyback::new(&version)?));
        let sent = rollout.send_async_with(&weights, &options)?;
        let trajectory: Trajectory = rollout.recv()?.into_message();
        sent.wait()?;
        let reward: f32 = trajectory.rewards.as_slice::<f32>()?.iter().sum();
        println!(
            "trainer: {} steps of policy {}, reward {reward}",
            trajectory.observations.len(),
            trajectory.policy_version
        );
        weights.insert("layer.0", updated(&weights["layer.0"], reward)?);
    }
    Ok(())
}

/// The weights after a step in the direction of the reward.
fn updated(weights: &Tensor, reward: f32) -> Result<Tensor> {
    let values = weights.as_slice::<f32>()?;
    Tensor::from_vec(
        values.iter().map(|value| value + reward).collect(),
        weights.shape(),
    )
}

fn rollout(worker: &Worker) -> Result<()> {
    let trainer = worker.group_with("trainer", 0)?;
    for _ in 0..ROUNDS {
        let received = trainer.recv::<TensorDict>()?;
        let version = received
            .piggyback
            .ok_or_else(|| Error::new(ErrorKind::Mismatch, "weights came without their version"))?;
        let weight = received.message["layer.0"].as_slice::<f32>()?[0];
        let observations = (0..STEPS)
            .map(|step| {
                let mut image = TensorMut::zeros(DType::U8, &[3, 32, 32])?;
                image.as_mut_bytes()?.fill(step as u8);
                let state = Tensor::from_vec(vec![weight; 8], &[8])?;
                Ok([("image", image.freeze()), ("state", state)]
                    .into_iter()
                    .collect())
            })
            .collect::<Result<_>>()?;
        trainer.send(&Trajectory {
            policy_version: version.get()?,
            observations,
            rewards: Tensor::from_vec(vec![0.5_f32; STEPS], &[STEPS])?,
            finished: true,
        })?;
    }
    Ok(())
}

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("trainer") => trainer(&Worker::from_env("trainer")?),
        Some("rollout") => rollout(&Worker::from_env("rollout")?),
        Some(other) => {
            let message = format!("'{other}' is neither trainer nor rollout");
            Err(Error::new(ErrorKind::InvalidArgument, message))
        }
        None => both(),
    }
}

/// Both workers as threads of this program.
fn both() -> Result<()> {
    let meeting = Arc::new(LocalRendezvous::new());
    let worker = |name: &str| {
        Worker::builder(WorkerAddress::new(name, 0)?)?
            .rendezvous(Arc::clone(&meeting) as _)
            .build()
    };
    let (at_trainer, at_rollout) = (worker("trainer")?, worker("rollout")?);
    let rolling = thread::spawn(move || rollout(&at_rollout));
    trainer(&at_trainer)?;
    let panicked = || Error::new(ErrorKind::Internal, "the rollout worker panicked");
    rolling.join().map_err(|_| panicked())?
}
