//! Nothing stays behind.

use rustix::process::{Pid, Signal, kill_process};

use crate::job::{is_alive, run, start, wait_until_gone};

/// Prints the numbers of the worker and of a process that it has started.
const FAMILY: &str = "sleep 1000 & echo $$ $!; wait";

#[test]
fn a_killed_launcher_takes_its_workers_and_their_children_along() {
    let mut job = start(&["-n", "4"], FAMILY);
    let lines = job.lines(4);
    let pids: Vec<&str> = lines
        .iter()
        .flat_map(|line| line.split(' ').skip(1))
        .collect();
    assert_eq!(pids.len(), 8);
    assert!(pids.iter().all(|pid| is_alive(pid)));
    job.signal(Signal::KILL);
    wait_until_gone(&pids);
    assert_eq!(job.end().code, None);
}

#[test]
fn children_of_a_killed_worker_are_ended() {
    let mut job = start(&["-n", "2", "--grace", "0"], FAMILY);
    let lines = job.lines(2);
    let pids: Vec<&str> = lines
        .iter()
        .flat_map(|line| line.split(' ').skip(1))
        .collect();
    let worker = Pid::from_raw(pids[0].parse().unwrap()).unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    wait_until_gone(&pids);
    let ended = job.end();
    assert_eq!(ended.code, Some(137), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains(&format!("rank 0 (pid {}) was killed", pids[0])),
        "{ended:?}"
    );
}

#[test]
fn what_a_worker_leaves_running_at_a_good_end_is_ended() {
    let ended = run(&["-n", "2"], "sleep 1000 & echo $!");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let pids: Vec<&str> = ended
        .lines()
        .iter()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!(pids.len(), 2);
    wait_until_gone(&pids);
}

#[test]
fn a_process_that_has_left_its_group_does_not_keep_the_launcher() {
    // It holds the pipes open and ends by itself, long after the launch.
    let ended = run(&["-n", "1"], "setsid sleep 20 & echo done");
    assert_eq!(ended.stdout, "[0] done\n");
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
