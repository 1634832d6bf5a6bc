//! Topology files and jobs on them.

use std::path::{Path, PathBuf};
use std::time::Instant;

use comm_core::{Error, Result};
#[cfg(feature = "nvml")]
use comm_graph::detect::NvmlGpus;
use comm_graph::detect::{GpuProbe, Machine, Slots, SysfsGpus, SystemFiles};
use comm_graph::model::{System, build};
use comm_graph::plan::Plan;
use comm_graph::xml::{Document, parse, validate};

use super::Lookup;
use super::options::Job;

/// Where virtual machines of some vendors describe themselves.
const VENDOR_FILE: &str = "var/run/nvidia-topologyd/virtualTopology.xml";

/// Reads a topology file.
pub(super) fn document(path: &Path) -> Result<Document> {
    let bytes = std::fs::read(path).map_err(|error| {
        Error::system("reading a topology file", error).with("file", path.display())
    })?;
    parse(path.display().to_string(), &bytes)
}

/// Reads a topology file and says on standard error what is odd about it.
pub(super) fn system(path: &Path) -> Result<System> {
    let document = document(path)?;
    warn(&document);
    build(&document)
}

fn warn(document: &Document) {
    let report = validate(document);
    if report.is_usable() {
        eprint!("{report}");
    }
}

/// The kinds of hosts of a job and its plan.
pub(super) fn plan(job: &Job, lookup: Lookup<'_>) -> Result<(Vec<System>, Plan)> {
    let options = comm_graph::Options::from_variables(lookup)?;
    let systems: Vec<System> = job
        .files
        .iter()
        .map(|path| system(path))
        .collect::<Result<_>>()?;
    let hosts = job.hosts.map_or(systems.len(), |hosts| hosts as usize);
    let hosts = Plan::hosts_in_turn(&systems, hosts);
    let start = Instant::now();
    let clock_ms = || start.elapsed().as_secs_f64() * 1e3;
    let plan = Plan::with_clock(systems.clone(), &hosts, &options, clock_ms)?;
    Ok((systems, plan))
}

/// This machine: what a topology file says about it and what detection adds.
pub(super) fn detected(root: &Path, slots: Slots, lookup: Lookup<'_>) -> Result<Document> {
    let mut base = match base_file(root, lookup) {
        Some(path) => {
            let base = document(&path)?;
            warn(&base);
            validate(&base).into_result()?;
            base
        }
        None => Document::new("detected"),
    };
    let (probe, lacking) = gpu_probe(root);
    let machine = Machine::detect(&SystemFiles::at(root), &*probe);
    if let (Some(lacking), true) = (lacking, !machine.gpus.is_empty()) {
        eprintln!("warning: {lacking}");
    }
    machine.fill(&mut base, slots);
    if let Some(path) = variable(lookup, "TOPO_DUMP_FILE") {
        write(&path, &base.to_xml())?;
    }
    Ok(base)
}

/// NVIDIA's driver where there is one, else sysfs and the reason.
///
/// The driver knows this machine, not the one of another root.
fn gpu_probe(root: &Path) -> (Box<dyn GpuProbe>, Option<Error>) {
    #[cfg(feature = "nvml")]
    if root == Path::new("/") {
        return match NvmlGpus::load() {
            Ok(gpus) => (Box::new(gpus), None),
            Err(error) => (Box::new(SysfsGpus), Some(error)),
        };
    }
    let _ = root;
    (Box::new(SysfsGpus), None)
}

fn base_file(root: &Path, lookup: Lookup<'_>) -> Option<PathBuf> {
    let vendor = root.join(VENDOR_FILE);
    variable(lookup, "TOPO_FILE").or_else(|| vendor.is_file().then_some(vendor))
}

/// A path from the variable of this library or, failing that, NCCL's.
fn variable(lookup: Lookup<'_>, name: &str) -> Option<PathBuf> {
    let values = ["COMM", "NCCL"].map(|prefix| lookup(&format!("{prefix}_{name}")));
    let mut set = values.into_iter().flatten();
    set.find(|value| !value.is_empty()).map(PathBuf::from)
}

/// Writes a file of this command.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Error::system("writing a file", error).with("file", path.display()))
}
