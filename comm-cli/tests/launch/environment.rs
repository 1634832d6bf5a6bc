//! What workers find when they start.

use crate::job::{run, start_with};

#[test]
fn eight_workers_get_their_ranks_and_the_size() {
    let ended = run(
        &["-n", "8"],
        "echo $RANK.$LOCAL_RANK.$WORLD_SIZE.$LOCAL_WORLD_SIZE",
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let wanted: Vec<String> = (0..8)
        .map(|rank| format!("[{rank}] {rank}.{rank}.8.8"))
        .collect();
    assert_eq!(ended.lines(), wanted);
    assert_eq!(ended.stderr, "");
}

#[test]
fn a_misspelt_variable_is_named_with_the_one_that_was_meant() {
    let inherited = [("COMM_STEP_BYTE", "64K")];
    let given = ["-n", "1", "-e", "COMM_AGLO=ring", "-e", "COMM_ALGO=ring"];
    let ended = start_with(&given, &["true"], &inherited).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told: Vec<_> = ended.stderr.lines().collect();
    assert_eq!(
        told,
        [
            "commctl launch: COMM_AGLO is set, but nothing here reads it; was COMM_ALGO meant?",
            "commctl launch: COMM_STEP_BYTE is set, but nothing here reads it; was COMM_STEP_BYTES \
             meant?",
        ]
    );
}

#[test]
fn workers_share_a_rendezvous_a_job_id_and_a_secret() {
    let ended = run(
        &["-n", "3", "--no-prefix"],
        "echo $COMM_RENDEZVOUS $COMM_JOB_ID $COMM_SECRET $MASTER_ADDR:$MASTER_PORT",
    );
    let lines = ended.lines();
    assert_eq!(lines.len(), 3, "{ended:?}");
    assert!(lines.iter().all(|line| *line == lines[0]));
    let words: Vec<&str> = lines[0].split(' ').collect();
    assert!(words[0].starts_with("127.0.0.1:") && words[3].starts_with("127.0.0.1:"));
    assert_ne!(words[0], words[3]);
    assert!(!words[1].is_empty());
    assert_eq!(words[2].len(), 64);
}

#[test]
fn the_users_secret_is_left_alone() {
    let program = ["sh", "-c", "echo $COMM_SECRET,$COMM_SECRET_FILE"];
    let own = start_with(&["-n", "1"], &program, &[("COMM_SECRET", "mine")]).end();
    assert_eq!(own.stdout, "[0] mine,\n");
    let file = start_with(&["-n", "1"], &program, &[("COMM_SECRET_FILE", "/file")]).end();
    assert_eq!(file.stdout, "[0] ,/file\n");
}

#[test]
fn options_set_variables_and_the_rendezvous() {
    let ended = run(
        &[
            "-n",
            "1",
            "--env",
            "A=b c",
            "-e",
            "WORLD_SIZE=5",
            "--rendezvous",
            "10.0.0.1:29500",
        ],
        "echo $A $WORLD_SIZE $COMM_RENDEZVOUS",
    );
    assert_eq!(ended.stdout, "[0] b c 5 10.0.0.1:29500\n");
}

#[test]
fn workers_are_bound_to_one_allowed_cpu_each_in_turn() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap().count() as usize;
    let script = "sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status";
    let workers = (allowed + 1).to_string();
    let ended = run(&["-n", &workers, "--pin"], script);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let cpu = |rank: usize| {
        let prefix = format!("[{rank}] ");
        let line = ended
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(&prefix))
            .unwrap();
        line.parse::<usize>().unwrap()
    };
    let mut cpus: Vec<usize> = (0..allowed).map(cpu).collect();
    assert_eq!(
        cpu(allowed),
        cpus[0],
        "the worker beyond the last CPU shares the first"
    );
    cpus.dedup();
    assert_eq!(cpus.len(), allowed);
}

#[test]
fn a_signal_that_the_launcher_waits_for_is_not_blocked_in_workers() {
    let ended = run(
        &["-n", "1"],
        "sed -n 's/^SigBlk:[^0-9]*//p' /proc/self/status",
    );
    assert_eq!(ended.stdout, "[0] 0000000000000000\n");
}
