//! Signals that reach the launcher.

use rustix::process::Signal;

use crate::job::start;

#[test]
fn sigint_is_passed_on_to_every_worker() {
    let script = "trap 'echo interrupted; exit 0' INT; echo ready; while :; do sleep 0.01; done";
    let mut job = start(&["-n", "2"], script);
    assert_eq!(job.lines(2), ["[0] ready", "[1] ready"]);
    job.signal(Signal::INT);
    let ended = job.end();
    assert_eq!(ended.lines(), ["[0] interrupted", "[1] interrupted"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn workers_that_die_of_the_signal_give_its_exit_code() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut job = start(&["-n", "2"], "echo ready; exec sleep 1000");
        job.lines(2);
        job.signal(signal);
        let ended = job.end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
    }
}

#[test]
fn a_second_interrupt_kills_workers_that_ignore_the_first() {
    let script = "trap 'echo ignored' INT; trap '' TERM; echo ready; while :; do sleep 0.01; done";
    let mut job = start(&["-n", "2"], script);
    job.lines(2);
    job.signal(Signal::INT);
    assert_eq!(job.lines(2), ["[0] ignored", "[1] ignored"]);
    job.signal(Signal::INT);
    let ended = job.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
}

#[test]
fn a_worker_may_end_later_than_another_after_a_signal() {
    // With a grace of nothing a failure would end rank 0 at once.
    let script = "trap '[ $RANK = 1 ] && exit 9; sleep 0.5; echo saved; exit 0' INT; \
                  echo ready; while :; do sleep 0.01; done";
    let mut job = start(&["-n", "2", "--grace", "0"], script);
    job.lines(2);
    job.signal(Signal::INT);
    let ended = job.end();
    assert_eq!(ended.stdout, "[0] saved\n");
    assert_eq!(ended.code, Some(9), "{ended:?}");
}

#[test]
fn user_signals_are_passed_on_and_end_nothing() {
    let script = "trap 'echo told' USR1; echo ready; \
                  while :; do sleep 0.01; done";
    let mut job = start(&["-n", "1"], script);
    job.line();
    for _ in 0..2 {
        job.signal(Signal::USR1);
        assert_eq!(job.line(), "[0] told");
    }
    job.signal(Signal::TERM);
    assert_eq!(job.end().code, Some(143));
}
