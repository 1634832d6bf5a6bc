//! What the worker processes do. They report in lines on their standard output.

use std::io::{Read, Seek, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::{ErrorKind, Result};
use comm_runtime::control::rendezvous::Visitor;
use comm_runtime::control::{
    ControlSettings, JoinOptions, LaunchEnvironment, Message, Process, ProcessOptions,
};

use crate::support::{Joined, PATIENCE, join, ranks, soon};

/// The variable that makes the test program a worker.
pub(crate) const ROLE: &str = "COMM_TEST_ROLE";

/// How long a worker waits before it looks at something else.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) fn run(role: &str) {
    match role {
        "meet" => meet(),
        "pass" => pass(),
        "fork" => fork(),
        "serve" => serve(),
        "part" => part(),
        "busy" => busy(),
        "stranger" => stranger(),
        role => panic!("no such role: {role}"),
    }
}

fn say(line: impl AsRef<str>) {
    let mut out = std::io::stdout().lock();
    // The test may have seen enough and be gone.
    let _ = writeln!(out, "{}", line.as_ref()).and_then(|()| out.flush());
}

/// Blocks until the test says so, or ends.
fn wait_for_order() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// Joins as the environment says, as `rank` if one is given.
fn join_from_environment(rank: Option<u32>) -> Result<Joined> {
    let variable = |name: &str| std::env::var(name).ok();
    let settings = ControlSettings::detect(&variable)?;
    let launch = LaunchEnvironment::detect(&variable)?;
    let process = Process::acquire(&settings.process_options())?;
    let rank = rank.unwrap_or(launch.rank);
    let address = launch.rendezvous.expect("several ranks");
    let rendezvous = address.open(&process, settings.visitor(rank))?;
    let options = JoinOptions::new(rank, launch.world_size, rendezvous)
        .secret(settings.secret)
        .insecure(settings.insecure)
        .heartbeat(settings.heartbeat)
        .deadline(Instant::now() + settings.join_timeout);
    join(&process, options)
}

/// Joins, reports a failure if one comes, and passes a barrier when told to.
fn meet() {
    let joined = match join_from_environment(None) {
        Ok(joined) => joined,
        Err(error) => return say(format!("not joined: {error}").replace('\n', " ")),
    };
    say("joined");
    let Joined {
        plane, recorded, ..
    } = joined;
    if std::env::var_os("COMM_TEST_FORK").is_some() {
        // SAFETY: the child only reads from a pipe and exits.
        if unsafe { libc::fork() } == 0 {
            wait_for_order();
            std::process::exit(0);
        }
        say("forked");
    }
    std::thread::spawn(move || {
        for error in recorded.failures {
            say(format!("failed: {error}"));
        }
    });
    wait_for_order();
    match plane.barrier(1, soon()) {
        Ok(()) => say("barrier: passed"),
        Err(error) => say(format!("barrier: {error}")),
    }
    plane.leave(PATIENCE);
}

/// Joins, and when told to leaves and ends, whether the others read the goodbye in time or not.
fn part() {
    let joined = join_from_environment(None).unwrap();
    say("joined");
    wait_for_order();
    joined.plane.leave(Duration::from_secs(1));
}

/// Joins; its control thread then does not run until all others have left, and there is much to be
/// written to them.
fn busy() {
    let joined = join_from_environment(None).unwrap();
    say("joined");
    wait_for_order();
    let (go_on, told) = std::sync::mpsc::channel::<()>();
    let (stands, stood) = std::sync::mpsc::channel::<()>();
    joined.plane.process().spawn(async move {
        drop(stands);
        let _ = told.recv();
    });
    let _ = stood.recv();
    say("busy");
    wait_for_order();
    let (own, count) = (joined.plane.rank(), joined.plane.world_size());
    for peer in (0..count).filter(|rank| *rank != own) {
        for _ in 0..3 {
            let message = Message::new(1, Bytes::from(vec![0; 300_000]));
            joined.plane.send(peer, message).unwrap();
        }
    }
    drop(go_on);
    let mut left = 0;
    while left < count - 1 && joined.plane.failure().is_none() {
        let news = joined.recorded.leaves.recv_timeout(LOOK);
        left += u32::from(news.is_ok());
    }
    say(format!("{left} ranks have left"));
    say_failure(&joined);
    joined.plane.leave(PATIENCE);
}

fn say_failure(joined: &Joined) {
    say(match joined.plane.failure() {
        None => "no failure".to_owned(),
        Some(error) => format!("failed: {error}"),
    });
}

/// Joins, and when told to says something to rank 0, to which it has no link.
fn stranger() {
    let joined = join_from_environment(None).unwrap();
    say("joined");
    wait_for_order();
    let message = || Message::new(1, Bytes::new());
    joined.plane.send(0, message()).unwrap();
    let left = joined.recorded.leaves.recv().unwrap();
    say(format!("rank {left} has left"));
    let error = joined.plane.send(0, message()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
    say_failure(&joined);
}

/// Serves the rendezvous table without being a rank, until it is killed.
fn serve() {
    let launch = LaunchEnvironment::detect(&|name| std::env::var(name).ok()).unwrap();
    let process = Process::acquire(&ProcessOptions::new()).unwrap();
    let rendezvous = launch
        .rendezvous
        .unwrap()
        .open(&process, Visitor::new(0))
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let found = runtime.block_on(rendezvous.lookup("what nobody publishes", soon()));
    panic!("the table has {found:?}");
}

/// Two ranks in one process: each sends each rank of the world a file that names both.
fn pass() {
    let second = std::env::var("COMM_TEST_SECOND_RANK")
        .unwrap()
        .parse()
        .unwrap();
    ranks(2, |index| {
        let rank = (index == 1).then_some(second);
        let joined = join_from_environment(rank).unwrap();
        let (rank, world_size) = (joined.plane.rank(), joined.plane.world_size());
        for peer in 0..world_size {
            let mut file = tempfile::tempfile().unwrap();
            write!(file, "{rank} to {peer}").unwrap();
            let message = Message::new(1, Bytes::from_static(b"file")).with_fds(vec![file.into()]);
            joined.plane.send(peer, message).unwrap();
        }
        for _ in 0..world_size {
            let (from, message) = joined.recorded.messages.recv().unwrap();
            let mut fds = message.fds;
            let mut file = std::fs::File::from(fds.pop().expect("a descriptor"));
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("{from} to {rank}"));
        }
        joined.plane.barrier(1, soon()).unwrap();
        joined.plane.leave(PATIENCE);
    });
    say("all descriptors came");
}

/// Forks while a control plane is up.
fn fork() {
    let process = Process::acquire(&ProcessOptions::new()).unwrap();
    let alone =
        |process: &Arc<Process>| join(process, JoinOptions::alone().deadline(soon())).unwrap();
    let joined = alone(&process);
    // SAFETY: the child runs ordinary code afterwards, as children of a Python program do; the
    // only other threads are the control thread and the allocator-safe standard library's.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let error = joined.plane.barrier(1, soon()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let error = joined
            .plane
            .send(0, Message::new(1, Bytes::new()))
            .unwrap_err();
        assert!(error.message().contains("fork"), "{error}");
        joined.plane.leave(PATIENCE);
        let fresh = Process::acquire(&ProcessOptions::new()).unwrap();
        assert_ne!(fresh.id(), process.id());
        alone(&fresh).plane.barrier(1, soon()).unwrap();
        drop((joined, process, fresh));
        say("child: old handles are refused, a new process works");
        std::process::exit(0);
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    joined.plane.barrier(1, soon()).unwrap();
    joined.plane.leave(PATIENCE);
    say("parent: goes on");
}
