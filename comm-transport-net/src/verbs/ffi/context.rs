//! An open device, its protection domain and its registrations.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use comm_core::device::DeviceMemory;
use comm_core::{Error, ErrorKind, Result};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::abi::{
    ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE, AsyncEvent, EVENT_DEVICE_FATAL, Gid, PortAttributes,
    RawChannel, RawContext, RawMr, RawPd,
};
use super::library::Library;

/// An open device with one protection domain and one completion channel.
pub(crate) struct Context {
    pub(super) library: Arc<Library>,
    pub(super) raw: NonNull<RawContext>,
    pub(super) domain: NonNull<RawPd>,
    pub(super) channel: NonNull<RawChannel>,
    name: String,
}

// SAFETY: the library's functions may be called by any thread at any time; the handles are freed
// once, in `drop`.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What the completion channel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The number with which the queue was made.
    pub(crate) queue: u64,
}

/// The last error of the system, which the library's functions leave behind.
pub(super) fn last_error(what: &'static str) -> Error {
    Error::system(what, std::io::Error::last_os_error())
}

/// An error number that a function returned.
pub(super) fn returned(what: &'static str, code: c_int) -> Error {
    Error::system(what, std::io::Error::from_raw_os_error(code.abs()))
}

impl Context {
    /// Opens all devices of the host.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the host has none, or the kernel no support for them.
    pub(crate) fn open_all(library: &Arc<Library>) -> Result<Vec<Self>> {
        let mut count = 0;
        // SAFETY: `count` can be written.
        let list = unsafe { (library.ibv_get_device_list)(&raw mut count) };
        let list = NonNull::new(list).ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "the kernel has no RDMA support")
                .with("reason", std::io::Error::last_os_error())
        })?;
        let count = usize::try_from(count).unwrap_or(0);
        let mut opened = Vec::new();
        let mut failure = None;
        for index in 0..count {
            // SAFETY: the list has `count` entries.
            let place = unsafe { list.add(index) };
            // SAFETY: as above.
            let device = unsafe { place.read() };
            match Self::open(library, device) {
                Ok(context) => opened.push(context),
                Err(error) => failure = Some(error),
            }
        }
        // SAFETY: the list is not used any more; open devices do not need it.
        unsafe { (library.ibv_free_device_list)(list.as_ptr()) };
        match (opened.is_empty(), failure) {
            (true, Some(error)) => Err(error),
            (true, None) => Err(Error::new(
                ErrorKind::Unavailable,
                "the host has no RDMA device",
            )),
            (false, _) => Ok(opened),
        }
    }

    fn open(library: &Arc<Library>, device: *mut c_void) -> Result<Self> {
        // SAFETY: `device` is an entry of the device list.
        let name = unsafe { (library.ibv_get_device_name)(device) };
        // SAFETY: the name is a string that lives as long as the list.
        let name = unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned();
        // SAFETY: as above.
        let raw = unsafe { (library.ibv_open_device)(device) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("opening an RDMA device"))?;
        // SAFETY: the device was opened.
        let domain = unsafe { (library.ibv_alloc_pd)(raw.as_ptr()) };
        let Some(domain) = NonNull::new(domain) else {
            let error = last_error("making a protection domain");
            // SAFETY: nothing else uses the device.
            unsafe { (library.ibv_close_device)(raw.as_ptr()) };
            return Err(error);
        };
        // SAFETY: the device was opened.
        let channel = unsafe { (library.ibv_create_comp_channel)(raw.as_ptr()) };
        let Some(channel) = NonNull::new(channel) else {
            let error = last_error("making a completion channel");
            // SAFETY: nothing uses the domain.
            unsafe { (library.ibv_dealloc_pd)(domain.as_ptr()) };
            // SAFETY: nothing else uses the device.
            unsafe { (library.ibv_close_device)(raw.as_ptr()) };
            return Err(error);
        };
        let context = Self {
            library: Arc::clone(library),
            raw,
            domain,
            channel,
            name,
        };
        for fd in [context.event_fd(), context.async_fd()] {
            let flags = fcntl_getfl(fd).map_err(|errno| Error::system("fcntl", errno))?;
            fcntl_setfl(fd, flags | OFlags::NONBLOCK)
                .map_err(|errno| Error::system("fcntl", errno))?;
        }
        Ok(context)
    }

    /// The device's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Readable when a queue has news, once that was asked for.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`.
        let fd = unsafe { (*self.channel.as_ptr()).fd };
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Readable when the device has news.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the device is open as long as `self` lives.
        let fd = unsafe { (*self.raw.as_ptr()).async_fd };
        // SAFETY: the descriptor is open as long as the device.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The attributes of a port; ports count from 1.
    pub(crate) fn port(&self, number: u8) -> Result<PortAttributes> {
        let mut attributes = PortAttributes::default();
        // SAFETY: the structure is as large as the library's or larger.
        let code = unsafe {
            (self.library.ibv_query_port)(self.raw.as_ptr(), number, &raw mut attributes)
        };
        match code {
            0 => Ok(attributes),
            code => Err(returned("asking for a port", code)),
        }
    }

    /// A global address of a port.
    pub(crate) fn gid(&self, port: u8, index: u8) -> Result<Gid> {
        let mut gid = Gid::default();
        // SAFETY: `gid` can be written.
        let code = unsafe {
            (self.library.ibv_query_gid)(self.raw.as_ptr(), port, index.into(), &raw mut gid)
        };
        match code {
            0 => Ok(gid),
            _ => Err(last_error("asking for a port's address")),
        }
    }

    /// The next event of the completion channel, if there is one.
    pub(crate) fn next_event(&self) -> Option<Event> {
        let mut queue = std::ptr::null_mut();
        let mut number = std::ptr::null_mut();
        // SAFETY: both places can be written; the descriptor does not block.
        let code = unsafe {
            (self.library.ibv_get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut number)
        };
        if code != 0 {
            return None;
        }
        // SAFETY: the queue cannot be destroyed before its event is acknowledged.
        unsafe { (self.library.ibv_ack_cq_events)(queue, 1) };
        Some(Event {
            queue: number.addr() as u64,
        })
    }

    /// Takes the news of the device; whether it has failed for good.
    pub(crate) fn take_news(&self) -> bool {
        let mut fatal = false;
        loop {
            let mut event = AsyncEvent {
                element: std::ptr::null_mut(),
                event_type: 0,
            };
            // SAFETY: the event can be written; the descriptor does not block.
            let code =
                unsafe { (self.library.ibv_get_async_event)(self.raw.as_ptr(), &raw mut event) };
            if code != 0 {
                return fatal;
            }
            fatal |= event.event_type == EVENT_DEVICE_FATAL;
            tracing::debug!(device = %self.name, event = event.event_type, "news of a device");
            // SAFETY: the event was just taken.
            unsafe { (self.library.ibv_ack_async_event)(&raw mut event) };
        }
    }

    /// Registers memory; for writing by peers too if `window` is set.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ResourceExhausted`] if no more memory can be locked; what the driver says.
    pub(crate) fn register(
        self: &Arc<Self>,
        memory: &DeviceMemory,
        window: bool,
    ) -> Result<Registration> {
        let mut access = ACCESS_LOCAL_WRITE;
        if window {
            access |= ACCESS_REMOTE_WRITE;
        }
        let (start, len) = (memory.as_ptr().as_ptr(), memory.len_bytes());
        // SAFETY: the memory is valid, and whoever registers it keeps it alive.
        let raw =
            unsafe { (self.library.ibv_reg_mr)(self.domain.as_ptr(), start.cast(), len, access) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let reason = std::io::Error::last_os_error();
            match reason.kind() {
                std::io::ErrorKind::OutOfMemory => Error::new(
                    ErrorKind::ResourceExhausted,
                    "no more memory can be locked for RDMA; raise the limit (ulimit -l)",
                )
                .with("bytes", len),
                _ => Error::system("registering memory for RDMA", reason).with("bytes", len),
            }
        })?;
        Ok(Registration {
            context: Arc::clone(self),
            raw,
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: queues and registrations hold the context, so nothing uses the channel.
        unsafe { (self.library.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
        // SAFETY: as above for the domain.
        unsafe { (self.library.ibv_dealloc_pd)(self.domain.as_ptr()) };
        // SAFETY: as above for the device.
        unsafe { (self.library.ibv_close_device)(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name).finish()
    }
}

/// Memory that the device may touch.
pub(crate) struct Registration {
    context: Arc<Context>,
    raw: NonNull<RawMr>,
}

// SAFETY: as for the context; the handle is only read until it is freed.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// What the device knows the memory by.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: the registration lives as long as `self`.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    /// What peers know the memory by.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).rkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: requests hold the registration, so the device does not use it any more.
        let code = unsafe { (self.context.library.ibv_dereg_mr)(self.raw.as_ptr()) };
        if code != 0 {
            tracing::error!(code, "memory could not be made unknown to an RDMA device");
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}
