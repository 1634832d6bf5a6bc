//! How a job comes together, and what it says when it does not.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

use super::process_support::{Ended, Job, WATCHDOG, all_failed_with, end, free_port};

pub(crate) fn missing() -> Result<(), Failed> {
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

pub(crate) fn world_sizes() -> Result<(), Failed> {
    let job = Job::new("reduce");
    let ended = end(vec![job.start(0, 2, &[]), job.start(1, 3, &[])])?;
    all_failed_with(&ended, &["world size"])
}

pub(crate) fn wrong_secret() -> Result<(), Failed> {
    // Longer than one of them starts later than another.
    let job = Job::new("reduce").set("COMM_INIT_TIMEOUT_SECONDS", "8");
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

pub(crate) fn waiting_for_rank_0() -> Result<(), Failed> {
    let job = Job::new("reduce").set("COMM_INIT_TIMEOUT_SECONDS", "8");
    let ended = end(vec![job.start(1, 3, &[]), job.start(2, 3, &[])])?;
    all_failed_with(&ended, &["1 of 3 ranks did not come", ": 0;"])
}

pub(crate) fn settings() -> Result<(), Failed> {
    let job = Job::new("reduce");
    let other = [("COMM_STEP_BYTES", "4096")];
    let mut workers: Vec<_> = (0..5).map(|rank| job.start(rank, 6, &[])).collect();
    workers.push(job.start(5, 6, &other));
    let texts = ["COMM_STEP_BYTES must be equal", "'65536'", "'4096'"];
    all_failed_with(&end(workers)?, &texts)
}

pub(crate) fn job_ids() -> Result<(), Failed> {
    // Two jobs at one host and port: the second one waits for a table of its own, in vain.
    let port = free_port();
    let job = Job::new("reduce").set("COMM_RENDEZVOUS", format!("127.0.0.1:{port}"));
    let other = [("COMM_JOB_ID", "other"), ("COMM_INIT_TIMEOUT_SECONDS", "4")];
    let waiting = job.start(0, 2, &[("COMM_JOB_ID", "one")]);
    // Until the first one serves its table.
    let deadline = Instant::now() + WATCHDOG;
    while TcpStream::connect(("127.0.0.1", port)).is_err() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    let refused = end(vec![job.start(0, 2, &other)]);
    let late = job.start(1, 2, &[("COMM_JOB_ID", "one")]);
    let met = end(vec![waiting, late])?;
    if !met.iter().all(|worker| worker.success) {
        return Err(format!("{met:#?}").into());
    }
    all_failed_with(&refused?, &["another job uses this port"])
}

pub(crate) fn own_job_ids() -> Result<(), Failed> {
    let job = Job::new("reduce").set("COMM_INIT_TIMEOUT_SECONDS", "8");
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

pub(crate) fn ports() -> Result<(), Failed> {
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

pub(crate) fn outside() -> Result<(), Failed> {
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

pub(crate) fn differ() -> Result<(), Failed> {
    let ended = with_transports("differ", ["shm,net", "net", "shm,net"])?;
    if ended.iter().all(|worker| worker.success) {
        Ok(())
    } else {
        Err(format!("{ended:#?}").into())
    }
}

pub(crate) fn disjoint() -> Result<(), Failed> {
    let ended = with_transports("reduce", ["shm", "net", "shm"])?;
    all_failed_with(
        &ended,
        &["no transport connects", "rank 1", "_has=shm", "_has=net"],
    )
}

pub(crate) fn directory() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let path = format!("file://{}", directory.path().display());
    let ended = Job::new("reduce").set("COMM_RENDEZVOUS", path).run(3)?;
    if ended.iter().all(|worker| worker.success) {
        Ok(())
    } else {
        Err(format!("{ended:#?}").into())
    }
}

pub(crate) fn parts() -> Result<(), Failed> {
    let ended = Job::new("parts").run(6)?;
    if ended.iter().all(|worker| worker.success) {
        Ok(())
    } else {
        Err(format!("{ended:#?}").into())
    }
}
