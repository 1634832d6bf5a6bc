//! A GPU's primary context and what belongs to it: allocations, streams, events.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use comm_core::{Error, ErrorKind, Result};
use cudarc::driver::sys;

use crate::driver::{self, check};

/// A GPU with its primary context retained.
pub(crate) struct Context {
    pub(crate) ordinal: u32,
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

// SAFETY: contexts may be used by any thread; the handle is only read.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of GPU number `ordinal`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] without driver or GPU, [`ErrorKind::InvalidArgument`] if there is
    /// no GPU of this number.
    pub(crate) fn new(ordinal: u32) -> Result<Arc<Self>> {
        driver::load()?;
        let count = driver::device_count()?;
        if count == 0 {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the process may use no GPU; see CUDA_VISIBLE_DEVICES",
            ));
        }
        if ordinal >= count {
            return Err(
                Error::new(ErrorKind::InvalidArgument, "there is no such GPU")
                    .with("number", ordinal)
                    .with("gpus", count),
            );
        }
        let mut device = 0;
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        // SAFETY: the driver is initialised and the device can be written.
        let found = unsafe { sys::cuDeviceGet(&raw mut device, number) };
        check("finding a GPU", found)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the device exists and the context can be written.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut raw, device) };
        check("making a CUDA context", retained)?;
        Ok(Arc::new(Self {
            ordinal,
            device,
            raw,
        }))
    }

    /// Calls `work` with this context current on the thread, and puts the former one back.
    pub(crate) fn enter<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut before = std::ptr::null_mut();
        // SAFETY: the context can be written.
        let asked = unsafe { sys::cuCtxGetCurrent(&raw mut before) };
        check("asking for the current CUDA context", asked)?;
        self.make_current()?;
        let result = work();
        // SAFETY: it was current a moment ago.
        let restored = unsafe { sys::cuCtxSetCurrent(before) };
        result.and_then(|value| check("restoring a CUDA context", restored).map(|()| value))
    }

    /// Makes the context current on the thread for good.
    pub(crate) fn make_current(&self) -> Result<()> {
        // SAFETY: the context is retained.
        let set = unsafe { sys::cuCtxSetCurrent(self.raw) };
        check("entering a CUDA context", set)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once; whatever belongs to it holds it.
        let released = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        note("releasing a CUDA context", released);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{}", self.ordinal)
    }
}

/// Logs what goes wrong where nobody can be told.
pub(crate) fn note(what: &'static str, result: sys::CUresult) {
    if let Err(error) = check(what, result) {
        tracing::error!(%error, "CUDA");
    }
}

/// How an allocation is given back.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Device,
    Pinned,
    Imported,
}

/// Memory that is given back when dropped.
#[derive(Debug)]
pub(crate) struct Allocation {
    context: Arc<Context>,
    address: sys::CUdeviceptr,
    kind: Kind,
}

impl Allocation {
    /// Zero-filled memory of the GPU.
    pub(crate) fn device(context: &Arc<Context>, len_bytes: usize) -> Result<Self> {
        let mut address = 0;
        context.enter(|| {
            // SAFETY: the address can be written.
            let allocated = unsafe { sys::cuMemAlloc_v2(&raw mut address, len_bytes) };
            check("allocating GPU memory", allocated)
        })?;
        let allocation = Self {
            context: Arc::clone(context),
            address,
            kind: Kind::Device,
        };
        context.enter(|| {
            // SAFETY: the memory was just allocated with this length.
            let zeroed = unsafe { sys::cuMemsetD8_v2(address, 0, len_bytes) };
            check("zeroing GPU memory", zeroed)?;
            // Zeroing is not ordered with other streams: wait for it.
            // SAFETY: the context is current.
            let done = unsafe { sys::cuCtxSynchronize() };
            check("zeroing GPU memory", done)
        })?;
        Ok(allocation)
    }

    /// Zero-filled host memory that all GPUs reach directly.
    pub(crate) fn pinned(context: &Arc<Context>, len_bytes: usize) -> Result<Self> {
        let mut start = std::ptr::null_mut();
        context.enter(|| {
            // SAFETY: the address can be written.
            let allocated = unsafe {
                sys::cuMemHostAlloc(&raw mut start, len_bytes, sys::CU_MEMHOSTALLOC_PORTABLE)
            };
            check("allocating pinned memory", allocated)
        })?;
        // SAFETY: the memory was just allocated with this length.
        unsafe { start.cast::<u8>().write_bytes(0, len_bytes) };
        Ok(Self {
            context: Arc::clone(context),
            address: start.expose_provenance() as sys::CUdeviceptr,
            kind: Kind::Pinned,
        })
    }

    /// Memory of another process.
    pub(crate) fn imported(context: &Arc<Context>, handle: sys::CUipcMemHandle) -> Result<Self> {
        let mut address = 0;
        context.enter(|| {
            let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
            // SAFETY: the address can be written; the driver checks the handle.
            let opened = unsafe { sys::cuIpcOpenMemHandle_v2(&raw mut address, handle, flags) };
            check("opening GPU memory of another process", opened)
        })?;
        Ok(Self {
            context: Arc::clone(context),
            address,
            kind: Kind::Imported,
        })
    }

    /// Where it starts, `offset_bytes` further on.
    pub(crate) fn at(&self, offset_bytes: usize) -> Option<NonNull<u8>> {
        let address = usize::try_from(self.address)
            .ok()?
            .checked_add(offset_bytes)?;
        NonNull::new(std::ptr::with_exposed_provenance_mut(address))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let freed = self.context.enter(|| {
            let freed = match self.kind {
                // SAFETY: allocated by this function's counterpart, and nobody uses it any more.
                Kind::Device => unsafe { sys::cuMemFree_v2(self.address) },
                // SAFETY: as above.
                Kind::Imported => unsafe { sys::cuIpcCloseMemHandle(self.address) },
                Kind::Pinned => {
                    let address = usize::try_from(self.address).unwrap_or(0);
                    let start = std::ptr::with_exposed_provenance_mut(address);
                    // SAFETY: as above.
                    unsafe { sys::cuMemFreeHost(start) }
                }
            };
            check("freeing memory", freed)
        });
        if let Err(error) = freed {
            tracing::error!(%error, "CUDA");
        }
    }
}

/// A stream of copies.
#[derive(Debug)]
pub(crate) struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
}

// SAFETY: streams may be used by any thread; the handle is only read.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        context.enter(|| {
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: the stream can be written.
            let made = unsafe { sys::cuStreamCreate(&raw mut raw, flags) };
            check("making a CUDA stream", made)
        })?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
        })
    }

    /// Starts a copy and records an event behind it.
    ///
    /// # Safety
    ///
    /// Both addresses are valid for `len_bytes` until the event is done, neither is pageable host
    /// memory, and nobody else writes to the source or accesses the target meanwhile.
    pub(crate) unsafe fn copy(
        &self,
        target: NonNull<u8>,
        source: NonNull<u8>,
        len_bytes: usize,
    ) -> Result<Event> {
        self.context.enter(|| {
            let event = Event::new(&self.context)?;
            // SAFETY: the caller's promise.
            let started = unsafe {
                sys::cuMemcpyAsync(address(target), address(source), len_bytes, self.raw)
            };
            check("starting a copy", started)?;
            // SAFETY: event and stream exist.
            let recorded = unsafe { sys::cuEventRecord(event.raw, self.raw) };
            if let Err(error) = check("recording an event", recorded) {
                // Nobody would know when the copy is done.
                // SAFETY: the stream exists.
                note("waiting for a copy", unsafe {
                    sys::cuStreamSynchronize(self.raw)
                });
                return Err(error);
            }
            Ok(event)
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let destroyed = self.context.enter(|| {
            // SAFETY: made by `new`; the driver finishes what is in it.
            check("destroying a stream", unsafe {
                sys::cuStreamDestroy_v2(self.raw)
            })
        });
        if let Err(error) = destroyed {
            tracing::error!(%error, "CUDA");
        }
    }
}

/// What a device pointer is for the driver.
pub(crate) fn address(pointer: NonNull<u8>) -> sys::CUdeviceptr {
    pointer.as_ptr().expose_provenance() as sys::CUdeviceptr
}

/// The driver's event behind a copy.
#[derive(Debug)]
pub(crate) struct Event {
    context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: events may be used by any thread; the handle is only read.
unsafe impl Send for Event {}

impl Event {
    /// An event in the current context.
    fn new(context: &Arc<Context>) -> Result<Self> {
        let flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32
            | sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the event can be written.
        let made = unsafe { sys::cuEventCreate(&raw mut raw, flags) };
        check("making a CUDA event", made)?;
        Ok(Self {
            context: Arc::clone(context),
            raw,
        })
    }

    /// Waits, asleep, until the copy in front of it is done. The context is current.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the event exists.
        let waited = unsafe { sys::cuEventSynchronize(self.raw) };
        check("copying", waited)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let destroyed = self.context.enter(|| {
            // SAFETY: made by `new`.
            check("destroying an event", unsafe {
                sys::cuEventDestroy_v2(self.raw)
            })
        });
        if let Err(error) = destroyed {
            tracing::error!(%error, "CUDA");
        }
    }
}
