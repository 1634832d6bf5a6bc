//! Workers of programs that are started apart: this test program starts itself as workers.

mod process_support;

use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use comm_api::{ErrorKind, Result, Tensor, Worker};
use libtest_mimic::{Arguments, Failed, Trial};

/// Names the part that a worker plays.
const PART: &str = "COMM_TEST_PART";

/// How long a worker may live.
const WATCHDOG: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if let Ok(part) = std::env::var(PART) {
        return match play(&part) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{part}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut trials = Vec::new();
    // Workers that are threads of one process are no processes.
    // RDMA has tests of its own, on machines with a card.
    let transports = comm_api::compiled_transports().iter();
    for &transport in transports.filter(|name| !["p2p", "verbs"].contains(name)) {
        trials.push(Trial::test(
            format!("programs_started_apart_meet_over_{transport}"),
            move || started_apart(transport),
        ));
        trials.push(Trial::test(
            format!("a_killed_worker_is_told_to_those_that_wait_over_{transport}"),
            move || killed(transport),
        ));
        for victim_first in [true, false] {
            let first = if victim_first {
                "that_came_first"
            } else {
                "that_came_later"
            };
            trials.push(Trial::test(
                format!("a_killed_worker_{first}_comes_back_over_{transport}"),
                move || comes_back(transport, victim_first),
            ));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn tensor(seed: u64) -> Result<Tensor> {
    Tensor::from_vec((0..100_000).map(|index| index + seed).collect(), &[100_000])
}

/// What a worker does.
fn play(part: &str) -> Result<()> {
    let (group, task) = part.split_once(' ').unwrap_or((part, ""));
    let worker = Worker::from_env(group)?;
    match task {
        // Talks to both ranks of the other job.
        "server" => {
            for rank in 0..2 {
                worker.send("client", rank, &(rank, tensor(rank.into())?))?;
            }
            for rank in 0..2 {
                let sum = worker.recv::<u64>("client", rank)?.message;
                let want: u64 = tensor(rank.into())?.as_slice::<u64>()?.iter().sum();
                assert_eq!(sum, want);
            }
        }
        "client" => {
            let (rank, got) = worker.recv::<(u32, Tensor)>("server", 0)?.message;
            assert_eq!([rank], *worker.address().ranks());
            let sum: u64 = got.as_slice::<u64>()?.iter().sum();
            worker.send("server", 0, &sum)?;
        }
        "waits" => {
            send_to_victim(&worker)?;
            let error = worker.recv::<u8>("other", 0).unwrap_err();
            // Poisoned, with the cause, if the death was noticed before the receive was submitted.
            assert!(
                matches!(error.kind(), ErrorKind::PeerDied | ErrorKind::Poisoned),
                "{error}"
            );
            let text = error.to_string();
            assert!(
                text.contains("peer died") && text.contains("other:0"),
                "{text}"
            );
        }
        "survives" => {
            send_to_victim(&worker)?;
            worker.recv::<u8>("other", 0).unwrap_err();
            worker.group_with("other", 0)?.close();
            assert_eq!(worker.recv::<u32>("other", 0)?.message, 7);
            worker.send("other", 0, &8_u32)?;
        }
        // A program that knows nothing of its earlier start.
        "again" => {
            worker.send("waiter", 0, &7_u32)?;
            assert_eq!(worker.recv::<u32>("waiter", 0)?.message, 8);
        }
        "is-killed" => {
            worker.recv::<()>("waiter", 0)?;
            std::process::abort();
        }
        _ => unreachable!("no such part"),
    }
    Ok(())
}

/// What ends the victim, which may be gone before its acknowledgement is seen.
fn send_to_victim(worker: &Worker) -> Result<()> {
    match worker.send("other", 0, &()) {
        Err(error) if error.kind() != ErrorKind::PeerDied => Err(error),
        _ => Ok(()),
    }
}

fn start(part: &str, rank: u32, world_size: u32, rendezvous: &str, transport: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .env(PART, part)
        .env("COMM_RANK", rank.to_string())
        .env("COMM_WORLD_SIZE", world_size.to_string())
        .env("COMM_RENDEZVOUS", rendezvous)
        .env("COMM_TRANSPORTS", transport)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Whether the worker ended well; a stuck one is killed.
fn ended_well(child: &mut Child) -> bool {
    let deadline = Instant::now() + WATCHDOG;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if Instant::now() >= deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn free_address() -> String {
    format!("127.0.0.1:{}", process_support::free_port())
}

fn started_apart(transport: &str) -> Result<(), Failed> {
    let rendezvous = free_address();
    let mut server = start("server server", 0, 1, &rendezvous, transport);
    // The other program comes later, as a job of its own.
    thread::sleep(Duration::from_millis(100));
    let mut clients = [0, 1].map(|rank| start("client client", rank, 2, &rendezvous, transport));
    let well = clients.iter_mut().all(ended_well) & ended_well(&mut server);
    if well {
        Ok(())
    } else {
        Err("a worker failed".into())
    }
}

fn killed(transport: &str) -> Result<(), Failed> {
    let rendezvous = free_address();
    let mut dies = start("other is-killed", 0, 1, &rendezvous, transport);
    let mut waits = start("waiter waits", 0, 1, &rendezvous, transport);
    let well = ended_well(&mut waits);
    if ended_well(&mut dies) {
        return Err("the worker that was to die did not".into());
    }
    if well {
        Ok(())
    } else {
        Err("the survivor did not get the right error".into())
    }
}

/// The survivor makes the group anew, and so does the victim, once it is started again.
fn comes_back(transport: &str, victim_first: bool) -> Result<(), Failed> {
    let rendezvous = free_address();
    let start = |part: &str| {
        let child = start(part, 0, 1, &rendezvous, transport);
        // Who comes first serves the rendezvous.
        thread::sleep(Duration::from_millis(100));
        child
    };
    let (mut dies, mut survives);
    if victim_first {
        dies = start("other is-killed");
        survives = start("waiter survives");
    } else {
        survives = start("waiter survives");
        dies = start("other is-killed");
    }
    if ended_well(&mut dies) {
        return Err("the worker that was to die did not".into());
    }
    let mut again = start("other again");
    let well = ended_well(&mut again) & ended_well(&mut survives);
    if well {
        Ok(())
    } else {
        Err("the worker did not come back".into())
    }
}
