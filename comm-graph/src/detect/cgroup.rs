//! What the control groups of this process leave it: CPUs and CPU time.

use super::cpus::CpuSet;
use super::files::SystemFiles;

/// Limits of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Limits {
    /// The CPUs it may use; `None` when nothing limits them.
    pub(super) cpus: Option<CpuSet>,
    /// CPU time per time, in CPUs; `None` without a quota.
    pub(super) quota: Option<f64>,
}

pub(super) fn limits(files: &SystemFiles) -> Limits {
    let mut found = Limits::default();
    if let Some(list) = allowed_by_kernel(files) {
        found.narrow(CpuSet::parse_list(&list));
    }
    let groups = files.text("proc/self/cgroup").unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if controllers.is_empty() {
            version_2(files, path, &mut found);
        }
        for controller in controllers.split(',') {
            match controller {
                "cpuset" => version_1_cpuset(files, controllers, path, &mut found),
                "cpu" => version_1_quota(files, controllers, path, &mut found),
                _ => {}
            }
        }
    }
    found
}

impl Limits {
    /// An empty list means that the file says nothing.
    fn narrow(&mut self, cpus: CpuSet) {
        if cpus.is_empty() {
            return;
        }
        self.cpus = Some(match &self.cpus {
            Some(known) => known.and(&cpus),
            None => cpus,
        });
    }

    fn limit(&mut self, quota: f64, period: f64) {
        let share = quota / period;
        if share.is_finite() && share > 0.0 {
            self.quota = Some(self.quota.map_or(share, |known| known.min(share)));
        }
    }
}

/// The affinity of the process, which the kernel keeps inside its cpuset.
fn allowed_by_kernel(files: &SystemFiles) -> Option<String> {
    let status = files.text("proc/self/status")?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.to_owned())
}

/// The group's directory and its ancestors below `mount`, innermost first.
///
/// Inside a container the path may be the host's while the mount shows the container's own group:
/// then only the mount itself exists.
fn directories(files: &SystemFiles, mount: &str, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = path.trim_matches('/');
    // Real groups are a handful of levels deep.
    for _ in 0..64 {
        let directory = if at.is_empty() {
            mount.to_owned()
        } else {
            format!("{mount}/{at}")
        };
        if files.exists(&directory) {
            found.push(directory);
        }
        if at.is_empty() {
            break;
        }
        at = at.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    found
}

fn version_2(files: &SystemFiles, path: &str, found: &mut Limits) {
    // Mixed set-ups mount the second version beside the first.
    for mount in ["sys/fs/cgroup", "sys/fs/cgroup/unified"] {
        let directories = directories(files, mount, path);
        let cpuset = directories
            .iter()
            .find_map(|at| files.line(&format!("{at}/cpuset.cpus.effective")));
        if let Some(list) = cpuset {
            found.narrow(CpuSet::parse_list(&list));
        }
        for at in &directories {
            let Some(line) = files.line(&format!("{at}/cpu.max")) else {
                continue;
            };
            let mut numbers = line.split_whitespace().map(str::parse::<f64>);
            if let (Some(Ok(quota)), Some(Ok(period))) = (numbers.next(), numbers.next()) {
                found.limit(quota, period);
            }
        }
    }
}

/// Mounts are named after one controller or after all that share the hierarchy.
fn mounts<'a>(controllers: &'a str, controller: &'a str) -> impl Iterator<Item = String> {
    let names = [controllers, controller];
    let count = if controllers == controller { 1 } else { 2 };
    names
        .into_iter()
        .take(count)
        .map(|name| format!("sys/fs/cgroup/{name}"))
}

fn version_1_cpuset(files: &SystemFiles, controllers: &str, path: &str, found: &mut Limits) {
    for mount in mounts(controllers, "cpuset") {
        let line = directories(files, &mount, path).into_iter().find_map(|at| {
            let line = |file| files.line(&format!("{at}/{file}"));
            line("cpuset.effective_cpus").or_else(|| line("cpuset.cpus"))
        });
        if let Some(list) = line {
            found.narrow(CpuSet::parse_list(&list));
        }
    }
}

fn version_1_quota(files: &SystemFiles, controllers: &str, path: &str, found: &mut Limits) {
    for mount in mounts(controllers, "cpu") {
        for at in directories(files, &mount, path) {
            let number = |file| files.number(&format!("{at}/{file}"));
            if let (Some(quota), Some(period)) =
                (number("cpu.cfs_quota_us"), number("cpu.cfs_period_us"))
            {
                found.limit(quota as f64, period as f64);
            }
        }
    }
}
