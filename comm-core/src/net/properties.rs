//! What a network device is and can do.

/// How far a device's connections go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reach {
    /// Ranks of the same process.
    Process = 1,
    /// Processes of the same host.
    Host = 2,
    /// Other hosts too.
    Network = 3,
}

impl Reach {
    /// The reach with this discriminant, which is also its code on the wire.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Process),
            2 => Some(Self::Host),
            3 => Some(Self::Network),
            _ => None,
        }
    }
}

/// One device of a [`NetBackend`](super::NetBackend).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetProperties {
    /// Name of the device or interface: `mlx5_0`, `eth0`.
    pub name: String,
    /// How far its connections go.
    pub reach: Reach,
    /// Link speed in Mbit/s, 0 if unknown.
    pub speed_mbps: u32,
    /// NUMA node to which the device is attached, if any.
    pub numa_node: Option<u32>,
    /// Path of the PCI device in `/sys`, if it is one.
    pub pci_path: Option<String>,
    /// Longest message.
    pub max_message_bytes: usize,
    /// Requests of one end that can be outstanding at once; at least 1.
    pub max_outstanding: usize,
    /// Whether registering memory costs no more than sending a message.
    pub cheap_registration: bool,
    /// Whether `quiesce` never answers `StillBusy`, so that memory which is only borrowed can be
    /// sent from and received into.
    pub cancels_at_once: bool,
    /// Whether `isend`, `irecv` and `test` move whatever can be moved of their own connection, so
    /// that who waits for one connection only need not call `progress`.
    pub inline_progress: bool,
    /// Whether there are direct transfers, which copy before they return (N18).
    pub copies_synchronously: bool,
    /// Whether [`Region::Device`](super::Region::Device) can be registered.
    pub device_memory: bool,
    /// Whether [`Region::DmaBuf`](super::Region::DmaBuf) can be registered.
    pub dma_buf: bool,
    /// Whether peers can write to windows.
    pub put: bool,
}

impl NetProperties {
    /// A device of unknown speed that can do nothing but messages of any length from host memory.
    #[must_use]
    pub fn new(name: impl Into<String>, reach: Reach) -> Self {
        Self {
            name: name.into(),
            reach,
            speed_mbps: 0,
            numa_node: None,
            pci_path: None,
            max_message_bytes: usize::MAX,
            max_outstanding: 1,
            cheap_registration: false,
            cancels_at_once: false,
            inline_progress: false,
            copies_synchronously: false,
            device_memory: false,
            dma_buf: false,
            put: false,
        }
    }
}
