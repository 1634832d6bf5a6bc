//! What a process tells of variables in its environment that nothing reads.

use std::process::Command;

use comm_api::Communicator;

/// A misspelt variable; the test starts itself with it.
const MISSPELT: &str = "COMM_SHM_PULLS";

#[test]
fn a_misspelt_variable_is_told_in_warnings_and_explanations_without_its_value() {
    if std::env::var_os(MISSPELT).is_some() {
        let comm = Communicator::from_env().expect("a job of one rank");
        println!("{}", comm.explain());
        return;
    }
    let output = Command::new(std::env::current_exe().expect("this test's file"))
        .args(["--nocapture", "--test-threads=1"])
        .envs([("COMM_RANK", "0"), ("COMM_WORLD_SIZE", "1")])
        .envs([("COMM_DEBUG", "WARN"), (MISSPELT, "swordfish")])
        .output()
        .expect("this test starts again");
    let explained = String::from_utf8_lossy(&output.stdout);
    let warned = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{explained}{warned}");
    let sentence = "COMM_SHM_PULLS is set, but nothing here reads it; was COMM_SHM_PULL meant?";
    for text in [&explained, &warned] {
        assert!(text.contains(sentence), "{text}");
        assert!(!text.contains("swordfish"), "{text}");
    }
}
