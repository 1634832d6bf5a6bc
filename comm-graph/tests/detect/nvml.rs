//! GPUs from NVIDIA's library: a stand-in that is compiled here, and the absence of one.

use std::path::{Path, PathBuf};
use std::process::Command;

use comm_core::ErrorKind;
use comm_graph::detect::{C2c, Gpu, GpuLink, NvmlGpus};
use comm_graph::xml::BusId;

use super::tree::server;

/// The stand-in as a shared library; `None` without a C compiler.
fn stand_in(directory: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/detect/nvml.c");
    let library = directory.join("libnvidia-ml.so.1");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    match status {
        Ok(status) => {
            assert!(status.success(), "the stand-in does not compile");
            Some(library)
        }
        Err(error) => {
            println!("skipped: no C compiler ({error})");
            None
        }
    }
}

fn gpu(gpus: &[Gpu], address: &str) -> Gpu {
    let bus_id = BusId::parse(address).unwrap();
    gpus.iter()
        .find(|gpu| gpu.bus_id == bus_id)
        .unwrap()
        .clone()
}

#[test]
fn the_library_adds_numbers_capabilities_and_links_to_what_sysfs_shows() {
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = stand_in(directory.path()) else {
        return;
    };
    let gpus = server()
        .machine_with(&NvmlGpus::load_from(library).unwrap())
        .gpus;
    assert_eq!(gpus.len(), 8, "one that cannot be seen is left out");
    let link = |target: &str, target_class, count| GpuLink {
        target: BusId::parse(target).unwrap(),
        target_class,
        count,
    };
    let first = gpu(&gpus, "0000:16:00.0");
    assert_eq!(first.dev, 0);
    assert_eq!(first.compute_capability, Some(90));
    assert_eq!(first.gdr, Some(true));
    let to_switch = link("0000:c3:00.0", 0x06_8000, 12);
    assert_eq!(first.links, [link("0000:17:00.0", 0x03_0200, 4), to_switch]);
    let c2c = C2c {
        megabytes_per_second: 44_712,
        count: 10,
    };
    assert_eq!(first.c2c, Some(c2c));
    let last = gpu(&gpus, "0000:77:00.0");
    assert_eq!((last.dev, last.compute_capability), (7, Some(93)));
    assert_eq!(last.links, [link("0000:76:00.0", 0x03_0200, 4), to_switch]);
    assert_eq!(last.c2c, None);
}

#[test]
fn without_the_library_loading_says_that_it_is_unavailable() {
    let error = NvmlGpus::load_from("/nowhere/libnvidia-ml.so.1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("management library"), "{error}");
}
