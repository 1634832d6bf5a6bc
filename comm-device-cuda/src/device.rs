//! [`CudaDevice`].

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use comm_core::device::{ALIGNMENT_BYTES, Device, DeviceEvent, DeviceMemory, check_copy_lengths};
use comm_core::{Error, ErrorKind, MemoryKind, Result};
use cudarc::driver::sys;

use crate::context::{Allocation, Context, Stream, address};
use crate::driver::check;
use crate::worker::Worker;

/// One GPU; see the [crate](crate) for the contract.
///
/// Clones are handles of the same device.
#[derive(Clone, Debug)]
pub struct CudaDevice {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    context: Arc<Context>,
    stream: Stream,
    worker: Worker,
}

impl CudaDevice {
    /// GPU number `ordinal`, as the process counts them (see `CUDA_VISIBLE_DEVICES`).
    ///
    /// The first call loads the driver and can take some hundred milliseconds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if there is no driver or no GPU, [`ErrorKind::InvalidArgument`]
    /// if there is none of this number, [`ErrorKind::System`] for what the driver says.
    pub fn new(ordinal: u32) -> Result<Self> {
        let context = Context::new(ordinal)?;
        Ok(Self {
            inner: Arc::new(Inner {
                name: format!("cuda:{ordinal}"),
                stream: Stream::new(&context)?,
                worker: Worker::start(&context)?,
                context,
            }),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner.context
    }

    pub(crate) fn kind(&self) -> MemoryKind {
        MemoryKind::Device {
            ordinal: self.inner.context.ordinal,
        }
    }

    /// Memory that starts at a multiple of the alignment inside of an allocation that is longer.
    fn own(
        &self,
        allocation: Allocation,
        len_bytes: usize,
        kind: MemoryKind,
    ) -> Result<DeviceMemory> {
        let start = allocation.at(0).map_or(0, |start| start.addr().get());
        let offset = start.next_multiple_of(ALIGNMENT_BYTES) - start;
        let address = allocation.at(offset).ok_or_else(|| {
            Error::new(
                ErrorKind::System,
                "the CUDA driver allocated memory at address 0",
            )
        })?;
        // SAFETY: the memory is inside the allocation, which its owner keeps and does not access.
        Ok(unsafe { DeviceMemory::from_raw_parts(address, len_bytes, kind, Arc::new(allocation)) })
    }

    /// Whether this device can copy from and to the memory.
    fn check_reach(memory: &DeviceMemory) -> Result<()> {
        match memory.kind() {
            // Other GPUs of the process share the address space; the driver stages the copy if it
            // has to.
            MemoryKind::Host | MemoryKind::HostPinned | MemoryKind::Device { .. } => Ok(()),
            other => Err(Error::new(
                ErrorKind::InvalidArgument,
                "a GPU reaches host memory and that of GPUs only",
            )
            .with("memory", other)),
        }
    }
}

/// An allocation's length with room to align its start; at least one byte.
fn with_room(len_bytes: usize) -> Result<usize> {
    let whole = len_bytes.max(1).checked_add(ALIGNMENT_BYTES - 1);
    whole
        .filter(|whole| isize::try_from(*whole).is_ok())
        .ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "no allocation can be this long")
                .with("bytes", len_bytes)
        })
}

impl Device for CudaDevice {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn memory_kind(&self) -> MemoryKind {
        self.kind()
    }

    fn alloc(&self, len_bytes: usize) -> Result<DeviceMemory> {
        let allocation = Allocation::device(self.context(), with_room(len_bytes)?)?;
        self.own(allocation, len_bytes, self.kind())
    }

    fn alloc_pinned(&self, len_bytes: usize) -> Result<DeviceMemory> {
        let allocation = Allocation::pinned(self.context(), with_room(len_bytes)?)?;
        self.own(allocation, len_bytes, MemoryKind::HostPinned)
    }

    unsafe fn copy(
        &self,
        target: &DeviceMemory,
        source: &DeviceMemory,
    ) -> Result<Box<dyn DeviceEvent>> {
        check_copy_lengths(target, source)?;
        Self::check_reach(target)?;
        Self::check_reach(source)?;
        let pageable = [target, source]
            .iter()
            .any(|memory| memory.kind() == MemoryKind::Host);
        let event = if pageable || target.len_bytes() == 0 {
            // SAFETY: the caller's promise.
            unsafe { self.inner.worker.copy(target, source) }?
        } else {
            let (to, from) = (target.as_ptr(), source.as_ptr());
            // SAFETY: the worker keeps both alive until the event is done; the rest is the
            // caller's promise.
            let event = unsafe { self.inner.stream.copy(to, from, target.len_bytes()) }?;
            self.inner.worker.wait_for(event, target, source)?
        };
        Ok(Box::new(event))
    }

    fn memory_kind_at(&self, pointer: NonNull<u8>) -> Result<MemoryKind> {
        self.context().enter(|| {
            let mut kind = 0_u32;
            let Some(()) = attribute(
                pointer,
                sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                (&raw mut kind).cast(),
            )?
            else {
                return Ok(MemoryKind::Host);
            };
            if kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32 {
                return Ok(MemoryKind::HostPinned);
            }
            let mut ordinal = 0_i32;
            let known = attribute(
                pointer,
                sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                (&raw mut ordinal).cast(),
            )?;
            Ok(match known {
                Some(()) => MemoryKind::Device {
                    ordinal: u32::try_from(ordinal).unwrap_or(0),
                },
                None => MemoryKind::Host,
            })
        })
    }
}

/// Asks for an attribute of an address; `None` if the driver does not know the address.
fn attribute(
    pointer: NonNull<u8>,
    attribute: sys::CUpointer_attribute,
    value: *mut c_void,
) -> Result<Option<()>> {
    // SAFETY: the attributes asked for are 32 bits long, as are the values of the callers.
    let asked = unsafe { sys::cuPointerGetAttribute(value, attribute, address(pointer)) };
    if asked == sys::CUresult::CUDA_ERROR_INVALID_VALUE {
        return Ok(None);
    }
    check("asking for the kind of memory", asked).map(Some)
}
