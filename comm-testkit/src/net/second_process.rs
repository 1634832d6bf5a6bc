//! A second process for tests of a network, which can be killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Set in the second process: what it does.
const ROLE: &str = "SECOND_PROCESS_ROLE";
/// Set in the second process: what it has to know for it, in hexadecimal.
const MESSAGE: &str = "SECOND_PROCESS_MESSAGE";
/// What the second process's lines of interest begin with.
const MARK: &str = "the second process says ";

/// The test program once more, playing a role; killed when dropped.
///
/// The program needs a test that plays the role and does nothing otherwise:
///
/// ```no_run
/// use comm_testkit::net::{SecondProcess, second_role};
///
/// // #[test]
/// fn second() {
///     let Some(role) = second_role() else { return };
///     SecondProcess::say(&role.message);
///     std::thread::park();
/// }
///
/// // #[test]
/// fn a_peer_that_is_killed_is_noticed() {
///     let mut second = SecondProcess::start("second", "echo", b"handle");
///     assert_eq!(second.line(), b"handle");
///     second.kill();
/// }
/// ```
///
/// It is for tests: whatever goes wrong is a panic.
#[derive(Debug)]
pub struct SecondProcess {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// What a second process is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondRole {
    /// The name of the role.
    pub name: String,
    /// What the first process tells it.
    pub message: Vec<u8>,
}

/// The role that this process plays, if it is a second one.
#[must_use]
pub fn second_role() -> Option<SecondRole> {
    Some(SecondRole {
        name: std::env::var(ROLE).ok()?,
        message: from_hex(&std::env::var(MESSAGE).ok()?),
    })
}

impl SecondProcess {
    /// Starts the test of this program with the name `test` as a process that plays `role`.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn start(test: &str, role: &str, message: &[u8]) -> Self {
        let program = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
        let mut child = Command::new(program)
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role)
            .env(MESSAGE, to_hex(message))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("a second process cannot be started: {error}"));
        let Some(output) = child.stdout.take() else {
            unreachable!("the output is piped")
        };
        Self {
            child,
            lines: BufReader::new(output),
        }
    }

    /// Says something to the first process. Called in the second one.
    pub fn say(message: &[u8]) {
        // The test harness may have begun the line.
        println!("\n{MARK}{}", to_hex(message));
    }

    /// What the second process says next.
    ///
    /// # Panics
    ///
    /// If it ends before it says something.
    pub fn line(&mut self) -> Vec<u8> {
        let mut line = String::new();
        loop {
            line.clear();
            match self.lines.read_line(&mut line) {
                Ok(0) => panic!("the second process ended"),
                Ok(_) => {}
                Err(error) => panic!("the second process cannot be heard: {error}"),
            }
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return from_hex(said);
            }
        }
    }

    /// Kills the process, which can do nothing about it, and waits for its end.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn kill(&mut self) {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = killed {
            panic!("the second process cannot be killed: {error}");
        }
    }
}

impl Drop for SecondProcess {
    fn drop(&mut self) {
        // Fails if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len() / 2).map(|at| text.get(2 * at..2 * at + 2));
    pairs
        .map(|pair| u8::from_str_radix(pair.unwrap_or_default(), 16))
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{text} is not hexadecimal: {error}"))
}
