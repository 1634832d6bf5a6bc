//! Frames between two threads, one way, over every transport: time of a frame from the call until
//! it is acknowledged, the receiver waiting for it.
//!
//! `cargo bench -p comm-api --bench frames [TRANSPORT [SIZE]]`, with the sizes `64`, `49` (KB), `1`
//! (MB) and `large`. Small frames are timed in batches; a large
//! segment takes turns with a raw message of the same length, so their ratio holds whatever else
//! the machine does.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comm_api::{
    Communicator, DType, Frame, FrameHead, FrameOptions, FrameRef, Result, Tensor, TensorMut,
};

const BATCHES: usize = 60;
const LARGE_BYTES: usize = 64 << 20;

fn main() -> Result<()> {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'));
    let (wanted, size) = (arguments.next(), arguments.next());
    for transport in comm_api::compiled_transports() {
        if wanted.as_deref().is_some_and(|wanted| wanted != *transport) {
            continue;
        }
        let comms = comm_api::init_all_with(2, |builder| {
            builder.only_transports(vec![(*transport).to_owned()])
        })?;
        // On a thread of its own: what it starts later is not bound with it.
        std::thread::scope(|scope| {
            scope.spawn(|| measure(&comms, transport, size.as_deref()));
        });
    }
    Ok(())
}

fn measure(comms: &[Communicator], transport: &str, size: Option<&str>) {
    pin(0);
    let is_wanted = |name: &str| size.is_none_or(|size| name.split(' ').any(|word| word == size));
    for (name, sizes) in [
        ("64 B", &[64][..]),
        ("49 KB in 12", &[4096; 12]),
        ("1 MB", &[1 << 20]),
    ] {
        if !is_wanted(name) {
            continue;
        }
        for in_flight in [1, 8] {
            let times = small(comms, sizes, in_flight);
            report(&format!("{transport} {name}, {in_flight} in flight"), times);
        }
    }
    if is_wanted("64 B") {
        let answered = messages(comms);
        report(&format!("{transport} 64 B there and 1 B back"), answered);
    }
    if is_wanted("large") {
        large(comms, transport);
    }
}

/// Prints the first decile and the median; on a busy machine only the former means something.
fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (p10, p50) = (times[times.len() / 10], times[times.len() / 2]);
    println!("{what}: p10 {p10:>9.2?}, p50 {p50:>9.2?}");
}

fn segments(sizes: &[usize]) -> Vec<Tensor> {
    let zeros = |bytes: &usize| Tensor::zeros(DType::U8, &[*bytes]).expect("no memory");
    sizes.iter().map(zeros).collect()
}

/// Memory that goes around between receives.
type Pool = Arc<Mutex<Vec<Vec<TensorMut>>>>;

fn open(pool: &Pool) -> impl FnOnce(&FrameHead<'_>) -> Result<Vec<TensorMut>> + Send + 'static {
    let pool = Arc::clone(pool);
    move |head| {
        if let Some(ready) = pool.lock().expect("a thread panicked").pop() {
            return Ok(ready);
        }
        let zeros = |bytes: &u64| TensorMut::zeros(DType::U8, &[*bytes as usize]);
        head.segment_bytes.iter().map(zeros).collect()
    }
}

/// The time of one frame, by batch.
fn small(comms: &[Communicator], sizes: &[usize], in_flight: usize) -> Vec<Duration> {
    let bytes: usize = sizes.iter().sum();
    let per_batch = (4_usize << 20)
        .div_ceil(bytes)
        .clamp(16, 2000)
        .next_multiple_of(in_flight);
    let options = FrameOptions::new();
    let segments = segments(sizes);
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            let pool = Pool::default();
            for _ in 0..BATCHES * per_batch {
                let arrived = comms[1].recv_frame_blocking(0, open(&pool), &options);
                let arrived = arrived.expect("receiving failed");
                pool.lock()
                    .expect("a thread panicked")
                    .push(arrived.segments);
            }
        });
        let frame = FrameRef {
            tag: 1,
            header: &[7; 16],
            segments: &segments,
        };
        for _ in 0..BATCHES {
            let began = Instant::now();
            if in_flight == 1 {
                for _ in 0..per_batch {
                    let sent = comms[0].send_frame_blocking(1, frame, &options);
                    sent.expect("sending failed");
                }
            } else {
                for _ in 0..per_batch / in_flight {
                    let sends: Vec<_> = (0..in_flight)
                        .map(|_| {
                            let frame = Frame {
                                tag: 1,
                                header: vec![7; 16].into(),
                                segments: segments.clone(),
                            };
                            comms[0]
                                .send_frame(1, frame, &options)
                                .expect("sending failed")
                        })
                        .collect();
                    for send in sends {
                        send.wait().expect("sending failed");
                    }
                }
            }
            times.push(began.elapsed() / per_batch as u32);
        }
    });
    times.remove(0);
    times
}

/// For comparison: a message and an answer, without anything that frames bring.
fn messages(comms: &[Communicator]) -> Vec<Duration> {
    const PER_BATCH: usize = 2000;
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for _ in 0..BATCHES * PER_BATCH {
                comms[1].recv(&mut [0_u8; 64], 0).expect("receiving failed");
                comms[1].send(&[1_u8], 0).expect("sending failed");
            }
        });
        for _ in 0..BATCHES {
            let began = Instant::now();
            for _ in 0..PER_BATCH {
                comms[0].send(&[1_u8; 64], 1).expect("sending failed");
                comms[0].recv(&mut [0_u8], 1).expect("receiving failed");
            }
            times.push(began.elapsed() / PER_BATCH as u32);
        }
    });
    times.remove(0);
    times
}

/// Binds the calling thread to a CPU, where that is possible.
fn pin(cpu: usize) {
    #[cfg(target_os = "linux")]
    {
        let mut cpus = rustix::thread::CpuSet::new();
        cpus.set(cpu);
        // Where it is refused, the times are noisier.
        let _ = rustix::thread::sched_setaffinity(None, &cpus);
    }
}

/// A frame of one large segment and a raw message of the same length, taking turns.
fn large(comms: &[Communicator], transport: &str) {
    let options = FrameOptions::new();
    let segments = segments(&[LARGE_BYTES]);
    let (mut frames, mut messages) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            let pool = Pool::default();
            let mut raw = vec![1_u8; LARGE_BYTES];
            for _ in 0..BATCHES {
                let arrived = comms[1].recv_frame_blocking(0, open(&pool), &options);
                let arrived = arrived.expect("receiving failed");
                pool.lock()
                    .expect("a thread panicked")
                    .push(arrived.segments);
                comms[1].recv(&mut raw, 0).expect("receiving failed");
                comms[1].send(&[1_u8], 0).expect("sending failed");
            }
        });
        // Not zeros, which may be one page that is mapped many times.
        let raw = vec![1_u8; LARGE_BYTES];
        let frame = FrameRef {
            tag: 1,
            header: &[7; 16],
            segments: &segments,
        };
        for _ in 0..BATCHES {
            let began = Instant::now();
            comms[0]
                .send_frame_blocking(1, frame, &options)
                .expect("sending failed");
            frames.push(began.elapsed());
            let began = Instant::now();
            comms[0].send(&raw, 1).expect("sending failed");
            comms[0].recv(&mut [0_u8], 1).expect("receiving failed");
            messages.push(began.elapsed());
        }
    });
    frames.remove(0);
    messages.remove(0);
    report(&format!("{transport} 64 MB as a frame"), frames);
    report(&format!("{transport} 64 MB as a message"), messages);
}
