//! Calls on the small paths, for callgrind to count their instructions.
//!
//! `cargo xtask instructions` runs this under valgrind, once for each path, and counts what happens
//! below the function [`counted`] alone. Without valgrind it only makes the calls.
//!
//! Usage: `instructions send_recv|broadcast|all_reduce|all_gather CALLS`.
//!
//! `send_recv` sends to a peer whose slots are free and receives what was sent, on one thread, so it
//! never waits; `broadcast` is the call of the root and then that of the other rank, likewise. Before
//! each `all_reduce` or `all_gather` the thread sleeps until its peer, a second thread, has most
//! likely sent its part and gone to sleep itself, which makes waking it a part of the count; the
//! shortest call is one in which it had.

use std::hint::black_box;
use std::time::Duration;

use comm_api::{Communicator, Error, ErrorKind, ReduceOp, Result};

/// Calls before the counted ones: edges connect, plans are made, pages touched.
const WARM_UP: usize = 20;
/// Longer than a waiting rank spins and yields, also under valgrind.
const UNTIL_THE_PEER_SLEEPS: Duration = Duration::from_millis(5);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, calls) = match arguments.as_slice() {
        [path, calls, ..] => (path.as_str(), calls.parse().unwrap_or(1)),
        // As `cargo bench` calls it: only to see that it works.
        _ => ("send_recv", 1),
    };
    let comms =
        comm_api::init_all_with(2, |builder| builder.only_transports(vec!["shm".to_owned()]))?;
    match path {
        "send_recv" => send_recv(&comms, calls),
        "broadcast" => broadcast(&comms, calls),
        "all_reduce" => all_reduce(&comms, calls),
        "all_gather" => all_gather(&comms, calls),
        _ => Err(Error::new(
            ErrorKind::InvalidArgument,
            "there is no such path; use send_recv, broadcast, all_reduce or all_gather",
        )),
    }
}

/// What is counted: everything below this function.
#[unsafe(no_mangle)]
#[inline(never)]
fn counted(call: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    call()
}

fn send_recv(comms: &[Communicator], calls: usize) -> Result<()> {
    let sent = [1.0_f64];
    let mut received = [0.0_f64];
    let mut exchange = || {
        comms[0].send(black_box(&sent), 1)?;
        comms[1].recv(black_box(&mut received), 0)
    };
    // The receiver asks for its edge by receiving, so the first message needs both at once.
    for _ in 0..WARM_UP {
        exchange()?;
    }
    for _ in 0..calls {
        counted(&mut exchange)?;
    }
    Ok(())
}

fn broadcast(comms: &[Communicator], calls: usize) -> Result<()> {
    let mut sent = [1.0_f64];
    let mut received = [0.0_f64];
    // Edges connect only while both ranks are in the call.
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| comms[1].broadcast(black_box(&mut received), 0));
        comms[0].broadcast(black_box(&mut sent), 0)?;
        joined(peer.join())
    })?;
    let mut both = || {
        comms[0].broadcast(black_box(&mut sent), 0)?;
        comms[1].broadcast(black_box(&mut received), 0)
    };
    for _ in 0..WARM_UP {
        both()?;
    }
    for _ in 0..calls {
        counted(&mut both)?;
    }
    Ok(())
}

fn all_reduce(comms: &[Communicator], calls: usize) -> Result<()> {
    against_a_sleeper(comms, calls, |comm| {
        let mut buffer = [0.0_f64];
        move || comm.all_reduce(black_box(&mut buffer), ReduceOp::Sum)
    })
}

fn all_gather(comms: &[Communicator], calls: usize) -> Result<()> {
    against_a_sleeper(comms, calls, |comm| {
        let mut buffer = [0.0_f64; 2];
        move || comm.all_gather(black_box(&mut buffer))
    })
}

/// Counts the calls of rank 0, whose peer is asleep in its own call each time.
fn against_a_sleeper<'a, C: FnMut() -> Result<()>>(
    comms: &'a [Communicator],
    calls: usize,
    call: impl Fn(&'a Communicator) -> C + Sync,
) -> Result<()> {
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let mut call = call(&comms[1]);
            (0..WARM_UP + calls).try_for_each(|_| call())
        });
        let mut call = call(&comms[0]);
        for _ in 0..WARM_UP {
            call()?;
        }
        for _ in 0..calls {
            std::thread::sleep(UNTIL_THE_PEER_SLEEPS);
            counted(&mut call)?;
        }
        joined(peer.join())
    })
}

/// The result of a thread.
fn joined(result: std::thread::Result<Result<()>>) -> Result<()> {
    result.map_err(|_| Error::new(ErrorKind::Internal, "the peer panicked"))?
}
