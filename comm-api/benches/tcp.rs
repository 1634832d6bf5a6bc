//! TCP against bare sockets: what the library adds to what the system takes.
//!
//! Two threads, pinned to two CPUs, play ping-pong and stream in turns over
//!
//! * `bare`: one connection of bare non-blocking sockets,
//! * `one way`: two of them, one for each direction, as the edges of the library are: then the
//!   kernel's acknowledgements cannot ride on the answers,
//! * `net`: a communicator's `net` transport.
//!
//! The batches are interleaved, so that a noisy machine disturbs all alike; look at the ratios. `COMM_NET_SOCKETS` and
//! `COMM_NET_SOCKET_BUFFER_BYTES` count. A number as argument is that of rounds (21 by default), a
//! word restricts the measurement to `ping-pong` or `stream`.
//!
//! `cargo bench -p comm-api --bench tcp`

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use comm_api::Communicator;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Round trips of one batch, beside one that brings both threads there.
const TRIPS: usize = 20;
/// Bytes of one batch of a stream.
const STREAM_BYTES: usize = 32 << 20;
const MIB: usize = 1 << 20;

/// One of two ways to move bytes.
trait Pair: Send {
    fn send(&mut self, data: &[u8]);
    fn recv(&mut self, data: &mut [u8]);
}

struct Bare {
    to: TcpStream,
    from: TcpStream,
}

impl Pair for Bare {
    fn send(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            match self.to.write(data) {
                Ok(bytes) => data = &data[bytes..],
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    fn recv(&mut self, mut data: &mut [u8]) {
        while !data.is_empty() {
            match self.from.read(data) {
                Ok(0) => panic!("the peer closed the connection"),
                Ok(bytes) => data = &mut data[bytes..],
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }
}

struct Ours(Communicator);

impl Pair for Ours {
    fn send(&mut self, data: &[u8]) {
        self.0.send(data, 1 - self.0.rank()).unwrap();
    }

    fn recv(&mut self, data: &mut [u8]) {
        self.0.recv(data, 1 - self.0.rank()).unwrap();
    }
}

fn connection() -> [TcpStream; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    for stream in [&one, &other] {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    [one, other]
}

fn bare() -> [Bare; 2] {
    connection().map(|stream| Bare {
        to: stream.try_clone().unwrap(),
        from: stream,
    })
}

fn one_way() -> [Bare; 2] {
    let ([there, arrives], [back, returns]) = (connection(), connection());
    let one = Bare {
        to: there,
        from: returns,
    };
    let other = Bare {
        to: back,
        from: arrives,
    };
    [one, other]
}

/// A batch on the first (`leads`) or the second thread.
fn ping_pong(pair: &mut dyn Pair, leads: bool, buffer: &mut [u8]) -> Duration {
    let mut start = Instant::now();
    for trip in 0..=TRIPS {
        if trip == 1 {
            start = Instant::now();
        }
        if leads {
            pair.send(buffer);
        }
        pair.recv(buffer);
        if !leads {
            pair.send(buffer);
        }
    }
    start.elapsed()
}

fn stream(pair: &mut dyn Pair, leads: bool, buffer: &mut [u8]) -> Duration {
    // Begins when the receiver is there.
    let mut done = [0];
    if leads {
        pair.recv(&mut done);
    } else {
        pair.send(&done);
    }
    let start = Instant::now();
    for _ in 0..STREAM_BYTES / buffer.len() {
        if leads {
            pair.send(buffer);
        } else {
            pair.recv(buffer);
        }
    }
    // The sender is done when the receiver is.
    if leads {
        pair.recv(&mut done);
    } else {
        pair.send(&done);
    }
    black_box(&buffer);
    start.elapsed()
}

#[derive(Clone, Copy)]
enum Batch {
    PingPong(usize),
    Stream(usize),
}

impl Batch {
    /// Batches in each round of the measurement.
    const fn repeats(self) -> usize {
        match self {
            Self::PingPong(_) => 20,
            Self::Stream(_) => 1,
        }
    }
}

/// Runs all batches on one of the threads; the times of the first thread by batch and pair.
fn run(
    mut pairs: [Box<dyn Pair>; 3],
    leads: bool,
    rounds: usize,
    batches: &[Batch],
    barrier: &Barrier,
) -> Vec<[Vec<Duration>; 3]> {
    let mut cpus = CpuSet::new();
    cpus.set(usize::from(!leads));
    if let Err(error) = sched_setaffinity(None, &cpus) {
        println!("not pinned: {error}");
    }
    let mut buffer = vec![1; 16 * MIB];
    let mut times = vec![[const { Vec::new() }; 3]; batches.len()];
    for (number, batch) in batches.iter().enumerate() {
        for _ in 0..rounds * batch.repeats() {
            for (pair, times) in pairs.iter_mut().zip(&mut times[number]) {
                barrier.wait();
                times.push(match *batch {
                    Batch::PingPong(bytes) => ping_pong(&mut **pair, leads, &mut buffer[..bytes]),
                    Batch::Stream(bytes) => stream(&mut **pair, leads, &mut buffer[..bytes]),
                });
            }
        }
    }
    times
}

fn quantile(times: &mut [Duration], part: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * part / 100].as_secs_f64()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = arguments
        .iter()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(21);
    let mut batches = vec![
        Batch::PingPong(8),
        Batch::PingPong(4096),
        Batch::PingPong(65536),
        Batch::Stream(64 << 10),
        Batch::Stream(MIB),
        Batch::Stream(4 * MIB),
        Batch::Stream(16 * MIB),
    ];
    batches.retain(|batch| {
        let word = match batch {
            Batch::PingPong(_) => "ping-pong",
            Batch::Stream(_) => "stream",
        };
        let words = ["ping-pong", "stream"];
        arguments.iter().any(|argument| argument == word)
            || !arguments
                .iter()
                .any(|argument| words.contains(&&**argument))
    });
    let comms =
        comm_api::init_all_with(2, |builder| builder.only_transports(vec!["net".to_owned()]))
            .unwrap();
    let mut ends = bare()
        .into_iter()
        .zip(one_way())
        .zip(comms)
        .map(|((bare, one_way), comm)| {
            let pairs: [Box<dyn Pair>; 3] =
                [Box::new(bare), Box::new(one_way), Box::new(Ours(comm))];
            pairs
        });
    let (first, second) = (ends.next().unwrap(), ends.next().unwrap());
    let barrier = Barrier::new(2);
    let mut times = std::thread::scope(|scope| {
        scope.spawn(|| run(second, false, rounds, &batches, &barrier));
        let first = scope.spawn(|| run(first, true, rounds, &batches, &barrier));
        first.join().unwrap()
    });
    println!("{:32}best of each, and median in brackets", "");
    println!(
        "{:18} {:>16} {:>16} {:>16}   net to bare   to one way",
        "", "bare", "one way", "net"
    );
    for (batch, times) in batches.iter().zip(&mut times) {
        let best = times.each_mut().map(|times| quantile(times, 0));
        let usual = times.each_mut().map(|times| quantile(times, 50));
        let (name, unit) = match batch {
            Batch::PingPong(bytes) => (format!("ping-pong {bytes} B"), "us"),
            Batch::Stream(bytes) => (format!("stream {} KiB", bytes >> 10), "GB/s"),
        };
        let show = |seconds: f64| match batch {
            Batch::PingPong(_) => seconds / TRIPS as f64 / 2.0 * 1e6,
            Batch::Stream(_) => STREAM_BYTES as f64 / seconds / 1e9,
        };
        print!("{name:18}");
        for (best, usual) in best.iter().zip(&usual) {
            print!(" {:7.2} ({:6.2})", show(*best), show(*usual));
        }
        for other in 0..2 {
            let ratio = |times: &[f64; 3]| times[2] / times[other];
            print!("   {:.2} ({:.2})", ratio(&best), ratio(&usual));
        }
        println!("  {unit}");
    }
}
