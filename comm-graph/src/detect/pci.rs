//! PCI devices and the switches above them.

use crate::xml::{BusId, pci_generation_rate};

use super::files::SystemFiles;

const DEVICES: &str = "sys/bus/pci/devices";

/// Bridges above one device; real machines have fewer than ten.
const MOST_BRIDGES: usize = 64;

/// A device on the PCI bus, with what topology files say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    /// Its address.
    pub bus_id: BusId,
    /// The class code, e.g. `0x030200`.
    pub class: u32,
    /// Vendor, device, subsystem vendor, subsystem device; 0 when unknown.
    pub identity: [u32; 4],
    /// The speed of its link as the kernel prints it, e.g. `16.0 GT/s PCIe`.
    pub link_speed: Option<String>,
    /// Lanes of its link.
    pub link_width: Option<u32>,
    /// Its NUMA node; -1 when the platform does not tell.
    pub numa: i32,
    /// The switches above it, outermost first.
    pub switches: Vec<BusId>,
}

impl PciDevice {
    /// The device with an address; `None` when there is none.
    pub(super) fn read(files: &SystemFiles, bus_id: BusId) -> Option<Self> {
        let link = format!("{DEVICES}/{bus_id}");
        let place = files.resolve(&link)?;
        let (ports, directories) = ports_above(&place);
        let hex = |file: &str| {
            let text = files.line(&format!("{link}/{file}"))?;
            u32::try_from(crate::xml::parse_hex(&text)?).ok()
        };
        let numa = directories.iter().rev().find_map(|directory| {
            let number = files.number(&format!("{directory}/numa_node"))?;
            i32::try_from(number).ok().filter(|number| *number >= 0)
        });
        // The link has two ends; the directory above holds the other one.
        let ends = || directories.iter().rev().take(2);
        let speeds = ends().filter_map(|at| files.line(&format!("{at}/max_link_speed")));
        let known = speeds.filter(|speed| speed.starts_with(|c: char| c.is_ascii_digit()));
        let slowest = |speed: &String| ordered(pci_generation_rate(speed));
        let widths = ends().filter_map(|at| files.number(&format!("{at}/max_link_width")));
        let widths = widths.filter_map(|width| u32::try_from(width).ok());
        // Width 0 and absurd widths mean that the port does not know.
        let width = widths.filter(|width| (1..=64).contains(width)).min();
        Some(Self {
            bus_id,
            class: hex("class").filter(|class| *class <= 0xff_ffff)?,
            identity: ["vendor", "device", "subsystem_vendor", "subsystem_device"]
                .map(|file| hex(file).unwrap_or(0)),
            link_speed: known.min_by_key(slowest),
            link_width: width,
            numa: numa.unwrap_or(-1),
            switches: upstream_ports(&ports),
        })
    }

    /// All devices by address.
    pub(super) fn all(files: &SystemFiles) -> Vec<Self> {
        let names = files.entries(DEVICES);
        let ids = names.iter().filter_map(|name| address(name));
        let mut devices: Vec<Self> = ids.filter_map(|id| Self::read(files, id)).collect();
        devices.sort_by_key(|device| device.bus_id);
        devices
    }

    /// The device behind a `device` link of another class, such as a network interface.
    pub(super) fn behind(files: &SystemFiles, link: &str) -> Option<BusId> {
        let place = files.resolve(link)?;
        // A virtio device or an auxiliary function lies below the PCI device.
        place.rsplit('/').find_map(address)
    }
}

fn ordered(rate: f32) -> u32 {
    rate as u32
}

/// A PCI address in the full form that sysfs uses.
fn address(name: &str) -> Option<BusId> {
    let bus_id = BusId::parse(name)?;
    (name.contains('.') && bus_id.to_string() == name.to_ascii_lowercase()).then_some(bus_id)
}

/// The bridges between the root complex and a device, outermost first, and the directories from
/// the outermost bridge to the device itself.
fn ports_above(place: &str) -> (Vec<BusId>, Vec<String>) {
    let (mut ports, mut directories) = (Vec::new(), Vec::new());
    let mut at = place;
    while let Some((parent, name)) = at.rsplit_once('/') {
        let Some(bus_id) = address(name) else { break };
        if directories.len() > MOST_BRIDGES {
            break;
        }
        directories.push(at.to_owned());
        ports.push(bus_id);
        at = parent;
    }
    ports.reverse();
    directories.reverse();
    ports.pop();
    (ports, directories)
}

/// A switch shows itself as an upstream port with downstream ports below it, so every second bridge
/// above a device is a switch and the last one left over is the root port.
fn upstream_ports(ports: &[BusId]) -> Vec<BusId> {
    let mut switches: Vec<BusId> = ports.iter().rev().skip(1).step_by(2).copied().collect();
    switches.reverse();
    switches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_the_upstream_ports_above_a_device() {
        let place = "sys/devices/pci0000:00/0000:00:01.0/0000:05:00.0/0000:06:00.0/0000:07:00.0";
        let (ports, directories) = ports_above(place);
        assert_eq!(directories.len(), 4);
        let switches: Vec<String> = upstream_ports(&ports)
            .iter()
            .map(BusId::to_string)
            .collect();
        assert_eq!(switches, ["0000:05:00.0"]);
        let (ports, _) = ports_above("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0");
        assert!(
            upstream_ports(&ports).is_empty(),
            "a root port is no switch"
        );
    }

    #[test]
    fn addresses_have_four_parts() {
        assert!(address("10000:e1:00.0").is_some());
        for other in ["pci0000:00", "virtio0", "0000:00:01", "00:01.0"] {
            assert_eq!(address(other), None, "{other}");
        }
    }
}
