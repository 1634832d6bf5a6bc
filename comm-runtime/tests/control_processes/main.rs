//! The control plane among processes: deaths, silence, forks, launchers.
//!
//! The test program starts itself again as its workers; [`worker`] is what they do.

#[path = "../support/mod.rs"]
mod support;
mod worker;

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use support::{free_port, watchdog};

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(worker::ROLE) {
        worker::run(&role);
        return ExitCode::SUCCESS;
    }
    let tests: [(&str, fn()); 16] = [
        (
            "a_killed_rank_is_named_by_all_others",
            a_killed_rank_is_named_by_all_others,
        ),
        (
            "two_ranks_killed_at_once_end_all_others",
            two_ranks_killed_at_once_end_all_others,
        ),
        (
            "a_killed_rank_is_noticed_although_its_child_has_its_connections",
            a_killed_rank_leaves_a_child,
        ),
        (
            "a_stopped_process_is_dead_after_the_silence_limit",
            a_stopped_process_is_dead,
        ),
        (
            "a_goodbye_counts_although_the_process_has_ended_and_nothing_can_be_written",
            a_goodbye_counts,
        ),
        (
            "a_rank_that_has_left_and_ended_is_no_failure_of_a_rank_without_a_link_to_it",
            a_rank_without_a_link,
        ),
        (
            "a_rank_killed_while_others_join_ends_their_join",
            a_rank_killed_during_the_join,
        ),
        (
            "the_death_of_the_process_that_serves_the_table_is_survived",
            the_server_dies,
        ),
        (
            "a_rank_that_two_processes_claim_is_named_on_every_rank",
            a_rank_claimed_twice,
        ),
        (
            "ranks_of_several_processes_pass_descriptors",
            ranks_pass_descriptors,
        ),
        (
            "processes_meet_with_the_variables_of_torchrun",
            processes_meet_with_torchrun,
        ),
        (
            "processes_meet_with_comm_rendezvous",
            processes_meet_with_comm_rendezvous,
        ),
        (
            "ranks_of_several_hosts_need_a_secret_and_are_told_so",
            hosts_need_a_secret,
        ),
        (
            "ranks_of_several_hosts_meet_over_the_network",
            hosts_meet_over_the_network,
        ),
        (
            "a_handle_from_before_a_fork_is_an_error_in_the_child",
            a_fork_is_noticed,
        ),
        ("sixty_four_processes_join_and_meet", sixty_four_processes),
    ];
    let trials = tests.map(|(name, test)| {
        Trial::test(name, move || {
            let _watchdog = watchdog();
            std::panic::catch_unwind(test).map_err(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                Failed::from(text.unwrap_or_else(|| "the test panicked".to_owned()))
            })
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

/// One worker process; killed when it is dropped.
struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(role: &str, variables: &[(&str, String)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // What the test itself was started with must not reach its workers.
        for name in [
            "RANK",
            "WORLD_SIZE",
            "COMM_RENDEZVOUS",
            "COMM_SECRET",
            "COMM_INSECURE",
        ] {
            command.env_remove(name);
        }
        command
            .env(worker::ROLE, role)
            .envs(variables.iter().map(|(name, value)| (*name, value)));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting a worker");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            orders: child.stdin.take(),
            child,
            lines,
        }
    }

    /// The next line that the worker prints.
    fn line(&mut self) -> String {
        self.lines.next().expect("the worker ended").unwrap()
    }

    /// Lets a worker go on that waits for an order.
    fn go_on(&mut self) {
        self.orders.as_mut().unwrap().write_all(b"go on\n").unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn wait(mut self) {
        drop(self.orders.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Variables for a rank that meets the others at a port of this host.
fn at_port(port: u16, rank: u32, world_size: u32) -> Vec<(&'static str, String)> {
    vec![
        ("COMM_RENDEZVOUS", format!("127.0.0.1:{port}")),
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", world_size.to_string()),
    ]
}

/// A world of workers that have joined and wait for an order.
fn world(count: u32, extra: &[(&'static str, &str)]) -> Vec<Worker> {
    world_of(&vec!["meet"; count as usize], extra)
}

/// As [`world`], of workers in these roles.
fn world_of(roles: &[&str], extra: &[(&'static str, &str)]) -> Vec<Worker> {
    let port = free_port();
    let mut workers: Vec<Worker> = (0..)
        .zip(roles)
        .map(|(rank, role)| {
            let mut variables = at_port(port, rank, roles.len() as u32);
            variables.extend(
                extra
                    .iter()
                    .map(|(name, value)| (*name, (*value).to_owned())),
            );
            Worker::start(role, &variables)
        })
        .collect();
    for worker in &mut workers {
        assert_eq!(worker.line(), "joined");
    }
    workers
}

fn a_killed_rank_is_named_by_all_others() {
    let mut workers = world(4, &[]);
    let dead = workers.remove(2);
    let pid = dead.pid();
    let killed = Instant::now();
    dead.signal(Signal::KILL);
    for worker in &mut workers {
        let line = worker.line();
        println!("{:?} after the kill: {line}", killed.elapsed());
        assert!(
            line.starts_with("failed: peer died: rank 2 (pid "),
            "{line}"
        );
        assert!(
            line.contains(&format!("(pid {} on ", pid.as_raw_nonzero())),
            "{line}"
        );
    }
    // Nobody who reports the failure is taken for another one.
    for mut worker in workers {
        worker.go_on();
        assert!(worker.line().starts_with("barrier: peer died: rank 2 "));
        worker.wait();
    }
}

fn two_ranks_killed_at_once_end_all_others() {
    let mut workers = world(8, &[]);
    let dead = [workers.remove(5), workers.remove(3)];
    dead.iter().for_each(|worker| worker.signal(Signal::KILL));
    for worker in &mut workers {
        let line = worker.line();
        assert!(
            ["rank 3 ", "rank 5 "]
                .iter()
                .any(|rank| line.starts_with(&format!("failed: peer died: {rank}"))),
            "{line}"
        );
    }
}

fn a_killed_rank_leaves_a_child() {
    // Without heartbeats only the end of the process itself tells.
    let extra = [
        ("COMM_HEARTBEAT_TIMEOUT_SECONDS", "0"),
        ("COMM_TEST_FORK", "1"),
    ];
    let mut workers = world(3, &extra);
    let mut dead = workers.remove(0);
    assert_eq!(dead.line(), "forked");
    dead.signal(Signal::KILL);
    for worker in &mut workers {
        assert_eq!(worker.line(), "forked");
        let line = worker.line();
        assert!(line.starts_with("failed: peer died: rank 0 "), "{line}");
    }
}

fn a_stopped_process_is_dead() {
    // Long enough that nobody else is silent for so long, however little CPU there is.
    let mut workers = world(3, &[("COMM_HEARTBEAT_TIMEOUT_SECONDS", "4")]);
    let stopped = workers.remove(1);
    stopped.signal(Signal::STOP);
    for worker in &mut workers {
        let line = worker.line();
        assert!(line.starts_with("failed: peer died: rank 1 "), "{line}");
        assert!(line.contains("was silent for 4 s"), "{line}");
    }
}

fn a_goodbye_counts() {
    // Everybody is a neighbour of everybody.
    let mut workers = world_of(&["busy", "part", "part", "part", "part"], &[]);
    let mut busy = workers.remove(0);
    busy.go_on();
    assert_eq!(busy.line(), "busy");
    workers.iter_mut().for_each(Worker::go_on);
    workers.into_iter().for_each(Worker::wait);
    busy.go_on();
    assert_eq!(busy.line(), "4 ranks have left");
    assert_eq!(busy.line(), "no failure");
    busy.wait();
}

fn a_rank_without_a_link() {
    let mut roles = ["meet"; 8];
    (roles[0], roles[3]) = ("part", "stranger");
    let mut workers = world_of(&roles, &[]);
    let mut left = workers.remove(0);
    left.go_on();
    left.wait();
    let stranger = &mut workers[2];
    stranger.go_on();
    assert_eq!(stranger.line(), "rank 0 has left");
    assert_eq!(stranger.line(), "no failure");
}

fn a_rank_killed_during_the_join() {
    let port = free_port();
    // No rank serves the table, so what the one that is killed has published stays there.
    let _server = server(port);
    let start = |rank| Worker::start("meet", &at_port(port, rank, 4));
    // Ranks 0 to 2 link with each other and wait for rank 3.
    let mut workers: Vec<Worker> = (0..3).map(start).collect();
    until_published(port, "world/rank/1");
    workers.remove(1).signal(Signal::KILL);
    let late = start(3);
    workers.push(late);
    for worker in &mut workers {
        let line = worker.line();
        assert!(line.starts_with("not joined: "), "{line}");
        assert!(line.contains("rank 1"), "{line}");
    }
}

/// Waits until a rank has published this at the rendezvous.
fn until_published(port: u16, key: &str) {
    let process = support::process();
    let table = support::tcp(&process, port);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime
        .block_on(table.lookup(key, support::soon()))
        .unwrap();
}

/// A process that serves the table and is no rank.
fn server(port: u16) -> Worker {
    let server = Worker::start("serve", &at_port(port, 0, 4));
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

fn the_server_dies() {
    let port = free_port();
    let server = server(port);
    let mut workers: Vec<Worker> = (0..3)
        .map(|rank| Worker::start("meet", &at_port(port, rank, 4)))
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    server.signal(Signal::KILL);
    drop(server);
    // What the ranks have published is published again in the table that one of them serves now.
    workers.push(Worker::start("meet", &at_port(port, 3, 4)));
    meet_and_part(workers);
}

fn a_rank_claimed_twice() {
    let port = free_port();
    let mut workers: Vec<Worker> = [0, 1, 2, 1]
        .map(|rank| Worker::start("meet", &at_port(port, rank, 4)))
        .into();
    let pids = [workers[1].pid(), workers[3].pid()];
    for worker in &mut workers {
        let line = worker.line();
        assert!(line.contains("rank 1 is claimed twice"), "{line}");
        for pid in pids {
            assert!(
                line.contains(&format!("(pid {} on ", pid.as_raw_nonzero())),
                "{line}"
            );
        }
    }
}

fn ranks_pass_descriptors() {
    let port = free_port();
    let workers: Vec<Worker> = (0..3)
        .map(|rank| {
            let mut variables = at_port(port, rank, 6);
            // Each process has two ranks.
            variables.push(("COMM_TEST_SECOND_RANK", (rank + 3).to_string()));
            Worker::start("pass", &variables)
        })
        .collect();
    for mut worker in workers {
        assert_eq!(worker.line(), "all descriptors came");
        worker.wait();
    }
}

fn meet_and_part(mut workers: Vec<Worker>) {
    for worker in &mut workers {
        assert_eq!(worker.line(), "joined");
        worker.go_on();
    }
    for mut worker in workers {
        assert_eq!(worker.line(), "barrier: passed");
        worker.wait();
    }
}

fn processes_meet_with_torchrun() {
    // The agent's store has MASTER_PORT.
    let agent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = agent.local_addr().unwrap().port();
    let workers = (0..4)
        .map(|rank| {
            let variables = [
                ("RANK", rank.to_string()),
                ("WORLD_SIZE", "4".to_owned()),
                ("LOCAL_RANK", rank.to_string()),
                ("LOCAL_WORLD_SIZE", "4".to_owned()),
                ("MASTER_ADDR", "localhost".to_owned()),
                ("MASTER_PORT", port.to_string()),
                ("TORCHELASTIC_RUN_ID", "none".to_owned()),
                ("TORCHELASTIC_RESTART_COUNT", "0".to_owned()),
                ("TORCHELASTIC_USE_AGENT_STORE", "True".to_owned()),
            ];
            Worker::start("meet", &variables)
        })
        .collect();
    meet_and_part(workers);
}

fn processes_meet_with_comm_rendezvous() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file://{}", directory.path().join("job").display());
    let tcp = format!("localhost:{}", free_port());
    for (rendezvous, secret) in [(&file, ""), (&tcp, ""), (&tcp, "swordfish")] {
        let workers = (0..4)
            .map(|rank| {
                let mut variables = at_port(1, rank, 4);
                variables[0].1.clone_from(rendezvous);
                if !secret.is_empty() {
                    variables.push(("COMM_SECRET", secret.to_owned()));
                }
                Worker::start("meet", &variables)
            })
            .collect();
        meet_and_part(workers);
    }
    assert!(!directory.path().join("job").exists());
}

fn hosts_need_a_secret() {
    let directory = tempfile::tempdir().unwrap();
    let mut workers: Vec<Worker> = (0..3)
        .map(|rank| {
            let mut variables = at_port(1, rank, 3);
            variables[0].1 = format!("file://{}", directory.path().join("job").display());
            variables.push(("COMM_HOSTID", format!("host {rank}")));
            Worker::start("meet", &variables)
        })
        .collect();
    for worker in &mut workers {
        let line = worker.line();
        assert!(
            line.starts_with("not joined: authentication failed: "),
            "{line}"
        );
        assert!(line.contains("export COMM_SECRET="), "{line}");
        assert!(line.contains("export COMM_INSECURE=1"), "{line}");
    }
}

fn hosts_meet_over_the_network() {
    let Some(own) = comm_testkit::network::address_for_other_hosts() else {
        return;
    };
    for (name, value) in [("COMM_SECRET", "swordfish"), ("COMM_INSECURE", "1")] {
        let port = free_port();
        let workers = (0..4)
            .map(|rank| {
                let mut variables = at_port(port, rank, 4);
                variables[0].1 = format!("{own}:{port}");
                variables.push((name, value.to_owned()));
                // Ranks of different hosts do not try each other's loopback addresses.
                variables.push(("COMM_HOSTID", format!("host {}", rank % 2)));
                Worker::start("meet", &variables)
            })
            .collect();
        meet_and_part(workers);
    }
}

fn a_fork_is_noticed() {
    let mut worker = Worker::start("fork", &[]);
    assert_eq!(
        worker.line(),
        "child: old handles are refused, a new process works"
    );
    assert_eq!(worker.line(), "parent: goes on");
    worker.wait();
}

fn sixty_four_processes() {
    let start = Instant::now();
    let workers = world(64, &[]);
    println!("64 processes started and joined in {:?}", start.elapsed());
    let mut workers = workers;
    for worker in &mut workers {
        worker.go_on();
    }
    for mut worker in workers {
        assert_eq!(worker.line(), "barrier: passed");
        worker.wait();
    }
}
