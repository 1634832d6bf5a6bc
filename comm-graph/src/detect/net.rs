//! Network ports: InfiniBand ports and Ethernet interfaces.

use std::collections::BTreeSet;

use crate::xml::BusId;

use super::files::SystemFiles;
use super::pci::PciDevice;

const INTERFACES: &str = "sys/class/net";
const INFINIBAND: &str = "sys/class/infiniband";

/// What kind of port it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A port of an InfiniBand or RoCE device.
    Infiniband {
        /// The port's number on its device.
        port: u32,
        /// The device's identity; 0 when unknown.
        guid: u64,
    },
    /// A network interface of the kernel.
    Interface,
}

/// A network port that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The device's or interface's name.
    pub name: String,
    /// InfiniBand or interface.
    pub kind: PortKind,
    /// Speed in Mb/s; `None` when the driver does not tell.
    pub megabits: Option<u64>,
    /// The PCI device it belongs to; `None` for virtual ones.
    pub bus_id: Option<BusId>,
}

impl Port {
    /// The speed where the driver tells none, in Mb/s.
    pub const UNKNOWN_MEGABITS: u64 = 10_000;

    /// The ports of the kind that a job would use: InfiniBand if there is any that is up,
    /// otherwise interfaces of real cards, otherwise virtual interfaces.
    ///
    /// Mixing them would let a slow management interface into the rings.
    pub(super) fn detect(files: &SystemFiles) -> Vec<Self> {
        let infiniband = infiniband(files);
        if !infiniband.is_empty() {
            return infiniband;
        }
        let (real, virtual_ones): (Vec<Self>, Vec<Self>) = interfaces(files)
            .into_iter()
            .partition(|port| port.bus_id.is_some());
        if real.is_empty() { virtual_ones } else { real }
    }
}

fn infiniband(files: &SystemFiles) -> Vec<Port> {
    let mut found = Vec::new();
    for name in files.entries(INFINIBAND) {
        let device = format!("{INFINIBAND}/{name}");
        let bus_id = PciDevice::behind(files, &format!("{device}/device"));
        let guid = ["node_guid", "sys_image_guid"]
            .iter()
            .filter_map(|file| files.line(&format!("{device}/{file}")))
            .find_map(|text| u64::from_str_radix(&text.replace(':', ""), 16).ok())
            .unwrap_or(0);
        for port in files.entries(&format!("{device}/ports")) {
            let line = |file| files.line(&format!("{device}/ports/{port}/{file}"));
            // "4: ACTIVE"
            let active = line("state").is_some_and(|state| state.starts_with("4:"));
            let Ok(port) = port.parse::<u32>() else {
                continue;
            };
            if !active || port > i32::MAX as u32 {
                continue;
            }
            found.push(Port {
                name: name.clone(),
                kind: PortKind::Infiniband { port, guid },
                megabits: line("rate").and_then(|rate| megabits(&rate)),
                bus_id,
            });
        }
    }
    found
}

/// Reads `400 Gb/sec (4X NDR)`.
fn megabits(rate: &str) -> Option<u64> {
    let gigabits: f64 = rate.split_whitespace().next()?.parse().ok()?;
    let plausible = gigabits > 0.0 && gigabits < 1e6;
    plausible.then_some((gigabits * 1000.0) as u64)
}

fn interfaces(files: &SystemFiles) -> Vec<Port> {
    let names: Vec<String> = files
        .entries(INTERFACES)
        .into_iter()
        .filter(|name| is_up(files, name))
        .collect();
    let card = |name: &str| PciDevice::behind(files, &format!("{INTERFACES}/{name}/device"));
    let cards: BTreeSet<BusId> = names.iter().filter_map(|name| card(name)).collect();
    let ports = names.into_iter().filter_map(|name| {
        let bus_id = card(&name);
        let parent = PciDevice::behind(files, &format!("{INTERFACES}/{name}/device/physfn"));
        if parent.is_some_and(|parent| cards.contains(&parent)) {
            // A virtual function beside its own card shares that card's wire.
            return None;
        }
        let speed = files.number(&format!("{INTERFACES}/{name}/speed"));
        let plausible = |speed: &u64| (1..=100_000_000).contains(speed);
        Some(Port {
            name,
            kind: PortKind::Interface,
            megabits: speed
                .and_then(|speed| u64::try_from(speed).ok())
                .filter(plausible),
            bus_id,
        })
    });
    ports.collect()
}

/// Whether an interface can carry traffic to other machines.
fn is_up(files: &SystemFiles, name: &str) -> bool {
    const ETHERNET: i64 = 1;
    const INFINIBAND: i64 = 32;
    // Bridges and tunnels inside the host.
    let local = ["lo", "docker", "veth", "virbr", "br-", "cni", "tun", "tap"];
    if local.iter().any(|prefix| name.starts_with(prefix)) {
        return false;
    }
    let number = |file| files.number(&format!("{INTERFACES}/{name}/{file}"));
    if !matches!(number("type"), Some(ETHERNET | INFINIBAND)) {
        return false;
    }
    match files
        .line(&format!("{INTERFACES}/{name}/operstate"))
        .as_deref()
    {
        Some("up") => true,
        // Drivers that do not report a state.
        Some("unknown") => number("carrier") == Some(1),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_infiniband_are_read_in_megabits() {
        assert_eq!(megabits("400 Gb/sec (4X NDR)"), Some(400_000));
        assert_eq!(megabits("2.5 Gb/sec (1X SDR)"), Some(2_500));
        for bad in ["", "fast", "-1 Gb/sec", "NaN", "1e300 Gb/sec"] {
            assert_eq!(megabits(bad), None, "{bad}");
        }
    }
}
