//! Refuses sizes for which this machine has not the memory, before anything is started.

use std::fs;

use comm_bench::Size;
use comm_core::{Error, ErrorKind, Result};

use super::jobs::Job;

/// Checks the largest job against the memory that is available now.
///
/// # Errors
///
/// [`ErrorKind::ResourceExhausted`] when the buffers alone need more.
pub(super) fn check(jobs: &[Job]) -> Result<()> {
    let Some(available) = fs::read_to_string("/proc/meminfo")
        .ok()
        .as_deref()
        .and_then(available)
    else {
        return Ok(());
    };
    jobs.iter().try_for_each(|job| fits(job, available))
}

fn fits(job: &Job, available_bytes: u64) -> Result<()> {
    let needed_bytes = job.suite.buffer_bytes().saturating_mul(job.ranks.into());
    if needed_bytes <= available_bytes {
        return Ok(());
    }
    let message = "the buffers of all ranks do not fit into the memory of this machine; choose a \
                   smaller --max-bytes or fewer --ranks";
    Err(Error::new(ErrorKind::ResourceExhausted, message)
        .with("ranks", job.ranks)
        .with("needed", Size(needed_bytes))
        .with("available", Size(available_bytes)))
}

/// The memory that can be used without swapping, in the kernel's summary.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::super::{jobs, options::tests::parse};
    use super::*;

    #[test]
    fn available_memory_is_read_from_the_kernels_summary() {
        let text = "MemTotal:  8000000 kB\nMemFree:  1 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(available(text), Some(2 << 20));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn buffers_of_all_ranks_count() {
        let job = &jobs::of(&parse("-n 4 --max-bytes 1M").unwrap()).unwrap()[0];
        assert!(fits(job, 8 << 20).is_ok());
        let error = fits(job, (8 << 20) - 1).unwrap_err().to_string();
        assert!(
            error.contains("needed=8 MiB") && error.contains("--max-bytes"),
            "{error}"
        );
    }
}
