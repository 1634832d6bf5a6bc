//! One worker fails: who is named, what happens to the others, which exit code.

use crate::job::{Ended, run, start_with};

/// Two workers, of which rank 0 fails once rank 1 has said by `$READY` that it is prepared; they have a
/// short grace.
fn fails_beside(prepared: &str) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready");
    let script = format!(
        "[ $RANK = 0 ] && {{ until [ -e \"$READY\" ]; do sleep 0.01; done; exit 3; }}; {prepared}"
    );
    let options = ["-n", "2", "--grace", "0.5"];
    let variables = [("READY", ready.to_str().unwrap())];
    start_with(&options, &["sh", "-c", &script], &variables).end()
}

#[test]
fn the_exit_code_is_that_of_the_failed_worker_and_it_is_named() {
    let ended = run(&["-n", "4", "--grace", "60"], "[ $RANK != 2 ] || exit 7");
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert!(ended.stderr.contains("rank 2 (pid "), "{ended:?}");
    assert!(ended.stderr.contains("exited with code 7"), "{ended:?}");
}

#[test]
fn a_killed_worker_is_named_with_its_signal() {
    let ended = run(
        &["-n", "4", "--grace", "0"],
        "[ $RANK != 1 ] || kill -9 $$; sleep 1000",
    );
    assert_eq!(ended.code, Some(128 + 9), "{ended:?}");
    assert!(ended.stderr.contains("rank 1 (pid "), "{ended:?}");
    assert!(ended.stderr.contains("was killed by SIGKILL"), "{ended:?}");
}

#[test]
fn within_the_grace_the_others_end_with_their_own_errors() {
    let script = "[ $RANK = 0 ] && exit 3; sleep 0.3; echo lost rank 0; exit 4";
    let ended = run(&["-n", "3", "--grace", "60"], script);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(ended.lines(), ["[1] lost rank 0", "[2] lost rank 0"]);
    assert!(!ended.stderr.contains("SIGTERM"), "{ended:?}");
}

#[test]
fn after_the_grace_the_others_get_sigterm() {
    let ended = fails_beside(
        "trap 'echo told to end; exit 0' TERM; : > \"$READY\"; while :; do sleep 0.01; done",
    );
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stdout.contains("[1] told to end\n"), "{ended:?}");
}

#[test]
fn a_worker_that_ignores_sigterm_is_killed() {
    let ended = fails_beside("trap '' TERM; : > \"$READY\"; while :; do sleep 0.01; done");
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("killing 1 worker"), "{ended:?}");
}

#[test]
fn a_stopped_worker_is_ended_too() {
    let ended = fails_beside(": > \"$READY\"; kill -STOP $$");
    assert_eq!(ended.code, Some(3), "{ended:?}");
}

#[test]
fn a_program_that_does_not_exist_is_an_error_that_names_it() {
    let ended = start_with(&["-n", "2"], &["./no-such-program"], &[]).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("./no-such-program"), "{ended:?}");
}

#[test]
fn no_workers_are_a_usage_error() {
    let ended = run(&["-n", "0"], "true");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("--workers"), "{ended:?}");
}
