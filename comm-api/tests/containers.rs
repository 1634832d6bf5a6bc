//! Shared memory between containers: two ranks on one kernel whose namespaces differ. Every obstacle is
//! either none, which is proved by using the memory, or has its reason in `explain()`.
//!
//! Needs root and `unshare`, `nsenter`, `ip`; says what is missing and passes where it cannot run.

use std::process::ExitCode;

#[path = "support/worker.rs"]
#[cfg_attr(
    not(all(feature = "shm", feature = "tcp", target_os = "linux")),
    allow(dead_code)
)]
mod worker;

fn main() -> ExitCode {
    if let Some(code) = worker::played() {
        return code;
    }
    let arguments = libtest_mimic::Arguments::from_args();
    libtest_mimic::run(&arguments, trials::all()).exit_code()
}

#[cfg(not(all(feature = "shm", feature = "tcp", target_os = "linux")))]
mod trials {
    pub(crate) const fn all() -> Vec<libtest_mimic::Trial> {
        Vec::new()
    }
}

#[cfg(all(feature = "shm", feature = "tcp", target_os = "linux"))]
mod trials {
    use std::fs;
    use std::process::{Child, Command};
    use std::sync::atomic::{AtomicU8, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use libtest_mimic::{Failed, Trial};

    use crate::worker::{Ended, start};

    pub(crate) fn all() -> Vec<Trial> {
        let mut trials = vec![
            Trial::test("pid_namespaces_are_no_obstacle", || {
                shared(&["--pid", "--fork", "--mount-proc"])
            }),
            Trial::test("ipc_namespaces_are_no_obstacle", || shared(&["--ipc"])),
            Trial::test("mount_namespaces_are_no_obstacle", || {
                shared_after(&["--mount"], "mount -t tmpfs -o size=64k none /dev/shm")
            }),
            Trial::test("host_names_make_hosts_unless_joined", host_names),
            Trial::test("network_namespaces_are_refused_with_the_reason", networks),
        ];
        if cfg!(feature = "shm-named") {
            trials.extend([
                Trial::test("named_memory_crosses_network_namespaces", named),
                Trial::test("named_memory_needs_one_dev_shm", named_apart),
                Trial::test("a_full_dev_shm_is_passed_over_with_advice", named_full),
                Trial::test("named_memory_leaves_no_names", named_leaves_nothing),
            ]);
        }
        trials
    }

    /// Whether namespaces can be made here.
    fn possible() -> bool {
        let tried = Command::new("unshare")
            .args(["--net", "--mount", "ip", "link"])
            .output();
        let possible = tried.is_ok_and(|output| output.status.success());
        if !possible {
            eprintln!("skipped: needs root, unshare, nsenter and ip");
        }
        possible
    }

    /// Two ranks that meet in a directory.
    struct Job {
        directory: tempfile::TempDir,
        variables: Vec<(&'static str, String)>,
    }

    impl Job {
        fn new() -> Result<Self, Failed> {
            Ok(Self {
                directory: tempfile::tempdir()?,
                variables: vec![("COMM_SECRET", "0123456789abcdef".repeat(4))],
            })
        }

        fn set(mut self, name: &'static str, value: &str) -> Self {
            self.variables.push((name, value.to_owned()));
            self
        }

        /// This program as the rank, started by the words of `container`.
        fn command(&self, rank: u32, container: &[&str]) -> Result<Command, Failed> {
            let this = std::env::current_exe()?;
            let this = this.to_str().ok_or("a path that is no text")?.to_owned();
            let mut words = container
                .iter()
                .map(|word| (*word).to_owned())
                .chain([this]);
            let mut command = Command::new(words.next().ok_or("no command")?);
            let meeting = self.directory.path().join("meeting");
            command
                .args(words)
                .env("COMM_RANK", rank.to_string())
                .env("COMM_WORLD_SIZE", "2")
                .env("COMM_RENDEZVOUS", format!("file://{}", meeting.display()))
                .envs(self.variables.iter().map(|(name, value)| (name, value)));
            Ok(command)
        }

        /// Rank 0 here and rank 1 in a container.
        fn run(&self, container: &[&str]) -> Result<[Ended; 2], Failed> {
            let first = start(&mut self.command(0, &[])?)?;
            let second = start(&mut self.command(1, container)?)?;
            Ok([first.end()?, second.end()?])
        }
    }

    /// Both ranks worked, over `transport`, and rank 0 gave all of these reasons.
    fn connected_over(ended: &[Ended], transport: &str, reasons: &[&str]) -> Result<(), Failed> {
        let edge = format!("channel 0): {transport}");
        // A rank that failed may have done so because of the other one.
        let all = |failed: Failed| format!("{:?}, of {ended:#?}", failed.message());
        for rank in ended {
            rank.succeeded_with(&[&edge]).map_err(all)?;
        }
        ended[0].succeeded_with(reasons)
    }

    fn shared(flags: &[&str]) -> Result<(), Failed> {
        shared_after(flags, "true")
    }

    /// Ranks share memory although one of them is in new namespaces, in which `first` was run.
    fn shared_after(flags: &[&str], first: &str) -> Result<(), Failed> {
        if !possible() {
            return Ok(());
        }
        let script = format!("{first} && exec \"$0\"");
        let container = [&["unshare"], flags, &["sh", "-c", &script]].concat();
        connected_over(&Job::new()?.run(&container)?, "shm", &[])
    }

    fn host_names() -> Result<(), Failed> {
        if !possible() || comm_testkit::network::address_for_other_hosts().is_none() {
            return Ok(());
        }
        let container = [
            "unshare",
            "--uts",
            "sh",
            "-c",
            "hostname other && exec \"$0\"",
        ];
        let apart = Job::new()?.run(&container)?;
        connected_over(
            &apart,
            "net",
            &["not shm: the ranks are on different hosts"],
        )?;
        let joined = Job::new()?.set("COMM_HOSTID", "pod").run(&container)?;
        connected_over(&joined, "shm", &[])
    }

    /// A network namespace, linked to this one, as long as the value lives.
    struct Network {
        holder: Child,
    }

    impl Network {
        fn new() -> Result<Self, Failed> {
            static COUNT: AtomicU8 = AtomicU8::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let holder = Command::new("unshare")
                .args(["--net", "sleep", "300"])
                .spawn()?;
            let network = Self { holder };
            let pid = network.pid();
            let own = fs::read_link("/proc/self/ns/net")?;
            let deadline = Instant::now() + Duration::from_secs(60);
            while fs::read_link(format!("/proc/{pid}/ns/net"))? == own {
                if Instant::now() > deadline {
                    return Err("unshare made no namespace".into());
                }
                thread::sleep(Duration::from_millis(5));
            }
            // Other runs of this test at the same time have other process ids.
            let id = std::process::id();
            let (here, there) = (format!("ct{id}{number}"), "eth0");
            // Four addresses out of a network for tests (RFC 2544), which no machine is in.
            let first = (id.wrapping_mul(4) + u32::from(number)) % (1 << 15) * 4;
            let [_, second, third, fourth] = (first + (18 << 16)).to_be_bytes();
            let net = format!("198.{second}.{third}");
            let (ours, theirs) = (fourth + 1, fourth + 2);
            let script = format!(
                "set -e
                 ip link add {here} type veth peer name {there} netns {pid}
                 ip addr add {net}.{ours}/30 dev {here}
                 ip link set {here} up
                 nsenter -t {pid} -n ip link set lo up
                 nsenter -t {pid} -n ip addr add {net}.{theirs}/30 dev {there}
                 nsenter -t {pid} -n ip link set {there} up"
            );
            let made = Command::new("sh").args(["-c", &script]).output()?;
            if !made.status.success() {
                return Err(String::from_utf8_lossy(&made.stderr).into_owned().into());
            }
            Ok(network)
        }

        fn pid(&self) -> String {
            self.holder.id().to_string()
        }
    }

    impl Drop for Network {
        fn drop(&mut self) {
            // The link goes with the namespace; without root there is neither.
            let _ = self.holder.kill();
            let _ = self.holder.wait();
        }
    }

    fn in_network(job: &Job, then: &[&str]) -> Result<[Ended; 2], Failed> {
        let network = Network::new()?;
        let pid = network.pid();
        let container = [&["nsenter", "-t", &pid, "-n"], then].concat();
        job.run(&container)
    }

    fn networks() -> Result<(), Failed> {
        if !possible() {
            return Ok(());
        }
        let ended = in_network(&Job::new()?, &[])?;
        let reasons = [
            "not shm: the ranks are in different network namespaces",
            "COMM_SHM_NAMED=1",
        ];
        connected_over(&ended, "net", &reasons)
    }

    fn named() -> Result<(), Failed> {
        if !possible() {
            return Ok(());
        }
        let ended = in_network(&Job::new()?.set("COMM_SHM_NAMED", "1"), &[])?;
        connected_over(&ended, "shm", &["COMM_SHM_NAMED=1 (COMM_SHM_NAMED)"])
    }

    fn named_apart() -> Result<(), Failed> {
        if !possible() {
            return Ok(());
        }
        let script = "mount -t tmpfs none /dev/shm && exec \"$0\"";
        let container = ["unshare", "--mount", "sh", "-c", script];
        let ended = Job::new()?.set("COMM_SHM_NAMED", "1").run(&container)?;
        connected_over(
            &ended,
            "net",
            &["not shm: the ranks have different /dev/shm"],
        )
    }

    fn named_full() -> Result<(), Failed> {
        if !possible() {
            return Ok(());
        }
        // Both in one container, whose /dev/shm has room for doorbells and for no edge.
        let job = Job::new()?.set("COMM_SHM_NAMED", "1");
        let script = "mount -t tmpfs -o size=128k none /dev/shm
                      COMM_RANK=1 \"$0\" & \"$0\" && wait $!";
        let container = ["unshare", "--mount", "sh", "-c", script];
        let ended = start(&mut job.command(0, &container)?)?.end()?;
        let advice = [
            "channel 0): net",
            "not shm:",
            "/dev/shm is full",
            "--shm-size",
        ];
        ended.succeeded_with(&advice)
    }

    fn named_leaves_nothing() -> Result<(), Failed> {
        if !possible() {
            return Ok(());
        }
        let job = Job::new()?.set("COMM_SHM_NAMED", "1");
        let script = "mount -t tmpfs none /dev/shm
                      COMM_RANK=1 \"$0\" & \"$0\" && wait $! && echo left: $(ls /dev/shm)!";
        let container = ["unshare", "--mount", "sh", "-c", script];
        let ended = start(&mut job.command(0, &container)?)?.end()?;
        ended.succeeded_with(&["channel 0): shm", "left: !"])
    }
}
