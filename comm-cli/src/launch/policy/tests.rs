use super::*;

const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(2);
const INT: Arrived = Arrived::Ending(libc::SIGINT);

fn killed() -> Status {
    Status::Killed {
        signal: libc::SIGKILL,
        dumped: false,
    }
}

fn job(workers: u32) -> (Policy, Instant) {
    (Policy::new(workers, GRACE), Instant::now())
}

#[test]
fn a_job_whose_workers_all_succeed_ends_with_zero_and_without_a_word() {
    let (mut policy, now) = job(2);
    for rank in 0..2 {
        assert!(!policy.is_over());
        let decision = policy.worker_ended(rank, 10, Status::Exited(0), now);
        assert_eq!(decision, Decision::default());
    }
    assert!(policy.is_over());
    assert_eq!((policy.exit_code(), policy.summary()), (0, None));
}

#[test]
fn the_first_failure_is_named_and_gives_the_exit_code() {
    let (mut policy, now) = job(3);
    let said = policy.worker_ended(2, 4711, killed(), now).say.unwrap();
    assert!(
        said.contains("rank 2 (pid 4711) was killed by SIGKILL"),
        "{said}"
    );
    let later = policy.worker_ended(0, 12, Status::Exited(1), now);
    assert_eq!(later, Decision::default());
    policy.worker_ended(1, 13, Status::Exited(0), now);
    assert_eq!(policy.exit_code(), 137);
    assert!(policy.summary().unwrap().contains("rank 2 (pid 4711)"));
}

#[test]
fn the_others_get_the_grace_then_sigterm_then_sigkill() {
    let (mut policy, start) = job(2);
    policy.worker_ended(0, 10, Status::Exited(3), start);
    assert_eq!(policy.deadline(), Some(start + GRACE));
    assert_eq!(policy.time_passed(start + SECOND).send, None);
    assert_eq!(policy.time_passed(start + GRACE).send, Some(Signal::TERM));
    assert_eq!(policy.time_passed(start + GRACE + SECOND).send, None);
    let kill = start + GRACE + TO_TERMINATE;
    assert_eq!(policy.time_passed(kill).send, Some(Signal::KILL));
    assert!(!policy.is_over());
    policy.worker_ended(1, 11, killed(), kill);
    assert!(policy.is_over());
    assert_eq!(policy.exit_code(), 3);
}

#[test]
fn a_worker_that_survives_sigkill_is_given_up() {
    let (mut policy, mut now) = job(2);
    policy.worker_ended(0, 10, Status::Exited(3), now);
    while let Some(deadline) = policy.deadline() {
        assert!(!policy.is_over());
        now = deadline;
        policy.time_passed(now);
    }
    assert!(policy.is_over() && policy.has_given_up());
    assert_eq!(policy.exit_code(), 3);
}

#[test]
fn no_grace_means_sigterm_at_once() {
    let now = Instant::now();
    let mut policy = Policy::new(2, Duration::ZERO);
    policy.worker_ended(0, 10, Status::Exited(1), now);
    assert_eq!(policy.time_passed(now).send, Some(Signal::TERM));
}

#[test]
fn an_endless_grace_is_possible() {
    let now = Instant::now();
    let mut policy = Policy::new(2, Duration::MAX);
    policy.worker_ended(0, 10, Status::Exited(1), now);
    assert_eq!(policy.time_passed(now + 1000 * SECOND).send, None);
}

#[test]
fn an_ending_signal_is_passed_on_and_the_workers_take_their_time() {
    let (mut policy, now) = job(3);
    assert_eq!(policy.signal_arrived(INT, now).send, Some(Signal::INT));
    assert_eq!(policy.deadline(), None);
    let interrupted = Status::Killed {
        signal: libc::SIGINT,
        dumped: false,
    };
    policy.worker_ended(1, 11, interrupted, now);
    assert_eq!(
        policy.time_passed(now + 10 * GRACE).send,
        None,
        "a checkpoint takes longer"
    );
    assert_eq!(
        policy.time_passed(now + AFTER_SIGNAL).send,
        Some(Signal::TERM)
    );
    assert_eq!(policy.exit_code(), 130);
}

#[test]
fn workers_that_end_well_after_a_signal_make_a_good_end() {
    let (mut policy, now) = job(1);
    policy.signal_arrived(Arrived::Ending(libc::SIGTERM), now);
    policy.worker_ended(0, 10, Status::Exited(0), now);
    assert_eq!(policy.exit_code(), 0);
}

#[test]
fn a_second_ending_signal_kills_and_gives_the_exit_code() {
    let (mut policy, now) = job(1);
    policy.signal_arrived(Arrived::Ending(libc::SIGTERM), now);
    assert_eq!(policy.signal_arrived(INT, now).send, Some(Signal::KILL));
    policy.worker_ended(0, 10, killed(), now);
    assert_eq!((policy.exit_code(), policy.summary()), (130, None));
}

#[test]
fn impatience_after_a_failure_does_not_hide_the_failure() {
    let (mut policy, now) = job(2);
    policy.worker_ended(0, 10, Status::Exited(5), now);
    policy.signal_arrived(INT, now);
    assert_eq!(policy.signal_arrived(INT, now).send, Some(Signal::KILL));
    policy.worker_ended(1, 11, killed(), now);
    assert_eq!(policy.exit_code(), 5);
}

#[test]
fn user_signals_are_passed_on_any_number_of_times() {
    let (mut policy, now) = job(1);
    for _ in 0..3 {
        let decision = policy.signal_arrived(Arrived::Forwarded(libc::SIGUSR1), now);
        assert_eq!(
            decision,
            Decision {
                send: Some(Signal::USR1),
                say: None
            }
        );
    }
    assert_eq!(policy.deadline(), None);
}
