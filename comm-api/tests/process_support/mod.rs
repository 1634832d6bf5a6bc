//! Jobs of workers: a test program, started again as ranks of its own.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use comm_api::Result;
pub(crate) use comm_testkit::ports::free_port;
use libtest_mimic::Failed;

/// Names the scenario that a worker plays.
const SCENARIO: &str = "COMM_TEST_SCENARIO";

/// How long a worker may live.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(300);

/// Plays the scenario of this process, if it is a worker; its exit code then.
pub(crate) fn play_if_worker(play: impl FnOnce(&str) -> Result<()>) -> Option<ExitCode> {
    let scenario = std::env::var(SCENARIO).ok()?;
    Some(match play(&scenario) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// A job of workers.
pub(crate) struct Job {
    scenario: &'static str,
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) success: bool,
    pub(crate) errors: String,
}

impl Job {
    pub(crate) fn new(scenario: &'static str) -> Self {
        let rendezvous = format!("127.0.0.1:{}", free_port());
        Self {
            scenario,
            variables: vec![
                ("COMM_RENDEZVOUS", rendezvous),
                ("COMM_SECRET", "0123456789abcdef0123456789abcdef".to_owned()),
                ("COMM_INIT_TIMEOUT_SECONDS", "120".to_owned()),
            ],
        }
    }

    pub(crate) fn set(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.retain(|(other, _)| *other != name);
        self.variables.push((name, value.into()));
        self
    }

    pub(crate) fn start(&self, rank: u32, world_size: u32, extra: &[(&str, &str)]) -> Child {
        Command::new(std::env::current_exe().expect("the path of this program"))
            .env(SCENARIO, self.scenario)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", world_size.to_string())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .envs(extra.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starting a worker")
    }

    /// Starts a worker of another scenario.
    pub(crate) fn start_as(
        &self,
        scenario: &'static str,
        rank: u32,
        world_size: u32,
        extra: &[(&str, &str)],
    ) -> Child {
        let variables = self.variables.clone();
        let job = Self {
            scenario,
            variables,
        };
        job.start(rank, world_size, extra)
    }

    pub(crate) fn run(&self, world_size: u32) -> std::result::Result<Vec<Ended>, Failed> {
        end((0..world_size)
            .map(|rank| self.start(rank, world_size, &[]))
            .collect())
    }
}

/// Waits for all workers; a stuck one is killed and fails the test.
pub(crate) fn end(workers: Vec<Child>) -> std::result::Result<Vec<Ended>, Failed> {
    let deadline = Instant::now() + WATCHDOG;
    let mut ended = Vec::new();
    let mut stuck = false;
    for mut worker in workers {
        let stderr = worker.stderr.take().expect("piped");
        let reader = thread::spawn(move || {
            let mut text = String::new();
            // What cannot be read is missing in the text, which the test then says.
            let _ = BufReader::new(stderr).read_to_string(&mut text);
            text
        });
        let status = loop {
            if let Some(status) = worker.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                stuck = true;
                worker.kill()?;
            }
            thread::sleep(Duration::from_millis(5));
        };
        let mut errors = reader
            .join()
            .map_err(|_| "the reader of a worker's errors panicked")?;
        if !status.success() {
            errors.push_str(&format!("({status})"));
        }
        ended.push(Ended {
            success: status.success(),
            errors,
        });
    }
    if stuck {
        Err(format!("workers were stuck: {ended:?}").into())
    } else {
        Ok(ended)
    }
}

/// All failed, and every one's errors contain all of `texts`.
pub(crate) fn all_failed_with(ended: &[Ended], texts: &[&str]) -> std::result::Result<(), Failed> {
    for worker in ended {
        if worker.success || texts.iter().any(|text| !worker.errors.contains(text)) {
            return Err(format!("expected {texts:?} from every worker: {ended:#?}").into());
        }
    }
    Ok(())
}

/// All ended well.
pub(crate) fn all_right(ended: &[Ended]) -> std::result::Result<(), Failed> {
    if ended.iter().all(|worker| worker.success) {
        return Ok(());
    }
    Err(format!("{ended:#?}").into())
}

/// Waits until all workers have said that they are in the middle of what they do.
pub(crate) fn until_ready(workers: &mut [Child]) -> std::result::Result<(), Failed> {
    for worker in workers {
        let mut line = String::new();
        let out = worker.stdout.take().ok_or("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        assert_eq!(line, "ready\n");
    }
    thread::sleep(Duration::from_millis(50));
    Ok(())
}

/// Kills the worker that was started last and returns the others.
pub(crate) fn kill_last(mut workers: Vec<Child>) -> std::result::Result<Vec<Child>, Failed> {
    let mut victim = workers.pop().ok_or("no worker")?;
    victim.kill()?;
    victim.wait()?;
    Ok(workers)
}

/// All failed and name this rank, in words or as the peer.
pub(crate) fn all_name(ended: &[Ended], rank: u32) -> std::result::Result<(), Failed> {
    let names = [format!("rank {rank}"), format!("peer={rank}")];
    let well =
        |worker: &Ended| !worker.success && names.iter().any(|name| worker.errors.contains(name));
    if ended.iter().all(well) {
        return Ok(());
    }
    Err(format!("{ended:#?}").into())
}
