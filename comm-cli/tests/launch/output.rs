//! How the output of workers appears.

use std::collections::BTreeMap;

use crate::job::{run, start, start_with, wait_until_gone};

const LINES: usize = 300;

#[test]
fn lines_of_eight_workers_stay_whole_and_in_order_on_both_streams() {
    // Longer than a pipe takes in one piece, so that workers really write parts of lines.
    let script = "pad=$(printf %05000d 0); i=0; while [ $i -lt 300 ]; do \
                  echo o $i $pad; echo e $i $pad >&2; i=$((i+1)); done";
    let ended = run(&["-n", "8"], script);
    assert_eq!(ended.code, Some(0));
    let pad = "0".repeat(5000);
    for (stream, text) in [("o", &ended.stdout), ("e", &ended.stderr)] {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for line in text.lines() {
            let (prefix, rest) = line.split_once(' ').unwrap();
            let next = seen.entry(prefix).or_default();
            assert_eq!(rest, format!("{stream} {next} {pad}"), "line of {prefix}");
            *next += 1;
        }
        let wanted: Vec<String> = (0..8).map(|rank| format!("[{rank}]")).collect();
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), wanted);
        assert!(seen.values().all(|&count| count == LINES), "{seen:?}");
    }
}

#[test]
fn a_last_line_without_a_line_break_is_printed() {
    let ended = run(&["-n", "2"], "printf 'one\\ntwo'; printf three >&2");
    assert_eq!(ended.lines(), ["[0] one", "[0] two", "[1] one", "[1] two"]);
    assert_eq!(ended.stderr.lines().count(), 2, "{ended:?}");
}

#[test]
fn a_line_appears_while_the_worker_still_runs() {
    let mut job = start(&["-n", "1"], "echo ready; sleep 1000");
    assert_eq!(job.line(), "[0] ready");
    job.signal(rustix::process::Signal::TERM);
    job.end();
}

#[test]
fn without_prefix_lines_stay_as_they_are() {
    let ended = run(&["-n", "2", "--no-prefix"], "echo one; echo two");
    assert_eq!(ended.lines(), ["one", "one", "two", "two"]);
}

#[test]
fn output_that_nobody_reads_breaks_the_workers_pipes() {
    let mut job = start(&["-n", "2"], "exec yes");
    assert!(job.line().ends_with("] y"));
    let ended = job.end_unread();
    assert_eq!(ended.code, Some(128 + 13), "{ended:?}");
    assert!(ended.stderr.contains("was killed by SIGPIPE"), "{ended:?}");
}

#[test]
fn output_that_nobody_takes_does_not_keep_the_launcher_from_ending_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pids");
    let script = "echo $$ >> $PIDS; \
                  [ $RANK = 0 ] && { while [ $(wc -l < $PIDS) != 2 ]; do sleep 0.01; done; exit 3; }; \
                  exec yes";
    let variables = [("PIDS", path.to_str().unwrap())];
    let job = start_with(
        &["-n", "2", "--grace", "0.5"],
        &["sh", "-c", script],
        &variables,
    );
    let pids = loop {
        let pids = std::fs::read_to_string(&path).unwrap_or_default();
        if pids.lines().count() == 2 {
            break pids;
        }
        std::thread::yield_now();
    };
    wait_until_gone(&pids.lines().collect::<Vec<_>>());
    let ended = job.end_unread();
    assert_eq!(ended.code, Some(3), "{ended:?}");
}
