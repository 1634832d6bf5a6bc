//! What the schema's values mean: bus ids, PCI classes, link speeds, known names.

use std::fmt;

/// A PCI address `domain:bus:device.function`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BusId {
    /// PCI domain (segment), 16 bits in practice and up to 32 in virtual machines.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number.
    pub device: u8,
    /// Function number.
    pub function: u8,
}

impl BusId {
    /// Reads `dddd:bb:dd.f` in hexadecimal, upper or lower case.
    ///
    /// Device and function are not held to PCI's 5 and 3 bits: virtual machines report
    /// `fffffff:ffff:ff` style addresses, whose bus part is cut to its low byte.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split(':');
        let domain = hex(parts.next()?)?;
        let bus = hex(parts.next()?)?;
        let last = parts.next()?;
        if parts.next().is_some() {
            return None;
        }
        let (device, function) = match last.split_once('.') {
            Some((device, function)) => (hex(device)?, hex(function)?),
            None => (hex(last)?, 0),
        };
        Some(Self {
            domain,
            bus: (bus & 0xff) as u8,
            device: u8::try_from(device).ok()?,
            function: u8::try_from(function).ok()?,
        })
    }

    /// The address with the function set to 0: ports of one chip share it.
    #[must_use]
    pub const fn chip(self) -> Self {
        Self {
            function: 0,
            ..self
        }
    }
}

impl fmt::Display for BusId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

fn hex(text: &str) -> Option<u32> {
    let digits = (1..=8).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    if digits {
        u32::from_str_radix(text, 16).ok()
    } else {
        None
    }
}

/// Reads a hexadecimal number with or without `0x`.
pub(crate) fn parse_hex(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    let valid = (1..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if valid {
        u64::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// What a PCI class code makes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PciClass {
    /// A bridge, a switch or anything without a role of its own.
    Switch,
    /// An NVSwitch.
    NvSwitch,
    /// A bridge that stands for a CPU on the NVLink side.
    Cpu,
    /// A GPU.
    Gpu,
    /// A network card.
    Nic,
}

/// Reads a class code such as `0x030200`; `None` when it is no hexadecimal number.
#[must_use]
pub fn parse_class(text: &str) -> Option<PciClass> {
    let code = parse_hex(text)?;
    if code > 0xff_ffff {
        return None;
    }
    Some(match code {
        0x06_8000 => PciClass::NvSwitch,
        0x06_8001 => PciClass::Cpu,
        _ if code >> 16 == 0x03 => PciClass::Gpu,
        _ if code >> 16 == 0x02 => PciClass::Nic,
        _ => PciClass::Switch,
    })
}

/// The rate of one PCI lane in units of 100 Mb/s from texts like `16.0 GT/s PCIe`.
///
/// Unknown speeds count as generation 3, as the files of cloud vendors leave them out.
#[must_use]
pub fn pci_generation_rate(text: &str) -> f32 {
    let digits = text
        .trim()
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .next();
    let transfers: f32 = digits.and_then(|d| d.parse().ok()).unwrap_or(0.0);
    for (speed, rate) in [
        (2.5, 15.0),
        (5.0, 30.0),
        (8.0, 60.0),
        (16.0, 120.0),
        (32.0, 240.0),
        (64.0, 480.0),
    ] {
        if transfers == speed {
            return rate;
        }
    }
    60.0
}

/// The parents an element may have, or `None` for an element that is not in the schema.
pub(super) fn known_parents(element: &str) -> Option<&'static [&'static str]> {
    Some(match element {
        "system" => &[],
        "cpu" => &["system"],
        "pci" => &["cpu", "pci"],
        "gpu" | "pcilink" => &["pci"],
        "nvlink" | "c2c" => &["gpu"],
        "nic" => &["pci", "cpu"],
        "net" | "gin" | "rma" => &["nic"],
        // Ours: a process slot on a NUMA node, for jobs on host memory.
        "endpoint" => &["cpu"],
        _ => return None,
    })
}

/// The attributes of an element of the schema.
pub(super) fn known_attributes(element: &str) -> &'static [&'static str] {
    match element {
        "system" => &["version", "name"],
        "cpu" => &[
            "numaid",
            "affinity",
            "arch",
            "vendor",
            "familyid",
            "modelid",
            "host_hash",
            "keep",
        ],
        "pci" => &[
            "busid",
            "class",
            "vendor",
            "device",
            "subsystem_vendor",
            "subsystem_device",
            "link_speed",
            "link_width",
            "keep",
        ],
        "gpu" => &["dev", "sm", "rank", "gdr", "mlopart", "keep", "gcn", "arch"],
        "nvlink" => &["target", "count", "tclass"],
        "c2c" => &["bw", "count"],
        "pcilink" => &["target"],
        "nic" => &["keep"],
        "net" | "gin" | "rma" => &[
            "name", "dev", "speed", "port", "guid", "latency", "maxconn", "gdr", "coll", "net",
            "gin", "rma", "rail", "plane", "keep",
        ],
        "endpoint" => &["dev", "rank", "bw", "keep"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_ids_are_read_and_printed_in_lower_case() {
        let id = BusId::parse("0000:C3:00.1").unwrap();
        assert_eq!(id.to_string(), "0000:c3:00.1");
        assert_eq!(id.chip().to_string(), "0000:c3:00.0");
        assert_eq!(BusId::parse("fffffff:ffff:ff").unwrap().domain, 0x0fff_ffff);
        for bad in [
            "",
            "0000",
            "0000:c3",
            "0000:c3:0g.0",
            "+1:00:00.0",
            "0:0:0:0.0",
        ] {
            assert_eq!(BusId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn class_codes_give_roles() {
        assert_eq!(parse_class("0x030200"), Some(PciClass::Gpu));
        assert_eq!(parse_class("0x038000"), Some(PciClass::Gpu));
        assert_eq!(parse_class("0x020700"), Some(PciClass::Nic));
        assert_eq!(parse_class("0x068000"), Some(PciClass::NvSwitch));
        assert_eq!(parse_class("0x080100"), Some(PciClass::Switch));
        assert_eq!(parse_class("bridge"), None);
    }

    #[test]
    fn lane_rates_follow_the_generation() {
        assert_eq!(pci_generation_rate("32.0 GT/s PCIe") * 16.0 / 80.0, 48.0);
        assert_eq!(pci_generation_rate("16 GT/s") * 16.0 / 80.0, 24.0);
        assert_eq!(pci_generation_rate("Unknown") * 16.0 / 80.0, 12.0);
    }
}
