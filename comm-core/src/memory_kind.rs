//! Where a buffer lies.

use std::fmt;

/// The kind of memory that a buffer lies in.
///
/// Decides who may touch it: the CPU only [host](MemoryKind::is_host) memory, a transport only the
/// kinds that it declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Ordinary pageable memory of this process.
    Host,
    /// Page-locked host memory that a device can copy from and to asynchronously.
    HostPinned,
    /// Memory of an accelerator. The CPU must not dereference its addresses.
    Device {
        /// The device's number, as the process's device runtime counts them.
        ordinal: u32,
    },
}

impl MemoryKind {
    /// Whether the CPU may read and write the memory through its address.
    #[must_use]
    pub const fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::HostPinned)
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::HostPinned => f.write_str("pinned host"),
            Self::Device { ordinal } => write!(f, "device {ordinal}"),
        }
    }
}
