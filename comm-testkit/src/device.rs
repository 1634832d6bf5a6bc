//! The conformance suite of [`comm_core::device::Device`]: one function per clause.
//!
//! ```
//! use comm_core::device::HostDevice;
//!
//! for (clause, check) in comm_testkit::device::CLAUSES {
//!     check(&HostDevice).unwrap_or_else(|error| panic!("{clause}: {error}"));
//! }
//! ```
//!
//! A broken promise is a panic or an error that says which one.

use std::time::{Duration, Instant};

use comm_core::device::{ALIGNMENT_BYTES, Device, DeviceMemory, HostDevice};
use comm_core::doorbell::Doorbells;
use comm_core::{Armed, Error, ErrorKind, MemoryKind, Result};

/// How long a copy may take; a watchdog, not a measure of speed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A check of one clause.
pub type Clause = fn(&dyn Device) -> Result<()>;

/// All clauses with their names.
pub const CLAUSES: &[(&str, Clause)] = &[
    (
        "d1_memory_is_zeroed_and_aligned",
        d1_memory_is_zeroed_and_aligned,
    ),
    (
        "d1_impossible_lengths_are_refused",
        d1_impossible_lengths_are_refused,
    ),
    (
        "d2_bytes_go_there_and_back_through_parts",
        d2_bytes_go_there_and_back_through_parts,
    ),
    (
        "d2_a_copy_keeps_its_memory_alive",
        d2_a_copy_keeps_its_memory_alive,
    ),
    (
        "d2_lengths_that_differ_are_refused",
        d2_lengths_that_differ_are_refused,
    ),
    ("d2_a_doorbell_tells_the_end", d2_a_doorbell_tells_the_end),
    (
        "d3_many_copies_may_be_under_way",
        d3_many_copies_may_be_under_way,
    ),
    (
        "d4_the_kind_of_any_address_is_known",
        d4_the_kind_of_any_address_is_known,
    ),
];

fn host(contents: &[u8]) -> Result<DeviceMemory> {
    let memory = HostDevice.alloc(contents.len())?;
    // SAFETY: host memory of this length that nobody else has.
    unsafe {
        memory
            .as_ptr()
            .as_ptr()
            .copy_from(contents.as_ptr(), contents.len())
    };
    Ok(memory)
}

/// What is in host memory that nobody writes to.
fn contents(memory: &DeviceMemory) -> Vec<u8> {
    assert!(memory.kind().is_host(), "the CPU must not look at it");
    let mut bytes = vec![0; memory.len_bytes()];
    // SAFETY: host memory of this length; whoever wrote to it was waited for.
    unsafe {
        bytes
            .as_mut_ptr()
            .copy_from(memory.as_ptr().as_ptr(), bytes.len())
    };
    bytes
}

/// Copies and waits.
fn copy(device: &dyn Device, target: &DeviceMemory, source: &DeviceMemory) -> Result<()> {
    // SAFETY: the suite copies between different allocations, of which nobody else knows.
    let event = unsafe { device.copy(target, source) }?;
    event.wait(Instant::now() + PATIENCE)?;
    assert!(event.is_done()?, "an event that was waited for is done");
    Ok(())
}

/// D1: fresh memory is zero, starts at a page and has its kind, also if it is empty.
///
/// # Errors
///
/// What the device says.
pub fn d1_memory_is_zeroed_and_aligned(device: &dyn Device) -> Result<()> {
    for len_bytes in [0, 1, 4096, 100_001] {
        let memory = device.alloc(len_bytes)?;
        assert_eq!(memory.kind(), device.memory_kind());
        let pinned = device.alloc_pinned(len_bytes)?;
        assert!(pinned.kind().is_host(), "pinned memory is host memory");
        for memory in [&memory, &pinned] {
            assert_eq!(memory.len_bytes(), len_bytes);
            let offset = memory.as_ptr().addr().get() % ALIGNMENT_BYTES;
            assert_eq!(offset, 0, "{len_bytes} bytes start at a page");
        }
        let back = host(&vec![1; len_bytes])?;
        copy(device, &back, &memory)?;
        assert_eq!(contents(&back), vec![0; len_bytes]);
        assert_eq!(contents(&pinned), vec![0; len_bytes]);
    }
    Ok(())
}

/// D1: a length that no allocation can have is an error, not an overflow.
///
/// # Errors
///
/// None; the device's are what is wanted.
pub fn d1_impossible_lengths_are_refused(device: &dyn Device) -> Result<()> {
    for len_bytes in [usize::MAX, isize::MAX as usize + 1, isize::MAX as usize] {
        for refused in [device.alloc(len_bytes), device.alloc_pinned(len_bytes)] {
            let kind = refused.expect_err("nobody has that much").kind();
            let fitting = [ErrorKind::InvalidArgument, ErrorKind::ResourceExhausted];
            assert!(fitting.contains(&kind), "{kind:?}");
        }
    }
    Ok(())
}

/// D2: what is copied arrives, from and to pageable and pinned memory and parts of memory.
///
/// # Errors
///
/// What the device says.
pub fn d2_bytes_go_there_and_back_through_parts(device: &dyn Device) -> Result<()> {
    let memory = device.alloc(10_000)?;
    copy(device, &memory.slice(5000, 3)?, &host(b"abc")?)?;
    let pinned = device.alloc_pinned(5)?;
    copy(device, &pinned, &memory.slice(4999, 5)?)?;
    assert_eq!(contents(&pinned), b"\0abc\0");
    let second = device.alloc(5)?;
    copy(device, &second, &memory.slice(4998, 5)?)?;
    copy(device, &memory.slice(0, 5)?, &second)?;
    copy(device, &memory.slice(5, 5)?, &pinned)?;
    let back = host(&[1; 10])?;
    copy(device, &back, &memory.slice(0, 10)?)?;
    assert_eq!(contents(&back), b"\0\0abc\0abc\0");
    Ok(())
}

/// D2: memory whose last handle is dropped while it is copied is still copied.
///
/// # Errors
///
/// What the device says.
pub fn d2_a_copy_keeps_its_memory_alive(device: &dyn Device) -> Result<()> {
    let bytes: Vec<u8> = (0..50_000_u32).map(|byte| byte as u8).collect();
    let (on_device, back) = (device.alloc(bytes.len())?, host(&vec![0; bytes.len()])?);
    let pinned = device.alloc_pinned(bytes.len())?;
    // SAFETY: host memory of this length that nobody else has.
    unsafe {
        pinned
            .as_ptr()
            .as_ptr()
            .copy_from(bytes.as_ptr(), bytes.len())
    };
    // SAFETY: nobody else accesses the two; the handle of the source is given up.
    let event = unsafe { device.copy(&on_device, &pinned) }?;
    drop(pinned);
    event.wait(Instant::now() + PATIENCE)?;
    copy(device, &back, &on_device)?;
    assert_eq!(contents(&back), bytes);
    Ok(())
}

/// D2: memories of different lengths are refused, and nothing is copied.
///
/// # Errors
///
/// What the device says otherwise.
pub fn d2_lengths_that_differ_are_refused(device: &dyn Device) -> Result<()> {
    let (target, source) = (device.alloc(10)?, host(&[1; 11])?);
    // SAFETY: nobody else accesses the two.
    let refused = unsafe { device.copy(&target, &source) };
    let error = refused.expect_err("11 bytes do not fit into 10");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    Ok(())
}

/// D2: a thread that sleeps on its doorbell is woken when the copy is done.
///
/// # Errors
///
/// What the device says.
pub fn d2_a_doorbell_tells_the_end(device: &dyn Device) -> Result<()> {
    let doorbell = Doorbells::local().claim()?;
    let (target, source) = (device.alloc(1 << 20)?, device.alloc_pinned(1 << 20)?);
    let ticket = doorbell.ticket();
    // SAFETY: nobody else accesses the two.
    let event = unsafe { device.copy(&target, &source) }?;
    if event.arm(&doorbell)? == Armed::WillRing && !doorbell.wait(ticket, Some(PATIENCE)) {
        let text = "the doorbell was not rung for a copy";
        return Err(Error::new(ErrorKind::Timeout, text));
    }
    event.wait(Instant::now() + PATIENCE)
}

/// D3: copies that are under way at the same time do not disturb each other.
///
/// # Errors
///
/// What the device says.
pub fn d3_many_copies_may_be_under_way(device: &dyn Device) -> Result<()> {
    let sources: Vec<_> = (0..8_u8)
        .map(|number| host(&vec![number; 10_000]))
        .collect::<Result<_>>()?;
    let memory = device.alloc(80_000)?;
    let mut events = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let target = memory.slice(number * 10_000, 10_000)?;
        // SAFETY: the parts do not overlap and nobody else accesses them.
        events.push(unsafe { device.copy(&target, source) }?);
    }
    for event in events.iter().rev() {
        event.wait(Instant::now() + PATIENCE)?;
    }
    let back = host(&[0xFF; 80_000])?;
    copy(device, &back, &memory)?;
    for (number, part) in (0..8_u8).zip(contents(&back).chunks(10_000)) {
        assert!(part.iter().all(|byte| *byte == number));
    }
    Ok(())
}

/// D4: the kind of any address is known, inside of memory too.
///
/// # Errors
///
/// What the device says.
pub fn d4_the_kind_of_any_address_is_known(device: &dyn Device) -> Result<()> {
    let (memory, pinned) = (device.alloc(10_000)?, device.alloc_pinned(100)?);
    let inside = memory.slice(9_999, 1)?.as_ptr();
    assert_eq!(device.memory_kind_at(inside)?, device.memory_kind());
    assert_eq!(device.memory_kind_at(pinned.as_ptr())?, pinned.kind());
    let unknown = host(b"x")?;
    assert_eq!(device.memory_kind_at(unknown.as_ptr())?, MemoryKind::Host);
    Ok(())
}
