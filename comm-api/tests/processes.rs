//! Ranks as processes: this test program starts itself as workers, and kills some of them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use comm_api::{Communicator, FrameHead, FrameOptions, FrameRef, ReduceOp, Result};
use libtest_mimic::{Arguments, Failed, Trial};

/// Names the scenario that a worker plays.
const SCENARIO: &str = "COMM_TEST_SCENARIO";

/// How long a worker may live.
const WATCHDOG: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(SCENARIO) {
        return match play(&scenario) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut trials = vec![
        Trial::test("a_missing_rank_is_listed_at_the_deadline", missing),
        Trial::test(
            "disagreeing_world_sizes_are_an_error_on_every_rank",
            world_sizes,
        ),
        Trial::test("a_wrong_secret_is_refused_and_named", wrong_secret),
        Trial::test("only_those_who_did_not_come_are_missed", waiting_for_rank_0),
        Trial::test("different_settings_are_named_by_every_rank", settings),
        Trial::test("jobs_of_different_ids_do_not_meet", job_ids),
        Trial::test("both_sides_are_told_that_their_job_ids_differ", own_job_ids),
        Trial::test("data_listens_on_the_port_behind_that_of_control", ports),
        Trial::test("a_rank_outside_the_world_is_an_error", outside),
    ];
    // Ranks that are threads of one process are no processes. RDMA has tests of its own, on machines
    // with a card.
    let between_processes: Vec<_> = comm_api::compiled_transports()
        .iter()
        .filter(|name| !["p2p", "verbs"].contains(name))
        .collect();
    if !between_processes.is_empty() {
        trials.extend([
            Trial::test("mismatched_counts_name_both_processes", mismatch),
            Trial::test(
                "a_circle_of_single_threaded_ranks_ends_with_its_description",
                circle,
            ),
            Trial::test("a_directory_is_a_rendezvous", directory),
        ]);
    }
    if between_processes.len() > 1 {
        trials.extend([
            Trial::test("ranks_that_differ_agree_on_what_both_have", differ),
            Trial::test("ranks_with_nothing_in_common_name_what_each_has", disjoint),
        ]);
    }
    for &transport in between_processes {
        trials.push(Trial::test(
            format!("processes_reduce_over_{transport}"),
            move || reduce(transport),
        ));
        if transport == "net" {
            trials.push(Trial::test(
                "ranks_of_one_host_are_neighbours_in_rings",
                near_ranks,
            ));
        }
        trials.push(Trial::test(
            format!("a_killed_process_is_named_by_all_others_over_{transport}"),
            move || kill("endless", transport),
        ));
        trials.push(Trial::test(
            format!("a_killed_process_ends_the_frames_of_all_others_over_{transport}"),
            move || kill("endless_frames", transport),
        ));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// What a worker does.
fn play(scenario: &str) -> Result<()> {
    let comm = Communicator::from_env()?;
    let mut value = [comm.rank() + 1; 1000];
    match scenario {
        "reduce" => {
            comm.all_reduce(&mut value, ReduceOp::Sum)?;
            let n = comm.world_size();
            assert!(value.iter().all(|sum| *sum == n * (n + 1) / 2));
            let edges = comm.explain().edges;
            // Left to itself the library takes the first that connects processes.
            let mut usable = comm_api::compiled_transports().iter();
            let wanted = std::env::var("COMM_TRANSPORTS").ok().or_else(|| {
                let between_processes = usable.find(|name| !["p2p", "verbs"].contains(name));
                between_processes.map(ToString::to_string)
            });
            assert!(
                !edges.is_empty()
                    && edges
                        .iter()
                        .all(|edge| Some(&edge.transport) == wanted.as_ref())
            );
            comm.barrier()
        }
        "endless" => {
            comm.barrier()?;
            println!("ready");
            loop {
                comm.all_reduce(&mut value, ReduceOp::Max)?;
            }
        }
        "endless_frames" => {
            let options = FrameOptions::new();
            let (rank, n) = (comm.rank(), comm.world_size());
            let nowhere = |_: &FrameHead<'_>| Ok(Vec::new());
            comm.barrier()?;
            println!("ready");
            loop {
                let receive = comm.recv_frame((rank + n - 1) % n, nowhere, &options)?;
                let frame = FrameRef::default();
                comm.send_frame_blocking((rank + 1) % n, frame, &options)?;
                receive.wait()?;
            }
        }
        "differ" => {
            comm.all_reduce(&mut value, ReduceOp::Sum)?;
            assert!(value.iter().all(|sum| *sum == 6));
            // In both directions, beside the collective's edges.
            let (before, after) = (
                (comm.rank() + 2) % comm.world_size(),
                (comm.rank() + 1) % comm.world_size(),
            );
            comm.send(&[comm.rank()], after)?;
            let mut received = [u32::MAX];
            comm.recv(&mut received, before)?;
            assert_eq!(received, [before]);
            for edge in comm.explain().edges {
                let with_rank_1 = comm.rank() == 1 || edge.peer == 1;
                let wanted = if with_rank_1 { "net" } else { "shm" };
                assert_eq!(edge.transport, wanted, "{edge:?}");
                // Rank 1 has no shm to pass over.
                let passed_over = with_rank_1 && comm.rank() != 1 && edge.sends;
                assert_eq!(edge.passed_over.len(), usize::from(passed_over), "{edge:?}");
            }
            comm.barrier()
        }
        "near ranks" => {
            let explanation = comm.explain();
            assert_eq!(explanation.ring, [0, 2, 4, 1, 3]);
            assert!(explanation.to_string().contains("ring: [0, 2, 4, 1, 3]"));
            let n = comm.world_size();
            comm.all_reduce(&mut value, ReduceOp::Sum)?;
            assert!(value.iter().all(|sum| *sum == n * (n + 1) / 2));
            let mut blocks: Vec<u32> = (0..n * 1000).map(|_| comm.rank()).collect();
            comm.all_gather(&mut blocks)?;
            let owners = (0..n).flat_map(|rank| [rank; 1000]);
            assert!(blocks.into_iter().eq(owners));
            comm.barrier()
        }
        "mismatch" => {
            let count = 10 + comm.rank() as usize;
            comm.all_reduce(&mut value[..count], ReduceOp::Sum)
        }
        "circle" if comm.rank() == 0 => comm.all_reduce(&mut value, ReduceOp::Sum),
        "circle" => comm.recv(&mut value, 0),
        other => panic!("no scenario {other}"),
    }
}

/// A job of workers.
struct Job {
    scenario: &'static str,
    variables: Vec<(&'static str, String)>,
}

/// How a worker ended.
#[derive(Debug)]
struct Ended {
    success: bool,
    errors: String,
}

impl Job {
    fn new(scenario: &'static str) -> Self {
        let rendezvous = format!("127.0.0.1:{}", free_port());
        Self {
            scenario,
            variables: vec![
                ("COMM_RENDEZVOUS", rendezvous),
                ("COMM_SECRET", "0123456789abcdef0123456789abcdef".to_owned()),
                ("COMM_INIT_TIMEOUT_SECONDS", "20".to_owned()),
            ],
        }
    }

    fn set(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.retain(|(other, _)| *other != name);
        self.variables.push((name, value.into()));
        self
    }

    fn start(&self, rank: u32, world_size: u32, extra: &[(&str, &str)]) -> Child {
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

    fn run(&self, world_size: u32) -> Result<Vec<Ended>, Failed> {
        end((0..world_size)
            .map(|rank| self.start(rank, world_size, &[]))
            .collect())
    }
}

/// A port that is free now and that no other test of this process was given: the system may offer
/// one again before the job that has it listens there.
fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        if GIVEN.lock().expect("no test panics here").insert(port) {
            return port;
        }
    }
}

/// Waits for all workers; a stuck one is killed and fails the test.
fn end(workers: Vec<Child>) -> Result<Vec<Ended>, Failed> {
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
        let errors = reader
            .join()
            .map_err(|_| "the reader of a worker's errors panicked")?;
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
fn all_failed_with(ended: &[Ended], texts: &[&str]) -> Result<(), Failed> {
    for worker in ended {
        if worker.success || texts.iter().any(|text| !worker.errors.contains(text)) {
            return Err(format!("expected {texts:?} from every worker: {ended:#?}").into());
        }
    }
    Ok(())
}

fn reduce(transport: &'static str) -> Result<(), Failed> {
    for world_size in [1, 2, 4] {
        // Alone there is no edge to look at.
        let scenario = if world_size == 1 {
            "mismatch"
        } else {
            "reduce"
        };
        let job = Job::new(scenario).set("COMM_TRANSPORTS", transport);
        let ended = job.run(world_size)?;
        if !ended.iter().all(|worker| worker.success) {
            return Err(format!("{ended:#?}").into());
        }
    }
    Ok(())
}

/// Ranks that were dealt out to two hosts in turn.
fn near_ranks() -> Result<(), Failed> {
    let job = Job::new("near ranks").set("COMM_ALGO", "ring");
    let host = |rank| [("COMM_HOSTID", if rank % 2 == 0 { "even" } else { "odd" })];
    let workers = (0..5).map(|rank| job.start(rank, 5, &host(rank))).collect();
    for ended in end(workers)? {
        if !ended.success {
            return Err(ended.errors.into());
        }
    }
    Ok(())
}

fn kill(scenario: &'static str, transport: &'static str) -> Result<(), Failed> {
    let before = names_in_dev_shm();
    let job = Job::new(scenario).set("COMM_TRANSPORTS", transport);
    let mut workers: Vec<_> = (0..4).map(|rank| job.start(rank, 4, &[])).collect();
    let (sender, ready) = mpsc::channel();
    for worker in &mut workers {
        let stdout = worker.stdout.take().expect("piped");
        let sender = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The test may be over.
                let _ = sender.send(line);
            }
        });
    }
    for _ in 0..4 {
        ready.recv_timeout(WATCHDOG)?;
    }
    let mut victim = workers.remove(2);
    let killed = victim.kill();
    victim.wait()?;
    killed?;
    let ended = end(workers)?;
    all_failed_with(&ended, &["peer died", "rank 2"])?;
    if names_in_dev_shm() == before {
        Ok(())
    } else {
        Err("/dev/shm has changed".into())
    }
}

fn names_in_dev_shm() -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().contains("comm"))
        .collect();
    names.sort();
    names
}

fn missing() -> Result<(), Failed> {
    let job = Job::new("reduce").set("COMM_INIT_TIMEOUT_SECONDS", "2");
    let ended = end([0, 2, 3].map(|rank| job.start(rank, 6, &[])).into())?;
    all_failed_with(&ended, &["1", "4", "5"])?;
    if ended
        .iter()
        .all(|worker| worker.errors.contains("did not come"))
    {
        Ok(())
    } else {
        Err(format!("{ended:#?}").into())
    }
}

fn world_sizes() -> Result<(), Failed> {
    let job = Job::new("reduce");
    let ended = end(vec![job.start(0, 2, &[]), job.start(1, 3, &[])])?;
    all_failed_with(&ended, &["world size"])
}

fn wrong_secret() -> Result<(), Failed> {
    let job = Job::new("reduce").set("COMM_INIT_TIMEOUT_SECONDS", "3");
    let stranger = [("COMM_SECRET", "ffffffffffffffffffffffffffffffff")];
    let ended = end(vec![
        job.start(0, 3, &[]),
        job.start(1, 3, &stranger),
        job.start(2, 3, &[]),
    ])?;
    // Whichever serves refuses those of the other secret, who end at once; those who serve and wait
    // can say whom they refused, and miss nobody who is there.
    all_failed_with(&ended, &["secret"])?;
    let itself = |(rank, worker): (usize, &Ended)| {
        worker.errors.contains("did not come") && worker.errors.contains(&format!(": {rank};"))
    };
    if ended.iter().enumerate().any(itself) {
        return Err(format!("a rank misses itself: {ended:#?}").into());
    }
    Ok(())
}

fn waiting_for_rank_0() -> Result<(), Failed> {
    let job = Job::new("reduce").set("COMM_INIT_TIMEOUT_SECONDS", "3");
    let ended = end(vec![job.start(1, 3, &[]), job.start(2, 3, &[])])?;
    all_failed_with(&ended, &["1 of 3 ranks did not come", ": 0;"])
}

fn settings() -> Result<(), Failed> {
    let job = Job::new("reduce");
    let other = [("COMM_STEP_BYTES", "4096")];
    let mut workers: Vec<_> = (0..5).map(|rank| job.start(rank, 6, &[])).collect();
    workers.push(job.start(5, 6, &other));
    let texts = ["COMM_STEP_BYTES must be equal", "'65536'", "'4096'"];
    all_failed_with(&end(workers)?, &texts)
}

fn job_ids() -> Result<(), Failed> {
    // Two jobs at one host and port: the second one waits for a table of its own, in vain.
    let job = Job::new("reduce").set("COMM_INIT_TIMEOUT_SECONDS", "6");
    let other = [("COMM_JOB_ID", "other"), ("COMM_INIT_TIMEOUT_SECONDS", "2")];
    let waiting = job.start(0, 2, &[("COMM_JOB_ID", "one")]);
    thread::sleep(Duration::from_millis(500));
    let refused = end(vec![job.start(0, 2, &other)]);
    let late = job.start(1, 2, &[("COMM_JOB_ID", "one")]);
    let met = end(vec![waiting, late])?;
    if !met.iter().all(|worker| worker.success) {
        return Err(format!("{met:#?}").into());
    }
    all_failed_with(&refused?, &["another job uses this port"])
}

fn own_job_ids() -> Result<(), Failed> {
    let job = Job::new("reduce").set("COMM_INIT_TIMEOUT_SECONDS", "2");
    let workers = (0..2).map(|rank| {
        let id = if rank == 0 { "one" } else { "other" };
        job.start(rank, 2, &[("COMM_JOB_ID", id)])
    });
    all_failed_with(&end(workers.collect())?, &["COMM_JOB_ID"])
}

/// Two ports in a row that are free now, held until they are dropped.
fn two_ports() -> (TcpListener, TcpListener) {
    loop {
        let first = TcpListener::bind(("127.0.0.1", free_port())).expect("a port that was free");
        let port = first.local_addr().expect("its address").port();
        if let Some(next) = port.checked_add(1)
            && let Ok(second) = TcpListener::bind(("127.0.0.1", next))
        {
            return (first, second);
        }
    }
}

fn ports() -> Result<(), Failed> {
    if !comm_api::compiled_transports().contains(&"net") {
        return Ok(());
    }
    // Without a secret there is one address to listen on.
    let mut job = Job::new("reduce").set("COMM_TRANSPORTS", "net");
    job.variables.retain(|(name, _)| *name != "COMM_SECRET");
    let ((first, behind_first), (second, behind_second)) = (two_ports(), two_ports());
    let port = |listener: &TcpListener| Ok::<_, Failed>(listener.local_addr()?.port().to_string());
    let (one, other) = (port(&first)?, port(&second)?);
    drop((first, second, behind_second));
    // The port for data is taken on one of them.
    let start = |rank, port: &str| job.start(rank, 2, &[("COMM_PORT", port)]);
    let refused = end(vec![start(0, &one), start(1, &other)])?;
    drop(behind_first);
    let met = end(vec![start(0, &one), start(1, &other)])?;
    if !met.iter().all(|worker| worker.success) {
        return Err(format!("{met:#?}").into());
    }
    all_failed_with(
        &refused,
        &["data connections may listen", "COMM_PORT_RANGE"],
    )
}

fn outside() -> Result<(), Failed> {
    let job = Job::new("reduce");
    let ended = end(vec![job.start(0, 2, &[]), job.start(2, 2, &[])])?;
    all_failed_with(&ended, &["2"])
}

/// Three ranks of which these transports can be used, as if they were built with these features.
fn with_transports(scenario: &'static str, transports: [&str; 3]) -> Result<Vec<Ended>, Failed> {
    let job = Job::new(scenario);
    let workers = (0..)
        .zip(transports)
        .map(|(rank, transports)| job.start(rank, 3, &[("COMM_TRANSPORTS", transports)]));
    end(workers.collect())
}

fn differ() -> Result<(), Failed> {
    let ended = with_transports("differ", ["shm,net", "net", "shm,net"])?;
    if ended.iter().all(|worker| worker.success) {
        Ok(())
    } else {
        Err(format!("{ended:#?}").into())
    }
}

fn disjoint() -> Result<(), Failed> {
    let ended = with_transports("reduce", ["shm", "net", "shm"])?;
    all_failed_with(
        &ended,
        &["no transport connects", "rank 1", "_has=shm", "_has=net"],
    )
}

fn mismatch() -> Result<(), Failed> {
    all_failed_with(
        &Job::new("mismatch").run(2)?,
        &["rank 0", "rank 1", "10 u32", "11 u32"],
    )
}

fn circle() -> Result<(), Failed> {
    all_failed_with(
        &Job::new("circle").run(2)?,
        &["circle", "all_reduce", "send/recv"],
    )
}

fn directory() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let path = format!("file://{}", directory.path().display());
    let ended = Job::new("reduce").set("COMM_RENDEZVOUS", path).run(3)?;
    if ended.iter().all(|worker| worker.success) {
        Ok(())
    } else {
        Err(format!("{ended:#?}").into())
    }
}
