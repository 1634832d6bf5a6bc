//! Facts about this machine for the head of a table.

use std::fs;

/// Operating system, kernel and processor in words; what cannot be found out is left out.
pub(crate) fn system() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    describe(
        std::env::consts::OS,
        std::env::consts::ARCH,
        kernel.trim(),
        processor(&cpus),
    )
}

fn describe(os: &str, architecture: &str, kernel: &str, processor: Option<&str>) -> String {
    let parts = [os, kernel, architecture];
    let mut text = parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    if let Some(processor) = processor {
        text.push_str(", ");
        text.push_str(processor);
    }
    text
}

/// The name of the processor in the kernel's list; other architectures than x86 have none.
fn processor(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.trim()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_once() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: Fast CPU\n\nprocessor\t: 1\nmodel name\t: Fast CPU\n";
        assert_eq!(processor(cpuinfo), Some("Fast CPU"));
        assert_eq!(processor("processor\t: 0\nBogoMIPS\t: 50\n"), None);
    }

    #[test]
    fn unknown_facts_are_left_out() {
        assert_eq!(
            describe("linux", "x86_64", "6.1", Some("CPU")),
            "linux 6.1 x86_64, CPU"
        );
        assert_eq!(describe("macos", "aarch64", "", None), "macos aarch64");
    }
}
