//! What the workers do.

use std::thread;
use std::time::Duration;

use comm_api::{Communicator, DType, ErrorKind, ReduceOp, RendezvousAddress, Result, TensorMut};

use super::MEMORY;

/// Elements of a block: small, several steps, large.
const COUNTS: [usize; 3] = [5, 70_001, 600_000];
const ROUNDS: u32 = 3;

/// Plays a worker's part.
pub(crate) fn play(scenario: &str) -> Result<()> {
    if scenario == "threads" {
        return threads();
    }
    let comm = Communicator::from_env()?;
    match scenario {
        "alone" => alone(&comm),
        "collectives" => collectives(&comm),
        "dropped" => dropped(&comm),
        "another_communicator" => another_communicator(comm),
        "limit" => limit(&comm),
        "left" => left(comm),
        "exhausted" => exhausted(&comm),
        "disabled" => disabled(&comm),
        "stopped" => stopped(&comm),
        "survivor" | "victim" => endless(comm, scenario == "survivor"),
        other => panic!("there is no scenario {other}"),
    }
}

fn zeros(comm: &Communicator, count: usize) -> Result<TensorMut> {
    comm.mem_alloc(DType::U32, &[count])
}

/// Memory of the kind that this rank uses.
fn buffer(comm: &Communicator, contents: &[u32]) -> Result<TensorMut> {
    if std::env::var(MEMORY).is_ok_and(|memory| memory == "plain") {
        return TensorMut::from_vec(contents.to_vec(), &[contents.len()]);
    }
    let mut tensor = zeros(comm, contents.len())?;
    tensor.as_mut_slice()?.copy_from_slice(contents);
    Ok(tensor)
}

/// The value of an element of a rank's block.
fn value(rank: u32, round: u32, element: usize) -> u32 {
    (element as u32).wrapping_mul(rank + 3) ^ (round << 8)
}

fn block(rank: u32, round: u32, count: usize) -> Vec<u32> {
    (0..count).map(|at| value(rank, round, at)).collect()
}

/// What a call left; the caller may do with its input what it likes from then on.
fn finish(input: &mut [u32], output: &[u32], wanted: impl Iterator<Item = u32>, what: &str) {
    input.fill(0xdead_beef);
    assert!(output.iter().copied().eq(wanted), "{what}");
}

/// Every collective at every size, with contents that differ between rounds, in the same memory each
/// time and in parts of it.
fn collectives(comm: &Communicator) -> Result<()> {
    let (rank, n) = (comm.rank(), comm.world_size());
    for count in COUNTS {
        let whole = count * n as usize;
        // A few elements at the start are left out.
        let mut input_memory = buffer(comm, &vec![0; whole + 3])?;
        let mut output_memory = buffer(comm, &vec![0; whole + 3])?;
        let all_input = &mut input_memory.as_mut_slice::<u32>()?[3..];
        let all_output = &mut output_memory.as_mut_slice::<u32>()?[3..];
        for round in 0..ROUNDS {
            let sum = |at: usize| -> u32 {
                (0..n).fold(0, |sum, rank| sum.wrapping_add(value(rank, round, at)))
            };
            let own = rank as usize * count;
            let (input, output) = (&mut all_input[..count], &mut all_output[..count]);

            input.copy_from_slice(&block(rank, round, count));
            comm.all_reduce_into(input, output, ReduceOp::Sum)?;
            finish(input, output, (0..count).map(sum), "all_reduce_into");

            output.copy_from_slice(&block(rank, round, count));
            comm.all_reduce(output, ReduceOp::Sum)?;
            finish(&mut [], output, (0..count).map(sum), "all_reduce");

            let root = round % n;
            output.copy_from_slice(&block(rank, round, count));
            comm.broadcast(output, root)?;
            let wanted = (0..count).map(|at| value(root, round, at));
            finish(&mut [], output, wanted, "broadcast");

            let mut reduced = block(rank, round, count);
            comm.reduce(&mut reduced, ReduceOp::Sum, root)?;
            if rank == root {
                finish(&mut [], &reduced, (0..count).map(sum), "reduce");
            }

            all_input.copy_from_slice(&block(rank, round, whole));
            let output = &mut all_output[..count];
            comm.reduce_scatter_into(all_input, output, ReduceOp::Sum)?;
            finish(
                all_input,
                output,
                (own..own + count).map(sum),
                "reduce_scatter",
            );

            let input = &mut all_input[..count];
            input.copy_from_slice(&block(rank, round, count));
            comm.all_gather_into(input, all_output)?;
            let blocks = (0..n).flat_map(|rank| block(rank, round, count));
            finish(input, all_output, blocks, "all_gather");

            all_input.copy_from_slice(&block(rank, round, whole));
            comm.all_to_all_into(all_input, all_output)?;
            let swapped =
                || (0..n).flat_map(|peer| (own..own + count).map(move |at| value(peer, round, at)));
            finish(all_input, all_output, swapped(), "all_to_all_into");

            all_output.copy_from_slice(&block(rank, round, whole));
            comm.all_to_all(all_output)?;
            finish(&mut [], all_output, swapped(), "all_to_all");

            let (before, after) = ((rank + n - 1) % n, (rank + 1) % n);
            let input = &mut all_input[..count];
            input.copy_from_slice(&block(rank, round, count));
            let output = &mut all_output[..count];
            thread::scope(|scope| {
                let sending = scope.spawn(|| comm.send(input, after));
                comm.recv(output, before)?;
                sending.join().expect("the sender panicked")
            })?;
            let wanted = (0..count).map(|at| value(before, round, at));
            finish(input, output, wanted, "send and recv");
        }
        comm.barrier()?;
    }
    // Whoever has a peer with mapped memory has read some directly.
    let mapped = std::env::var(MEMORY).is_ok_and(|memory| memory == "mapped");
    let mut kinds = vec![0; n as usize];
    comm.all_gather_into(&[u32::from(mapped)], &mut kinds)?;
    kinds[rank as usize] = 0;
    let read_bytes = comm.mem_stats().read_bytes;
    assert_eq!(read_bytes > 0, kinds.contains(&1), "{read_bytes}");
    comm.barrier()
}

/// One exchange over mapped memory; whether this rank read its peer's memory directly.
fn exchange(comm: &Communicator, input: &mut TensorMut, round: u32) -> Result<bool> {
    let (rank, n) = (comm.rank(), comm.world_size());
    let before = comm.mem_stats().read_bytes;
    let count = input.element_count();
    let input = input.as_mut_slice::<u32>()?;
    input.copy_from_slice(&block(rank, round, count));
    let mut output = vec![0; count * n as usize];
    comm.all_gather_into(input, &mut output)?;
    let wanted = (0..n).flat_map(|rank| block(rank, round, count));
    finish(input, &output, wanted, "all_gather");
    comm.barrier()?;
    Ok(comm.mem_stats().read_bytes > before)
}

/// Waits for something that another process brings about; the watchdog ends a wait in vain.
fn until(what: impl Fn() -> bool) {
    while !what() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn alone(comm: &Communicator) -> Result<()> {
    let mut tensor = zeros(comm, 1000)?;
    assert!(
        tensor
            .as_slice::<u32>()?
            .iter()
            .all(|element| *element == 0)
    );
    assert_eq!(tensor.as_ptr().addr() % 4096, 0);
    comm.all_reduce(tensor.as_mut_slice::<u32>()?, ReduceOp::Sum)?;
    assert_eq!(comm.mem_stats().allocated_bytes, 4000);
    let shared = tensor.freeze();
    let part = shared.narrow(0, 10, 5)?;
    drop(shared);
    assert_eq!(
        comm.mem_stats().allocated_regions,
        1,
        "a view keeps all of it"
    );
    drop(part);
    assert_eq!(comm.mem_stats().allocated_regions, 0);

    let empty = comm.mem_alloc(DType::F32, &[3, 0])?;
    assert_eq!((empty.len_bytes(), empty.shape()), (0, &[3, 0][..]));
    assert_eq!(comm.mem_stats().allocated_regions, 0);
    let error = comm.mem_alloc(DType::F64, &[usize::MAX, 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    // More than there can be.
    let error = comm.mem_alloc(DType::U8, &[1 << 60]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");

    // Longer than its communicator.
    let mut kept = zeros(comm, 10)?;
    comm.abort();
    let error = zeros(comm, 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    kept.as_mut_slice::<u32>()?.fill(7);
    Ok(())
}

/// Allocations come and go at the same addresses, mixed with ordinary memory.
fn dropped(comm: &Communicator) -> Result<()> {
    let count = 300_000;
    for round in 0..40 {
        let mut tensor = if (round + comm.rank()).is_multiple_of(3) {
            TensorMut::zeros(DType::U32, &[count])?
        } else {
            zeros(comm, count)?
        };
        exchange(comm, &mut tensor, round)?;
        // Some go while the peer works on the next round.
        if round.is_multiple_of(2) {
            drop(tensor);
        }
    }
    let kept = zeros(comm, count)?;
    comm.barrier()?;
    until(|| comm.mem_stats().mapped_regions == 1);
    comm.barrier()?;
    drop(kept);
    until(|| comm.mem_stats().mapped_regions == 0);
    assert_eq!(comm.mem_stats().mapped_bytes, 0);
    comm.barrier()
}

fn another_communicator(first: Communicator) -> Result<()> {
    let mut tensor = zeros(&first, 100_000)?;
    first.barrier()?;
    assert!(exchange(&first, &mut tensor, 0)?);
    let address: RendezvousAddress = std::env::var("COMM_RENDEZVOUS")
        .expect("the address is set")
        .parse()?;
    let builder = Communicator::builder()?
        .rank(first.rank(), first.world_size())
        .rendezvous_at(address)
        .name("second");
    let second = builder.build()?;
    assert!(exchange(&second, &mut tensor, 1)?, "{}", second.explain());
    first.barrier()?;
    drop(first);
    assert!(
        exchange(&second, &mut tensor, 2)?,
        "after the first has ended"
    );
    // What goes now is told over the second.
    drop(tensor);
    until(|| second.mem_stats().mapped_regions == 0);
    second.barrier()
}

fn limit(comm: &Communicator) -> Result<()> {
    let mut tensors = Vec::new();
    for _ in 0..1024 {
        tensors.push(zeros(comm, 1)?);
    }
    let mut last = zeros(comm, 100_000)?;
    let explanation = comm.explain().to_string();
    assert!(explanation.contains("at most 1024"), "{explanation}");
    comm.barrier()?;
    assert!(!exchange(comm, &mut last, 0)?);
    drop(tensors);
    until(|| comm.mem_stats().mapped_regions == 0);
    comm.barrier()?;
    let mut mapped = zeros(comm, 100_000)?;
    comm.barrier()?;
    assert!(exchange(comm, &mut mapped, 1)?);
    comm.barrier()
}

fn left(comm: Communicator) -> Result<()> {
    let mut tensor = zeros(&comm, 100_000)?;
    comm.barrier()?;
    assert!(exchange(&comm, &mut tensor, 0)?);
    if comm.rank() == 1 {
        // The tensor may outlive the communicator.
        drop(comm);
        return Ok(());
    }
    until(|| comm.mem_stats().mapped_regions == 0);
    let another = zeros(&comm, 1000)?;
    assert_eq!(another.element_count(), 1000);
    let explanation = comm.explain().to_string();
    assert!(explanation.contains("not read by rank 1"), "{explanation}");
    Ok(())
}

fn exhausted(comm: &Communicator) -> Result<()> {
    for _ in 0..3 {
        let error = comm.mem_alloc(DType::U8, &[1 << 55]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
        assert!(error.message().contains("memory"), "{error}");
    }
    assert_eq!(comm.mem_stats().allocated_bytes, 0);
    let mut tensor = zeros(comm, 100_000)?;
    comm.barrier()?;
    assert!(exchange(comm, &mut tensor, 0)?);
    Ok(())
}

fn disabled(comm: &Communicator) -> Result<()> {
    let mut tensor = zeros(comm, 100_000)?;
    comm.barrier()?;
    assert!(!exchange(comm, &mut tensor, 0)?);
    let stats = comm.mem_stats();
    assert_eq!((stats.allocated_regions, stats.mapped_regions), (1, 0));
    let explanation = comm.explain();
    let (rank, reason) = &explanation.readers[0];
    assert_eq!(*rank, 1 - comm.rank());
    let reason = reason.as_deref().unwrap_or_default();
    if comm_api::compiled_transports().contains(&"shm") {
        assert!(reason.contains("COMM_SHM_DISABLE"), "{reason}");
    }
    assert!(reason.contains("transport net"), "{reason}");
    comm.barrier()
}

fn endless(comm: Communicator, survives: bool) -> Result<()> {
    let mut input = zeros(&comm, 100_000)?;
    comm.barrier()?;
    println!("ready");
    let error = loop {
        if let Err(error) = exchange(&comm, &mut input, 0) {
            break error;
        }
    };
    assert!(survives, "{error}");
    let text = error.to_string();
    assert!(text.contains("rank 1") || text.contains("peer=1"), "{text}");
    // The failure unmaps what was the peer's, and the own memory stays.
    until(|| comm.mem_stats().mapped_regions == 0);
    input.as_mut_slice::<u32>()?.fill(1);
    drop(comm);
    input.as_mut_slice::<u32>()?.fill(2);
    Ok(())
}

/// The others give up while one rank is stopped, and are gone when it goes on.
fn stopped(comm: &Communicator) -> Result<()> {
    let mut tensor = zeros(comm, 1_000_000)?;
    comm.barrier()?;
    println!("ready");
    let error = loop {
        if let Err(error) = comm.all_reduce(tensor.as_mut_slice::<u32>()?, ReduceOp::Max) {
            break error;
        }
    };
    let text = error.to_string();
    assert!(
        text.contains("rank 0 waited") && text.contains("all_reduce"),
        "{text}"
    );
    assert_eq!(error.kind(), ErrorKind::Timeout, "{text}");
    Ok(())
}

/// Ranks of one process over shared memory map each other's memory as processes do.
fn threads() -> Result<()> {
    let only_shm = |builder: comm_api::Builder| builder.only_transports(vec!["shm".to_owned()]);
    let comms = comm_api::init_all_with(2, only_shm)?;
    thread::scope(|scope| {
        let running: Vec<_> = comms
            .iter()
            .map(|comm| {
                scope.spawn(move || {
                    let mut tensor = zeros(comm, 100_000)?;
                    comm.barrier()?;
                    exchange(comm, &mut tensor, 0)
                })
            })
            .collect();
        for rank in running {
            assert!(rank.join().expect("a rank panicked")?);
        }
        Ok(())
    })
}
