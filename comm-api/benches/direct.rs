//! All-reduce and messages between threads of one process against what the memory allows.
//!
//! `cargo bench -p comm-api --bench direct [BYTES]`. The bound of the all-reduce is a plain loop of
//! as many threads that reads each input and writes each output once; that of a message is one
//! thread's copy. Bound and library take turns, so the ratios hold whatever else the machine does.

use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use comm_api::{Communicator, ReduceOp, Result};

const ROUNDS: usize = 60;
const RANKS: usize = 2;

fn main() -> Result<()> {
    let bytes = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(16 << 20);
    let count = bytes / size_of::<f32>();
    for transport in comm_api::compiled_transports() {
        let comms = comm_api::init_all_with(RANKS as u32, |builder| {
            builder.only_transports(vec![(*transport).to_owned()])
        })?;
        let times = all_reduce(&comms, count);
        report(&format!("all_reduce {bytes} B over {transport}"), times);
        let times = message(&comms, bytes);
        report(&format!("message {bytes} B over {transport}"), times);
    }
    Ok(())
}

/// Prints the first decile and the median; on a busy machine only the former means something.
fn report(what: &str, [mut bound, mut ours]: Times) {
    bound.sort_unstable();
    ours.sort_unstable();
    for (name, at) in [("p10", ROUNDS / 10), ("p50", ROUNDS / 2)] {
        let (bound, ours) = (bound[at], ours[at]);
        println!(
            "{what} {name}: bound {bound:>9.1?}, library {ours:>9.1?}, ratio {:.2}",
            ours.as_secs_f64() / bound.as_secs_f64()
        );
    }
}

/// Of the bound and of the library, by round.
type Times = [Vec<Duration>; 2];

/// The plain loop and `all_reduce`, both in place.
fn all_reduce(comms: &[Communicator], count: usize) -> Times {
    let mut buffers = [vec![1_f32; count], vec![1_f32; count]];
    let half = count / 2;
    let (mut bound, mut ours) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let [first, second] = &mut buffers;
        first.fill(1.0);
        second.fill(1.0);
        let (a, b) = (first.split_at_mut(half), second.split_at_mut(half));
        let time = in_parallel([(a.0, b.0), (a.1, b.1)], |_, (a, b)| {
            for (a, b) in a.iter_mut().zip(b.iter_mut()) {
                let sum = *a + *b;
                (*a, *b) = (sum, sum);
            }
        });
        let [first, second] = &mut buffers;
        let library = in_parallel([first, second], |rank, buffer| {
            let result = comms[rank].all_reduce(buffer, ReduceOp::Sum);
            result.expect("all_reduce failed");
        });
        assert_eq!((buffers[0][0], buffers[1][count - 1]), (4.0, 4.0));
        // The first round connects and touches the memory.
        if round > 0 {
            bound.push(time);
            ours.push(library);
        }
    }
    [bound, ours]
}

/// One thread's copy, and `send` with `recv`.
fn message(comms: &[Communicator], bytes: usize) -> Times {
    let source = vec![1_u8; bytes];
    let mut target = vec![0_u8; bytes];
    let (mut bound, mut ours) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let time = in_parallel([Some(&mut target), None], |_, target| {
            if let Some(target) = target {
                target.copy_from_slice(&source);
            }
        });
        let library = in_parallel([None, Some(&mut target)], |rank, target| {
            let result = match target {
                Some(target) => comms[rank].recv(target, 0),
                None => comms[rank].send(&source, 1),
            };
            result.expect("the message failed");
        });
        if round > 0 {
            bound.push(time);
            ours.push(library);
        }
    }
    [bound, ours]
}

/// Runs `body` on a thread per element; the time from the first start to the last end.
fn in_parallel<T: Send>(parts: [T; RANKS], body: impl Fn(usize, T) + Sync) -> Duration {
    let (start, spans) = (Barrier::new(RANKS), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for (rank, part) in parts.into_iter().enumerate() {
            let (start, spans, body) = (&start, &spans, &body);
            scope.spawn(move || {
                start.wait();
                let began = Instant::now();
                body(rank, part);
                let span = (began, Instant::now());
                spans.lock().expect("no thread panicked").push(span);
            });
        }
    });
    let spans = spans.into_inner().expect("no thread panicked");
    let began = spans.iter().map(|(began, _)| *began).min();
    let ended = spans.iter().map(|(_, ended)| *ended).max();
    ended
        .zip(began)
        .map_or(Duration::ZERO, |(end, begin)| end - begin)
}
