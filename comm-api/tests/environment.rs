//! What a process makes of variables in its environment, and tells of those that nothing reads.

use std::process::Command;

use comm_api::Communicator;

/// A misspelt variable; the test starts itself with it.
const MISSPELT: &str = "COMM_SHM_PULLS";

#[test]
fn variables_are_explained_and_a_misspelt_one_is_told_without_its_value() {
    if std::env::var_os(MISSPELT).is_some() {
        let comm = Communicator::from_env().expect("a job of one rank");
        println!("{}", comm.explain());
        return;
    }
    let output = Command::new(std::env::current_exe().expect("this test's file"))
        .args(["--nocapture", "--test-threads=1"])
        .envs([("COMM_RANK", "0"), ("COMM_WORLD_SIZE", "1")])
        .envs([("COMM_DEBUG", "WARN"), (MISSPELT, "swordfish")])
        .envs([("COMM_NET_SOCKETS", ""), ("COMM_HOSTID", "")])
        .envs([("COMM_RECEIVE_POOL_BYTES", "64M")])
        .output()
        .expect("this test starts again");
    let explained = String::from_utf8_lossy(&output.stdout);
    let warned = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{explained}{warned}");
    let sentence = "COMM_SHM_PULLS is set, but nothing here reads it; was COMM_SHM_PULL meant?";
    for text in [&explained, &warned] {
        assert!(text.contains(sentence), "{text}");
        assert!(!text.contains("swordfish"), "{text}");
    } // One that is set to nothing counts as not set, and one of the groups is as visible as others.
    #[cfg(feature = "tcp")]
    assert!(
        explained.contains("COMM_NET_SOCKETS=2 (default)"),
        "{explained}"
    );
    let pool = "COMM_RECEIVE_POOL_BYTES=67108864 (COMM_RECEIVE_POOL_BYTES)";
    assert!(explained.contains(pool), "{explained}");
}
