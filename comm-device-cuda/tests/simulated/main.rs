//! The device over a *simulated* CUDA driver, which is compiled here. What passes is right as far as
//! the driver's documentation goes; nothing of it has run on a GPU.
//!
//! The program starts itself with the simulated library in front of any real one. Roles of other
//! processes are played by the same program.

mod edges;
mod processes;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use comm_core::ErrorKind;
use comm_core::device::Device;
use comm_device_cuda::CudaDevice;
use libtest_mimic::{Arguments, Failed, Trial};

/// Set where the simulated driver is in place.
const SIMULATED: &str = "COMM_TEST_CUDA_SIMULATED";
/// What a process that was started by a test does.
const ROLE: &str = "COMM_TEST_CUDA_ROLE";

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        processes::play(&role);
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(SIMULATED).is_some() {
        return libtest_mimic::run(&Arguments::from_args(), trials()).exit_code();
    }
    let directory = tempfile::tempdir().expect("a directory for the simulated driver");
    if let Err(reason) = compile(directory.path()) {
        println!("skipped: {reason}");
        return ExitCode::SUCCESS;
    }
    let status = Command::new(std::env::current_exe().expect("the path of this program"))
        .args(std::env::args_os().skip(1))
        .env(SIMULATED, "1")
        .env("LD_LIBRARY_PATH", directory.path())
        .status()
        .expect("this program starts");
    ExitCode::from(u8::from(!status.success()))
}

/// Compiles the simulated driver under the names by which it is looked for.
fn compile(directory: &Path) -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Err("the simulated driver needs memory files".to_owned());
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulated/driver.c");
    let library: PathBuf = directory.join("libcuda.so");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-pthread", "-o"])
        .args([&library, &source])
        .status()
        .map_err(|error| format!("there is no C compiler ({error})"))?;
    assert!(status.success(), "the simulated driver does not compile");
    std::fs::copy(&library, directory.join("libcuda.so.1")).expect("a copy of the library");
    Ok(())
}

fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = comm_testkit::device::CLAUSES
        .iter()
        .map(|(clause, check)| {
            Trial::test(*clause, move || {
                check(&CudaDevice::new(1)?)?;
                Ok(())
            })
        })
        .collect();
    trials.extend([
        Trial::test("a_number_without_a_gpu_is_refused", no_such_gpu),
        Trial::test("names_and_kinds_tell_the_number", names),
        Trial::test("copies_go_between_gpus", between_gpus),
        Trial::test("a_copy_does_not_wait", processes::a_copy_does_not_wait),
        Trial::test("a_gpu_that_fails_ends_its_events", processes::failing),
        Trial::test("memory_opens_in_another_process", processes::shared),
        Trial::test(
            "memory_does_not_open_where_it_should_not",
            processes::refused,
        ),
        Trial::test(
            "an_edge_over_memory_of_another_process",
            edges::between_processes,
        ),
        Trial::test(
            "an_edge_over_a_network_with_pinned_slots",
            edges::over_a_network,
        ),
    ]);
    trials
}

fn no_such_gpu() -> Result<(), Failed> {
    let error = CudaDevice::new(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    Ok(())
}

fn names() -> Result<(), Failed> {
    let device = CudaDevice::new(1)?;
    assert_eq!(device.name(), "cuda:1");
    assert_eq!(device.memory_kind().to_string(), "device 1");
    Ok(())
}

fn between_gpus() -> Result<(), Failed> {
    let (first, second) = (CudaDevice::new(0)?, CudaDevice::new(1)?);
    let (here, there) = (first.alloc(1000)?, second.alloc(1000)?);
    let (pinned, back) = (first.alloc_pinned(1000)?, second.alloc_pinned(1000)?);
    processes::fill(&pinned, 7);
    processes::copy(&first, &here, &pinned)?;
    processes::copy(&second, &there, &here)?;
    processes::copy(&second, &back, &there)?;
    assert_eq!(processes::contents(&back), [7; 1000]);
    Ok(())
}
