//! What a backend and everything that came from it share: memory, members, the event set.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use comm_core::net::{MemoryRegion, MrSlice, Region};
use comm_core::{Armed, Error, ErrorKind, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::device::Device;
use super::dial::Dial;
use super::ffi::{Registration, Work};
use super::link::Link;
use super::listener::Door;
use super::options::VerbsOptions;

/// Locks; what a panicking thread left behind is still whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers of the event set from here on are devices; below are members.
const DEVICES_FROM: u64 = 1 << 62;

/// Events that are taken at once.
const EVENTS: usize = 64;

/// What a socket of the event set belongs to.
#[derive(Clone, Debug)]
pub(super) enum Member {
    /// A connection; its socket is kept for its end.
    Link(Arc<Link>, Arc<OwnedFd>),
    /// A listener.
    Door(Arc<Door>),
    /// A connection that is being made.
    Dial(Arc<Dial>),
}

/// The inner part of a backend.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: VerbsOptions,
    pub(super) devices: Vec<Arc<Device>>,
    set: OwnedFd,
    next: AtomicU64,
    members: Mutex<HashMap<u64, Member>>,
    failure: OnceLock<Error>,
}

impl Shared {
    pub(super) fn new(options: VerbsOptions) -> Result<Arc<Self>> {
        let devices: Vec<_> = Device::all(&options)?.into_iter().map(Arc::new).collect();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| Error::system("making an event set", errno))?;
        let shared = Self {
            options,
            devices,
            set,
            next: AtomicU64::new(1),
            members: Mutex::default(),
            failure: OnceLock::new(),
        };
        for (device, number) in shared.devices.iter().zip(0_u64..) {
            let context = &device.context;
            shared.watch(context.event_fd(), DEVICES_FROM + 2 * number, true)?;
            shared.watch(context.async_fd(), DEVICES_FROM + 2 * number + 1, true)?;
        }
        Ok(Arc::new(shared))
    }

    pub(super) fn device(&self, number: usize) -> Result<&Arc<Device>> {
        self.devices.get(number).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "there is no such RDMA device")
                .with("device", number)
                .with("devices", self.devices.len())
        })
    }

    /// A number for a member.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn event_set(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Has the event set watch a socket for a member.
    pub(super) fn watch(&self, fd: BorrowedFd<'_>, number: u64, reads: bool) -> Result<()> {
        let flags = if reads {
            epoll::EventFlags::IN | epoll::EventFlags::RDHUP
        } else {
            epoll::EventFlags::OUT
        };
        let data = epoll::EventData::new_u64(number);
        epoll::add(&self.set, fd, data, flags)
            .map_err(|errno| Error::system("watching a socket", errno))
    }

    /// Changes what a socket is watched for.
    pub(super) fn watch_again(&self, fd: BorrowedFd<'_>, number: u64) -> Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let data = epoll::EventData::new_u64(number);
        epoll::modify(&self.set, fd, data, flags)
            .map_err(|errno| Error::system("watching a socket", errno))
    }

    /// Does not watch a socket any more.
    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        // Fails if it was not watched, which is what is wanted.
        let _ = epoll::delete(&self.set, fd);
    }

    pub(super) fn insert(&self, number: u64, member: Member) {
        lock(&self.members).insert(number, member);
    }

    /// Removes a member; its sockets are closed when nobody uses it any more.
    pub(super) fn forget(&self, number: u64) {
        let gone = lock(&self.members).remove(&number);
        if let Some(Member::Link(_, socket)) = &gone {
            self.unwatch(socket.as_fd());
        }
    }

    fn links(&self) -> Vec<Arc<Link>> {
        let members = lock(&self.members);
        let links = members.values().filter_map(|member| match member {
            Member::Link(link, _) => Some(Arc::clone(link)),
            _ => None,
        });
        links.collect()
    }

    /// The failure of the backend, if it has failed.
    pub(super) fn check(&self) -> Result<()> {
        self.failure
            .get()
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Takes completions of all connections and what the sockets have.
    pub(super) fn progress(self: &Arc<Self>) -> Result<bool> {
        self.check()?;
        let mut moved = false;
        for link in self.links() {
            moved |= link.progress();
        }
        moved |= self.take_events()?;
        self.check()?;
        Ok(moved)
    }

    fn take_events(self: &Arc<Self>) -> Result<bool> {
        let mut events = Vec::with_capacity(EVENTS);
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match epoll::wait(&self.set, spare_capacity(&mut events), Some(&at_once)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::system("reading an event set", errno)),
        }
        let mut moved = false;
        for event in events {
            let number = event.data.u64();
            if let Some(device) = number.checked_sub(DEVICES_FROM) {
                // Events of completion queues are left for `arm`.
                if device % 2 == 1 {
                    self.take_news(device / 2);
                }
                continue;
            }
            let member = lock(&self.members).get(&number).cloned();
            moved |= match member {
                // Nothing is sent over the socket once the connection stands.
                Some(Member::Link(link, socket)) => {
                    self.unwatch(socket.as_fd());
                    link.peer_is_gone();
                    true
                }
                Some(Member::Door(door)) => door.ready(self),
                Some(Member::Dial(dial)) => dial.ready(self),
                None => false,
            };
        }
        Ok(moved)
    }

    fn take_news(&self, device: u64) {
        let Some(device) = usize::try_from(device)
            .ok()
            .and_then(|number| self.devices.get(number))
        else {
            return;
        };
        if device.context.take_news() {
            let error = Error::new(ErrorKind::System, "an RDMA device has failed for good")
                .with("device", device.context.name());
            let _ = self.failure.set(error);
        }
    }

    /// Asks for events of all connections.
    pub(super) fn arm(&self) -> Result<Armed> {
        self.check()?;
        let links = self.links();
        for device in &self.devices {
            while let Some(event) = device.context.next_event() {
                if let Some(link) = links.iter().find(|link| link.number == event.queue) {
                    link.rang();
                }
            }
        }
        let mut ready = false;
        for link in &links {
            ready |= link.arm()? || link.is_ending();
        }
        Ok(if ready { Armed::Ready } else { Armed::WillRing })
    }
}

/// What makes a region one of a device's.
#[derive(Debug)]
pub(super) struct Memory {
    /// `None` for no bytes, which no device registers.
    registration: Option<Registration>,
    /// The registration by which peers write.
    window: OnceLock<Registration>,
    device: Arc<Device>,
}

impl Memory {
    pub(super) fn register(device: &Arc<Device>, region: Region) -> Result<MemoryRegion> {
        let memory = match &region {
            Region::Host(memory) if memory.kind().is_host() => memory,
            other => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "this device reaches host memory only; copy the data to pinned host memory first",
                )
                .with("memory", format_args!("{:?}", other.memory().kind())));
            }
        };
        let registration = (memory.len_bytes() > 0)
            .then(|| device.context.register(memory, false))
            .transpose()?;
        let memory = Self {
            registration,
            window: OnceLock::new(),
            device: Arc::clone(device),
        };
        Ok(MemoryRegion::new(region, memory))
    }

    /// The memory of a slice, if it is registered with this device of this backend.
    pub(super) fn of<'a>(
        slice: &'a MrSlice,
        shared: &Shared,
        device: &Arc<Device>,
    ) -> Result<&'a Self> {
        let known = slice.region().key::<Self>();
        known
            .filter(|memory| Arc::ptr_eq(&memory.device, device))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    "the memory is not registered with this device; register it first",
                )
                .with("device", &device.properties.name)
                .with("devices", shared.devices.len())
            })
    }

    pub(super) fn local_key(&self) -> u32 {
        self.registration
            .as_ref()
            .map_or(0, Registration::local_key)
    }

    /// Opens the region for writing by peers.
    pub(super) fn open_window(region: &MemoryRegion, shared: &Shared) -> Result<Bytes> {
        let memory = region
            .key::<Self>()
            .filter(|memory| {
                shared
                    .devices
                    .iter()
                    .any(|device| Arc::ptr_eq(device, &memory.device))
            })
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    "the memory is not registered with this backend; register it first",
                )
            })?;
        let host = region.region().memory();
        if memory.window.get().is_none() {
            // Whoever comes second drops a registration that nobody knows of.
            let _ = memory
                .window
                .set(memory.device.context.register(host, true)?);
        }
        let remote_key = memory.window.get().map_or(0, Registration::remote_key);
        let window = Window {
            address: host.as_ptr().addr().get() as u64,
            len_bytes: host.len_bytes() as u64,
            remote_key,
        };
        Ok(window.encode())
    }
}

/// What a peer has to know of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    address: u64,
    len_bytes: u64,
    remote_key: u32,
}

impl Window {
    const BYTES: usize = 20;

    fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend_from_slice(&self.address.to_le_bytes());
        bytes.extend_from_slice(&self.len_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.remote_key.to_le_bytes());
        bytes.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let whole = || -> Option<Self> {
            let (address, rest) = bytes.split_first_chunk()?;
            let (len_bytes, rest) = rest.split_first_chunk()?;
            let remote_key = rest.try_into().ok()?;
            Some(Self {
                address: u64::from_le_bytes(*address),
                len_bytes: u64::from_le_bytes(*len_bytes),
                remote_key: u32::from_le_bytes(remote_key),
            })
        };
        whole().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                "this is no window of this network",
            )
        })
    }

    /// The write to a place in the window. A place outside is refused by the peer's card.
    pub(super) const fn at(&self, offset_bytes: u64) -> Work {
        Work::Write {
            address: self.address.wrapping_add(offset_bytes),
            remote_key: self.remote_key,
        }
    }
}
