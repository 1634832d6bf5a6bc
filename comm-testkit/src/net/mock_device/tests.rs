use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use comm_core::Armed;
use comm_core::doorbell::Doorbells;

use super::*;

fn device() -> MockDevice {
    MockDevice::new(3, 1, Duration::from_millis(2)).unwrap()
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Host memory with these contents.
fn host(contents: &[u8]) -> DeviceMemory {
    let memory = HostDevice.alloc(contents.len()).unwrap();
    // SAFETY: memory of this length that nobody else has.
    unsafe {
        memory
            .as_ptr()
            .as_ptr()
            .copy_from(contents.as_ptr(), contents.len())
    };
    memory
}

fn contents(memory: &DeviceMemory) -> Vec<u8> {
    assert!(memory.kind().is_host());
    let start = memory.as_ptr().as_ptr();
    // SAFETY: host memory of this length; the test waited for whoever wrote to it.
    unsafe { std::slice::from_raw_parts(start, memory.len_bytes()) }.to_vec()
}

/// Copies and waits.
fn copy(device: &MockDevice, target: &DeviceMemory, source: &DeviceMemory) {
    // SAFETY: different allocations, and nobody else accesses them before the event.
    unsafe { device.copy(target, source) }
        .unwrap()
        .wait(far())
        .unwrap();
}

#[test]
fn all_clauses_of_the_contract_hold() {
    for (clause, check) in crate::device::CLAUSES {
        check(&device()).unwrap_or_else(|error| panic!("{clause}: {error}"));
        check(&HostDevice).unwrap_or_else(|error| panic!("{clause} of the host: {error}"));
    }
}

#[test]
fn d1_device_memory_is_zeroed_and_given_back() {
    let device = device();
    let memory = device.alloc(5000).unwrap();
    let back = host(&[1; 5000]);
    copy(&device, &back, &memory);
    assert_eq!(contents(&back), [0; 5000]);
    assert_eq!(device.allocated_bytes(), 5000);
    drop(memory);
    assert_eq!(device.allocated_bytes(), 0);
}

#[test]
fn the_cpu_cannot_touch_device_memory() {
    let memory = device().alloc(100).unwrap();
    assert_eq!(memory.kind(), MemoryKind::Device { ordinal: 3 });
    // The kernel, asked to read from the address, finds it as inaccessible as the CPU would.
    let (_reader, writer): (OwnedFd, OwnedFd) = rustix::pipe::pipe().unwrap();
    // SAFETY: the kernel checks the address and answers EFAULT.
    let written = unsafe { libc::write(writer.as_raw_fd(), memory.as_ptr().as_ptr().cast(), 1) };
    assert_eq!(written, -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EFAULT)
    );
}

#[test]
fn d2_bytes_go_to_the_device_and_back_through_parts() {
    let device = device();
    let memory = device.alloc(10_000).unwrap();
    copy(&device, &memory.slice(5000, 3).unwrap(), &host(b"abc"));
    let back = device.alloc_pinned(5).unwrap();
    copy(&device, &back, &memory.slice(4999, 5).unwrap());
    assert_eq!(contents(&back), b"\0abc\0");
}

#[test]
fn d2_a_copy_keeps_its_memory_alive_and_a_doorbell_tells_its_end() {
    let device = MockDevice::new(0, 1, Duration::from_millis(20)).unwrap();
    let doorbell = Doorbells::local().claim().unwrap();
    let ticket = doorbell.ticket();
    let target = host(&[0; 4]);
    let event = {
        let source = device.alloc_pinned(4).unwrap();
        // SAFETY: nobody else has the memory; the source is dropped, not accessed.
        unsafe { device.copy(&target, &source) }.unwrap()
    };
    while event.arm(&doorbell).unwrap() == Armed::WillRing {
        doorbell.wait(ticket, None);
    }
    assert!(event.is_done().unwrap());
    assert_eq!(device.allocated_bytes(), 0);
}

#[test]
fn a_failed_device_fails_its_copies() {
    let device = device();
    device.fail();
    let (target, source) = (host(b"x"), host(b"y"));
    // SAFETY: different allocations that nobody else has.
    let event = unsafe { device.copy(&target, &source) }.unwrap();
    assert_eq!(event.wait(far()).unwrap_err().kind(), ErrorKind::System);
    assert_eq!(event.is_done().unwrap_err().kind(), ErrorKind::System);
    assert_eq!(contents(&target), b"x");
}

#[test]
fn memory_of_another_device_is_refused() {
    let (one, other) = (device(), device());
    let (target, source) = (host(&[0; 8]), other.alloc(8).unwrap());
    // SAFETY: the call is refused before anything is accessed.
    let error = unsafe { one.copy(&target, &source) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn d4_the_kind_of_any_address_is_known() {
    let device = device();
    let (memory, pinned) = (
        device.alloc(100).unwrap(),
        device.alloc_pinned(100).unwrap(),
    );
    let inside = memory.slice(99, 1).unwrap().as_ptr();
    assert_eq!(
        device.memory_kind_at(inside).unwrap(),
        MemoryKind::Device { ordinal: 3 }
    );
    assert_eq!(
        device.memory_kind_at(pinned.as_ptr()).unwrap(),
        MemoryKind::HostPinned
    );
    assert_eq!(
        device.memory_kind_at(host(b"x").as_ptr()).unwrap(),
        MemoryKind::Host
    );
}
