//! Collectives on memory that peers read directly, mixed with memory that they do not: ranks are
//! processes, this program again.
//!
//! Every rank draws the same calls, and kinds and places of buffers of its own.

mod process_support;

use std::process::{Child, ExitCode};
use std::time::Duration;

use comm_api::{
    Algorithm, Communicator, DType, Element, ErrorKind, OperationKind, ReduceOp, Request, Result,
    TensorMut,
};
use libtest_mimic::{Arguments, Failed, Trial};
use process_support::{Job, all_name, end, kill_last, play_if_worker, until_ready};

/// Draws of a worker in a random sequence.
const SEED: &str = "COMM_TEST_SEED";
const CALLS: usize = 150;
/// Elements that a buffer may begin behind the start of its allocation.
const MOST_OFFSET: usize = 5;
/// Blocks around the sizes at which ways change: none, one, odd ones, steps, and beyond all limits.
const COUNTS: [usize; 9] = [0, 1, 13, 4_099, 16_384, 65_537, 131_072, 200_003, 600_011];

fn main() -> ExitCode {
    let play = |scenario: &str| {
        let comm = Communicator::from_env()?;
        match scenario {
            "random" => random_sequence(&comm),
            "direct" => direct(&comm),
            "aborted" => aborted(&comm),
            _ => endless(&comm),
        }
    };
    if let Some(code) = play_if_worker(play) {
        return code;
    }
    let mut trials = Vec::new();
    if comm_api::compiled_transports().contains(&"shm") {
        for ranks in [2, 3, 5] {
            for pull in ["0", "1"] {
                trials.push(Trial::test(
                    format!("{ranks}_ranks_get_right_results_in_any_sequence_with_pull_{pull}"),
                    move || all_right("random", ranks, pull),
                ));
            }
        }
        for ranks in [2, 4] {
            trials.push(Trial::test(
                format!("{ranks}_ranks_reduce_from_mapped_memory_and_from_nothing_else"),
                move || all_right("direct", ranks, "0"),
            ));
        }
        trials.extend([
            Trial::test("what_was_taken_back_by_an_abort_is_in_no_result", || {
                all_right("aborted", 3, "0")
            }),
            Trial::test("a_process_that_dies_while_it_is_read_is_named", killed),
        ]);
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Numbers that look random (the finalizer of SplitMix64, Steele, Lea and Flood 2014).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Element types with values of which all sums and maxima are exact.
trait Exact: Element + PartialEq + std::fmt::Debug {
    fn of(value: u8) -> Self;
}

macro_rules! exact {
    ($($type:ty),*) => {
        $(impl Exact for $type {
            fn of(value: u8) -> Self {
                value.into()
            }
        })*
    };
}
exact!(u8, u32, i64, f32, f64, half::bf16);

/// What element `at` of a rank's buffer holds before a call.
fn value(rank: u32, call: usize, at: usize) -> u8 {
    ((at * 7 + call * 3) as u32 + rank * 5 + (at as u32 >> 8)) as u8 % 23
}

/// Two buffers of a rank, in memory of the kinds that it drew, with room for the largest call.
struct Memory {
    input: TensorMut,
    output: TensorMut,
}

fn random_sequence(comm: &Communicator) -> Result<()> {
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(0);
    let n = comm.world_size() as usize;
    let largest = COUNTS[COUNTS.len() - 1] / n * n + MOST_OFFSET + n;
    let bytes = largest * 8;
    // Two of each kind, in which all calls work.
    let mut mapped = Memory {
        input: comm.mem_alloc(DType::U8, &[bytes])?,
        output: comm.mem_alloc(DType::U8, &[bytes])?,
    };
    let mut plain = Memory {
        input: TensorMut::zeros(DType::U8, &[bytes])?,
        output: TensorMut::zeros(DType::U8, &[bytes])?,
    };
    let mut common = Draw(seed);
    let mut own = Draw(seed ^ (u64::from(comm.rank()) << 32) ^ 0x5555);
    for call in 0..CALLS {
        let dtype = common.below(6);
        let case = Case {
            kind: common.below(7),
            count: COUNTS[common.below(COUNTS.len())] / if common.below(2) == 0 { 1 } else { n },
            root: common.below(n) as u32,
            call,
            in_place: own.below(2) == 0,
            offset: own.below(MOST_OFFSET + 1),
        };
        // Mostly the kind that is tested.
        let input = if own.below(4) > 0 {
            &mut mapped.input
        } else {
            &mut plain.input
        };
        let output = if own.below(4) > 0 {
            &mut mapped.output
        } else {
            &mut plain.output
        };
        let (input, output) = (input.as_mut_slice::<u8>()?, output.as_mut_slice::<u8>()?);
        match dtype {
            0 => case.check::<u8>(comm, input, output)?,
            1 => case.check::<u32>(comm, input, output)?,
            2 => case.check::<i64>(comm, input, output)?,
            3 => case.check::<f32>(comm, input, output)?,
            4 => case.check::<f64>(comm, input, output)?,
            _ => case.check::<half::bf16>(comm, input, output)?,
        }
    }
    assert!(comm.mem_stats().read_bytes > 0, "nothing was read directly");
    comm.barrier()
}

#[derive(Clone, Copy, Debug)]
struct Case {
    kind: usize,
    /// Of a block, where there is one for each rank.
    count: usize,
    root: u32,
    call: usize,
    in_place: bool,
    offset: usize,
}

impl Case {
    /// Makes the call on parts of the two buffers and checks what it leaves.
    fn check<T: Exact>(
        self,
        comm: &Communicator,
        input: &mut [u8],
        output: &mut [u8],
    ) -> Result<()> {
        let n = comm.world_size();
        // Blocks of as many elements in all as the buffers hold.
        let count = if (2..=4).contains(&self.kind) {
            self.count / n as usize
        } else {
            self.count
        };
        let whole = count * n as usize;
        let [input, output] = [input, output].map(|bytes| typed::<T>(bytes, self.offset));
        let (rank, call) = (comm.rank(), self.call);
        let own = rank as usize * count;
        let of = |rank, at| T::of(value(rank, call, at));
        let sum = |at| T::of((0..n).map(|rank| value(rank, call, at)).sum());
        let max = |at| T::of((0..n).map(|rank| value(rank, call, at)).max().unwrap_or(0));
        let fill = |buffer: &mut [T], rank| {
            for (at, element) in buffer.iter_mut().enumerate() {
                *element = of(rank, at);
            }
        };
        let place = if self.in_place {
            &mut *output
        } else {
            &mut *input
        };
        let what = format!("rank {rank} of {n}, {} of {}: {self:?}", T::DTYPE, count);
        match self.kind {
            0 | 1 => {
                let (op, expected): (_, &dyn Fn(usize) -> T) = if self.kind == 0 {
                    (ReduceOp::Sum, &sum)
                } else {
                    (ReduceOp::Max, &max)
                };
                fill(&mut place[..count], rank);
                if self.in_place {
                    comm.all_reduce(&mut output[..count], op)?;
                } else {
                    comm.all_reduce_into(&input[..count], &mut output[..count], op)?;
                    // From now on it is the caller's.
                    input[..count].fill(T::of(77));
                }
                assert!((0..count).all(|at| output[at] == expected(at)), "{what}");
            }
            2 if self.in_place => {
                fill(&mut output[own..own + count], rank);
                comm.all_gather(&mut output[..whole])?;
                let right = |at: usize| output[at] == of((at / count) as u32, at % count);
                assert!((0..whole).all(right), "{what}");
            }
            2 => {
                fill(&mut input[..count], rank);
                comm.all_gather_into(&input[..count], &mut output[..whole])?;
                input[..count].fill(T::of(77));
                let right = |at: usize| output[at] == of((at / count) as u32, at % count);
                assert!((0..whole).all(right), "{what}");
            }
            3 => {
                fill(&mut place[..whole], rank);
                let result = if self.in_place {
                    comm.reduce_scatter(&mut output[..whole], ReduceOp::Sum)?
                } else {
                    comm.reduce_scatter_into(&input[..whole], &mut output[..count], ReduceOp::Sum)?;
                    input[..whole].fill(T::of(77));
                    &mut output[..count]
                };
                assert!((0..count).all(|at| result[at] == sum(own + at)), "{what}");
            }
            4 => {
                fill(&mut place[..whole], rank);
                if self.in_place {
                    comm.all_to_all(&mut output[..whole])?;
                } else {
                    comm.all_to_all_into(&input[..whole], &mut output[..whole])?;
                    input[..whole].fill(T::of(77));
                }
                let right = |at: usize| output[at] == of((at / count) as u32, own + at % count);
                assert!((0..whole).all(right), "{what}");
            }
            5 => {
                fill(&mut output[..count], rank);
                comm.broadcast(&mut output[..count], self.root)?;
                assert!(
                    (0..count).all(|at| output[at] == of(self.root, at)),
                    "{what}"
                );
            }
            _ => {
                fill(&mut place[..count], rank);
                if self.in_place {
                    comm.reduce(&mut output[..count], ReduceOp::Sum, self.root)?;
                } else {
                    let result = (rank == self.root).then_some(&mut output[..count]);
                    comm.reduce_into(&input[..count], result, ReduceOp::Sum, self.root)?;
                    input[..count].fill(T::of(77));
                }
                let right = |at: usize| output[at] == sum(at);
                assert!(rank != self.root || (0..count).all(right), "{what}");
            }
        }
        Ok(())
    }
}

/// The bytes of a buffer as elements, from a few elements behind its start.
fn typed<T: Element>(bytes: &mut [u8], offset: usize) -> &mut [T] {
    let count = bytes.len() / size_of::<T>();
    // SAFETY: allocations are aligned for every element type, all of whose values are valid, and the
    // elements lie in the bytes.
    let all = unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<T>(), count) };
    &mut all[offset..]
}

/// An all-reduce of which nobody refuses anything, in place and beside.
fn direct(comm: &Communicator) -> Result<()> {
    let (n, count) = (comm.world_size(), 500_009);
    let plan = comm.plan(&Request {
        kind: OperationKind::AllReduce,
        dtype: Some(DType::F32),
        op: Some(ReduceOp::Sum),
        root: 0,
        count,
        in_place: true,
    })?;
    assert_eq!(plan.algorithm(), Algorithm::DirectMapped, "{plan}");
    let mut input = comm.mem_alloc(DType::F32, &[count])?;
    let mut output = comm.mem_alloc(DType::F32, &[count])?;
    let before = comm.mem_stats().read_bytes;
    let (input, output) = (input.as_mut_slice::<f32>()?, output.as_mut_slice::<f32>()?);
    for round in 0..4 {
        let value = |rank: u32, at: usize| (at as u32 % 1000 + rank + round) as f32;
        for (at, element) in input.iter_mut().enumerate() {
            *element = value(comm.rank(), at);
        }
        if (comm.rank() + round).is_multiple_of(2) {
            output.copy_from_slice(input);
            comm.all_reduce(output, ReduceOp::Sum)?;
        } else {
            comm.all_reduce_into(input, output, ReduceOp::Sum)?;
        }
        let sum = |at| (0..n).map(|rank| value(rank, at)).sum::<f32>();
        assert!((0..count).all(|at| output[at] == sum(at)));
    }
    // The own share of n - 1 inputs and the others' shares of the result, give or take an alignment.
    let read = comm.mem_stats().read_bytes - before;
    let least = u64::from(n - 1) * 2 * (count as u64 * 4 / u64::from(n)) * 4;
    assert!(read + 4096 >= least, "{read} bytes of {least}");
    comm.barrier()
}

/// One rank aborts in the middle, and all of them write to their memory as soon as they have it back.
fn aborted(comm: &Communicator) -> Result<()> {
    let count = 3_000_001;
    let mut memory = comm.mem_alloc(DType::U32, &[count])?;
    let mut result = comm.mem_alloc(DType::U32, &[count])?;
    let (input, output) = (memory.as_mut_slice::<u32>()?, result.as_mut_slice::<u32>()?);
    comm.barrier()?;
    let rank = comm.rank();
    let error = std::thread::scope(|scope| {
        if rank == 1 {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(60));
                comm.abort();
            });
        }
        for round in 0.. {
            input.fill(rank + round);
            if let Err(error) = comm.all_reduce_into(input, output, ReduceOp::Max) {
                input.fill(u32::MAX);
                return error;
            }
            let expected = comm.world_size() - 1 + round;
            assert!(
                output.iter().all(|value| *value == expected),
                "round {round}"
            );
        }
        unreachable!("rounds do not end")
    });
    // Between two calls it is the next one that fails.
    let kinds = [ErrorKind::Aborted, ErrorKind::Poisoned];
    assert!(kinds.contains(&error.kind()), "{error}");
    // The others may be reading yet, and must not get a result out of what is there now.
    std::thread::sleep(Duration::from_millis(100));
    Ok(())
}

fn endless(comm: &Communicator) -> Result<()> {
    let mut memory = comm.mem_alloc(DType::U32, &[1_000_003])?;
    let buffer = memory.as_mut_slice::<u32>()?;
    comm.barrier()?;
    println!("ready");
    loop {
        comm.all_reduce(buffer, ReduceOp::Max)?;
    }
}

/// Starts the workers of a job.
fn start(scenario: &'static str, world_size: u32, pull: &str) -> Vec<Child> {
    let seed = world_size * 10 + u32::from(pull == "1");
    let job = Job::new(scenario)
        .set(SEED, seed.to_string())
        .set("COMM_TRANSPORTS", "shm")
        .set("COMM_SHM_PULL", pull);
    (0..world_size)
        .map(|rank| job.start(rank, world_size, &[]))
        .collect()
}

fn all_right(scenario: &'static str, world_size: u32, pull: &str) -> Result<(), Failed> {
    process_support::all_right(&end(start(scenario, world_size, pull))?)
}

fn killed() -> Result<(), Failed> {
    let mut workers = start("endless", 3, "0");
    until_ready(&mut workers)?;
    all_name(&end(kill_last(workers)?)?, 2)
}
