//! GPU memory between processes of one host.

use std::sync::Arc;

use comm_core::device::DeviceMemory;
use comm_core::{Error, ErrorKind, MemoryKind, Result};
use cudarc::driver::sys;

use crate::CudaDevice;
use crate::context::{Allocation, address};
use crate::driver::check;

/// What another process needs in order to open memory of this one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExportedMemory {
    handle: [u8; 64],
    /// Where the memory begins in its allocation.
    offset_bytes: u64,
    len_bytes: u64,
    /// Length of the whole allocation, by which a wrong offset is noticed.
    allocation_bytes: u64,
}

impl ExportedMemory {
    /// Length of [`ExportedMemory::encode`].
    pub const BYTES: usize = 88;

    /// The bytes to be sent to the other process.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..64].copy_from_slice(&self.handle);
        bytes[64..72].copy_from_slice(&self.offset_bytes.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[80..].copy_from_slice(&self.allocation_bytes.to_le_bytes());
        bytes
    }

    /// What [`ExportedMemory::encode`] wrote.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if the bytes are nothing like that, or the memory would lie outside
    /// of its allocation.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let decoded = || -> Option<Self> {
            let (handle, rest) = bytes.split_first_chunk::<64>()?;
            let (offset, rest) = rest.split_first_chunk()?;
            let (len, rest) = rest.split_first_chunk()?;
            let allocation = u64::from_le_bytes(rest.try_into().ok()?);
            let (offset_bytes, len_bytes) = (u64::from_le_bytes(*offset), u64::from_le_bytes(*len));
            let end = offset_bytes.checked_add(len_bytes)?;
            (end <= allocation).then_some(Self {
                handle: *handle,
                offset_bytes,
                len_bytes,
                allocation_bytes: allocation,
            })
        };
        decoded().ok_or_else(|| {
            Error::new(
                ErrorKind::Protocol,
                "this is no exported GPU memory of this version",
            )
            .with("bytes", bytes.len())
        })
    }
}

impl std::fmt::Debug for ExportedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The handle lets its holder write to the memory: it is not for logs.
        f.debug_struct("ExportedMemory")
            .field("offset_bytes", &self.offset_bytes)
            .field("len_bytes", &self.len_bytes)
            .finish_non_exhaustive()
    }
}

impl CudaDevice {
    /// Lets another process of this host open memory of this device.
    ///
    /// Whoever has the answer can read and write the whole allocation: it is a secret of the job.
    /// The memory has to stay allocated as long as the other process uses it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the memory is none of a GPU, [`ErrorKind::System`] if the
    /// driver refuses (memory pools and imported memory cannot be exported).
    pub fn export(&self, memory: &DeviceMemory) -> Result<ExportedMemory> {
        if !matches!(memory.kind(), MemoryKind::Device { .. }) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "only memory of a GPU can be exported",
            )
            .with("memory", memory.kind()));
        }
        self.context().enter(|| {
            let at = address(memory.as_ptr());
            let (mut base, mut size) = (0, 0);
            // SAFETY: both can be written.
            let found = unsafe { sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, at) };
            check("finding an allocation", found)?;
            let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
            // SAFETY: the handle can be written.
            let exported = unsafe { sys::cuIpcGetMemHandle(&raw mut handle, base) };
            check("exporting GPU memory", exported)?;
            Ok(ExportedMemory {
                handle: handle.reserved.map(|byte| byte.cast_unsigned()),
                offset_bytes: at - base,
                len_bytes: memory.len_bytes() as u64,
                allocation_bytes: size as u64,
            })
        })
    }

    /// Opens memory that another process of this host has exported.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::System`] if the driver refuses: the process is gone, is this one, or its GPU
    /// cannot be reached from this one.
    pub fn import(&self, exported: &ExportedMemory) -> Result<DeviceMemory> {
        let handle = sys::CUipcMemHandle {
            reserved: exported.handle.map(u8::cast_signed),
        };
        let allocation = Allocation::imported(self.context(), handle)?;
        let outside = || Error::new(ErrorKind::Protocol, "exported memory lies nowhere");
        let offset = usize::try_from(exported.offset_bytes).map_err(|_| outside())?;
        let len_bytes = usize::try_from(exported.len_bytes).map_err(|_| outside())?;
        let start = allocation.at(offset).ok_or_else(outside)?;
        self.context().enter(|| {
            let (mut base, mut size) = (0, 0);
            let at = address(start);
            // SAFETY: both can be written.
            let found = unsafe { sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, at) };
            check("finding an allocation", found)?;
            // What the other process says of its allocation is not believed.
            let end = (at - base).checked_add(exported.len_bytes);
            end.filter(|end| *end <= size as u64)
                .map(drop)
                .ok_or_else(outside)
        })?;
        // SAFETY: the memory is inside the allocation, which its owner keeps and does not access.
        Ok(unsafe {
            DeviceMemory::from_raw_parts(start, len_bytes, self.kind(), Arc::new(allocation))
        })
    }
}
