//! What a worker does.

use comm_api::{Builder, Communicator, FrameHead, FrameOptions, FrameRef, ReduceOp, Result};

/// A communicator of some ranks of the job, by its name.
fn part_of_the_job(name: String, rank: u32, world_size: u32) -> Result<Communicator> {
    let builder = Builder::from_env()?.name(name);
    builder.rank(rank, world_size).build()
}

/// Plays the scenario of this name as one rank of its job.
pub(crate) fn play(scenario: &str) -> Result<()> {
    let comm = Communicator::from_env()?;
    let mut value = [comm.rank() + 1; 1000];
    match scenario {
        "reduce" => {
            comm.all_reduce(&mut value, ReduceOp::Sum)?;
            let n = comm.world_size();
            assert!(value.iter().all(|sum| *sum == n * (n + 1) / 2));
            let edges = comm.explain().edges;
            // Left to itself the library takes the first that connects processes.
            let mut usable = comm_api::compiled_transports().iter();
            let wanted = std::env::var("COMM_TRANSPORTS").ok().or_else(|| {
                let between_processes = usable.find(|name| !["p2p", "verbs"].contains(name));
                between_processes.map(ToString::to_string)
            });
            assert!(
                !edges.is_empty()
                    && edges
                        .iter()
                        .all(|edge| Some(&edge.transport) == wanted.as_ref())
            );
            comm.barrier()
        }
        "parts" => {
            // As the guide does it: with its neighbour, and with those of the same parity.
            let (pair, part) = (comm.rank() / 2, comm.rank() % 2);
            let of_the_pair = part_of_the_job(format!("pair-{pair}"), part, 2)?;
            let of_the_parity =
                part_of_the_job(format!("parity-{part}"), pair, comm.world_size() / 2)?;
            let mut sums = [[comm.rank()]; 2];
            of_the_pair.all_reduce(&mut sums[0], ReduceOp::Sum)?;
            of_the_parity.all_reduce(&mut sums[1], ReduceOp::Sum)?;
            let expected = (0..comm.world_size() / 2)
                .map(|other| 2 * other + part)
                .sum();
            assert_eq!(sums, [[4 * pair + 1], [expected]]);
            // One that fails is none of the others' business.
            comm.barrier()?;
            of_the_pair.abort();
            of_the_parity.barrier()?;
            comm.barrier()
        }
        "endless" => {
            comm.barrier()?;
            println!("ready");
            loop {
                comm.all_reduce(&mut value, ReduceOp::Max)?;
            }
        }
        "go on" => {
            comm.barrier()?;
            println!("ready");
            while comm.all_reduce(&mut value, ReduceOp::Max).is_ok() {}
            let failed = comm.failed_rank().expect("a rank has failed");
            assert_eq!(failed, 2);
            let rest = comm.shrink(&[failed])?;
            drop(comm);
            let mut sum = [rest.rank(); 1000];
            rest.all_reduce(&mut sum, ReduceOp::Sum)?;
            assert_eq!((rest.world_size(), sum), (3, [3; 1000]));
            rest.barrier()
        }
        "endless_frames" => {
            let options = FrameOptions::new();
            let (rank, n) = (comm.rank(), comm.world_size());
            let nowhere = |_: &FrameHead<'_>| Ok(Vec::new());
            comm.barrier()?;
            println!("ready");
            loop {
                let receive = comm.recv_frame((rank + n - 1) % n, nowhere, &options)?;
                let frame = FrameRef::default();
                comm.send_frame_blocking((rank + 1) % n, frame, &options)?;
                receive.wait()?;
            }
        }
        "differ" => {
            comm.all_reduce(&mut value, ReduceOp::Sum)?;
            assert!(value.iter().all(|sum| *sum == 6));
            // In both directions, beside the collective's edges.
            let (before, after) = (
                (comm.rank() + 2) % comm.world_size(),
                (comm.rank() + 1) % comm.world_size(),
            );
            comm.send(&[comm.rank()], after)?;
            let mut received = [u32::MAX];
            comm.recv(&mut received, before)?;
            assert_eq!(received, [before]);
            for edge in comm.explain().edges {
                let with_rank_1 = comm.rank() == 1 || edge.peer == 1;
                let wanted = if with_rank_1 { "net" } else { "shm" };
                assert_eq!(edge.transport, wanted, "{edge:?}");
                // Rank 1 has no shm to pass over.
                let passed_over = with_rank_1 && comm.rank() != 1 && edge.sends;
                assert_eq!(edge.passed_over.len(), usize::from(passed_over), "{edge:?}");
            }
            comm.barrier()
        }
        "near ranks" => {
            let explanation = comm.explain();
            assert_eq!(explanation.ring, [0, 2, 4, 1, 3]);
            assert!(explanation.to_string().contains("ring: [0, 2, 4, 1, 3]"));
            let n = comm.world_size();
            comm.all_reduce(&mut value, ReduceOp::Sum)?;
            assert!(value.iter().all(|sum| *sum == n * (n + 1) / 2));
            let mut blocks: Vec<u32> = (0..n * 1000).map(|_| comm.rank()).collect();
            comm.all_gather(&mut blocks)?;
            let owners = (0..n).flat_map(|rank| [rank; 1000]);
            assert!(blocks.into_iter().eq(owners));
            comm.barrier()
        }
        "last sends" => {
            // As many steps as there are slots, each far more than a socket takes by itself.
            let words = |message: u32| vec![message; (4 << 20) / 4];
            for message in 0..8 {
                if comm.rank() == 0 {
                    comm.send(&words(message), 1)?;
                } else {
                    // By now the other process has nothing more to do.
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    let mut received = words(u32::MAX);
                    comm.recv(&mut received, 0)?;
                    assert!(received == words(message));
                }
            }
            Ok(())
        }
        "mismatch" => {
            let count = 10 + comm.rank() as usize;
            comm.all_reduce(&mut value[..count], ReduceOp::Sum)
        }
        "circle" if comm.rank() == 0 => comm.all_reduce(&mut value, ReduceOp::Sum),
        "circle" => comm.recv(&mut value, 0),
        other => panic!("no scenario {other}"),
    }
}
