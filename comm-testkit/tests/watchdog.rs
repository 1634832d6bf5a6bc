//! What a stuck test looks like from outside.

use std::process::Command;
use std::time::Duration;

use comm_testkit::watchdog::with_watchdog;
use libtest_mimic::{Arguments, Trial};

/// Makes this binary get stuck.
const STUCK: &str = "COMM_TESTKIT_STUCK";

fn main() {
    if std::env::var_os(STUCK).is_some() {
        with_watchdog(Duration::from_millis(50), || {
            loop {
                std::thread::park();
            }
        })
    }
    let trial = Trial::test("a_stuck_test_ends_its_process_with_a_message", || {
        let stuck = Command::new(std::env::current_exe()?)
            .env(STUCK, "1")
            .output()?;
        assert!(!stuck.status.success());
        let text = String::from_utf8_lossy(&stuck.stderr);
        assert!(text.contains("watchdog: main is stuck"), "{text}");
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}
