//! How near two nodes are.

use std::fmt;

use serde::{Serialize, Serializer};

/// The kind of a path; the order is the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathKind {
    /// Inside one device.
    Local,
    /// NVLink, directly or through NVSwitches.
    NvLink,
    /// NVLink through one other GPU.
    NvLinkRelay,
    /// A coherent chip-to-chip link.
    C2c,
    /// At most one PCI switch.
    Pix,
    /// Several PCI switches, no CPU.
    Pxb,
    /// GPU to CPU by chip-to-chip link, then PCI to the network card.
    P2c,
    /// To a network card that is near another GPU, which relays.
    Pxn,
    /// Through a CPU.
    HostBridge,
    /// Between NUMA nodes.
    System,
    /// Through the network.
    Net,
    /// None.
    Disconnected,
}

impl PathKind {
    /// NCCL's three-letter name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "LOC",
            Self::NvLink => "NVL",
            Self::NvLinkRelay => "NVB",
            Self::C2c => "C2C",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::P2c => "P2C",
            Self::Pxn => "PXN",
            Self::HostBridge => "PHB",
            Self::System => "SYS",
            Self::Net => "NET",
            Self::Disconnected => "DIS",
        }
    }

    /// The next farther kind.
    #[must_use]
    pub const fn farther(self) -> Self {
        match self {
            Self::Local => Self::NvLink,
            Self::NvLink => Self::NvLinkRelay,
            Self::NvLinkRelay => Self::C2c,
            Self::C2c => Self::Pix,
            Self::Pix => Self::Pxb,
            Self::Pxb => Self::P2c,
            Self::P2c => Self::Pxn,
            Self::Pxn => Self::HostBridge,
            Self::HostBridge => Self::System,
            Self::System => Self::Net,
            Self::Net | Self::Disconnected => Self::Disconnected,
        }
    }
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for PathKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
