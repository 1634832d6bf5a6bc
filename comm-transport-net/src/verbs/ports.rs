//! Which entry of a port's address table is used.

use std::path::{Path, PathBuf};

use comm_core::Result;

use super::ffi::{Context, Gid, PortAttributes};

/// Entries of an address table that are looked at.
const MOST_ENTRIES: u8 = 64;

/// The entry to use, with its address.
///
/// On InfiniBand the first one. On RoCE the first address of version 2 that stands for an IPv4
/// address, else the first of version 2, else the first that is not empty.
pub(super) fn choose(
    context: &Context,
    port: u8,
    attributes: &PortAttributes,
    wanted: Option<u8>,
) -> Result<(u8, Gid)> {
    if let Some(index) = wanted {
        return Ok((index, context.gid(port, index)?));
    }
    if !attributes.is_ethernet() {
        return Ok((0, context.gid(port, 0)?));
    }
    let entries = u8::try_from(attributes.gid_tbl_len).unwrap_or(0);
    let mut best: Option<(u32, u8, Gid)> = None;
    for index in 0..entries.min(MOST_ENTRIES) {
        let Ok(gid) = context.gid(port, index) else {
            continue;
        };
        if gid == Gid::default() {
            continue;
        }
        let version_2 =
            gid_type(context.name(), port, index).is_some_and(|text| text.contains("v2"));
        let rank = u32::from(version_2) * 2 + u32::from(is_ipv4(&gid));
        if best.is_none_or(|(other, ..)| rank > other) {
            best = Some((rank, index, gid));
        }
    }
    match best {
        Some((_, index, gid)) => Ok((index, gid)),
        None => Ok((0, context.gid(port, 0)?)),
    }
}

fn gid_type(device: &str, port: u8, index: u8) -> Option<String> {
    let path = sysfs(device).join(format!("ports/{port}/gid_attrs/types/{index}"));
    std::fs::read_to_string(path).ok()
}

fn sysfs(device: &str) -> PathBuf {
    Path::new("/sys/class/infiniband").join(device)
}

/// An IPv4 address that is written as an IPv6 one.
fn is_ipv4(gid: &Gid) -> bool {
    matches!(gid.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..])
}

/// The NUMA node and the PCI path of a device.
pub(super) fn place(device: &str) -> (Option<u32>, Option<String>) {
    let link = sysfs(device).join("device");
    let node = std::fs::read_to_string(link.join("numa_node")).ok();
    let node = node.and_then(|text| text.trim().parse().ok());
    let path = std::fs::canonicalize(link).ok();
    (node, path.map(|path| path.to_string_lossy().into_owned()))
}
