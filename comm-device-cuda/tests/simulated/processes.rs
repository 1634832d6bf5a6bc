//! What needs a process of its own, or two.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use comm_core::device::{Device, DeviceMemory, HostDevice};
use comm_core::{ErrorKind, Result};
use comm_device_cuda::{CudaDevice, ExportedMemory};
use libtest_mimic::Failed;

use crate::{ROLE, edges};

const PATIENCE: Duration = Duration::from_secs(120);

/// Writes one byte value all over host memory that nobody else has.
pub(crate) fn fill(memory: &DeviceMemory, value: u8) {
    assert!(memory.kind().is_host());
    // SAFETY: host memory of this length, which nobody else accesses.
    unsafe {
        memory
            .as_ptr()
            .as_ptr()
            .write_bytes(value, memory.len_bytes())
    };
}

/// What is in host memory that nobody writes to.
pub(crate) fn contents(memory: &DeviceMemory) -> Vec<u8> {
    assert!(memory.kind().is_host());
    let start = memory.as_ptr().as_ptr();
    // SAFETY: host memory of this length; whoever wrote to it was waited for.
    unsafe { std::slice::from_raw_parts(start, memory.len_bytes()) }.to_vec()
}

/// Copies and waits.
pub(crate) fn copy(
    device: &CudaDevice,
    target: &DeviceMemory,
    source: &DeviceMemory,
) -> Result<()> {
    // SAFETY: different allocations that nobody else accesses before the event.
    unsafe { device.copy(target, source) }?.wait(Instant::now() + PATIENCE)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hexadecimal"))
        .collect()
}

/// A process that plays a role; killed when dropped.
pub(crate) struct Player {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Player {
    pub(crate) fn start(role: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("the path of this program"))
            .env(ROLE, role)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, lines }
    }

    pub(crate) fn say(&mut self, line: &str) {
        let mut input = self.child.stdin.as_ref().expect("a pipe");
        writeln!(input, "{line}").expect("the player listens");
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("the player speaks");
        assert!(!line.is_empty(), "the player ended");
        line.trim().to_owned()
    }

    fn end(mut self) -> Result<(), Failed> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("the player failed: {status}").into())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a player says to the test.
pub(crate) fn say(line: &str) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}

/// What the test says to a player.
pub(crate) fn hear() -> String {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .expect("the test speaks");
    line.trim().to_owned()
}

pub(crate) fn exported(memory: &ExportedMemory) -> String {
    to_hex(&memory.encode())
}

pub(crate) fn imported(device: &CudaDevice, text: &str) -> Result<DeviceMemory> {
    device.import(&ExportedMemory::decode(&from_hex(text))?)
}

/// Plays a role in a process of its own.
pub(crate) fn play(role: &str) {
    match role {
        "slow" => slow(),
        "failing" => play_failing(),
        "opener" => open(),
        "receiver" => edges::receive(),
        other => panic!("no role {other}"),
    }
}

pub(crate) fn a_copy_does_not_wait() -> Result<(), Failed> {
    Player::start("slow", &[("CUDA_SIM_DELAY_US", "400000")]).end()
}

fn slow() {
    let device = CudaDevice::new(0).expect("the simulated GPU");
    let (memory, pinned) = (device.alloc(8).unwrap(), device.alloc_pinned(8).unwrap());
    let pageable = HostDevice.alloc(8).unwrap();
    fill(&pinned, 1);
    let mut early = 0;
    for _ in 0..5 {
        // SAFETY: nobody else accesses the two.
        let event = unsafe { device.copy(&memory, &pinned) }.unwrap();
        early += usize::from(!event.is_done().unwrap());
        event.wait(Instant::now() + PATIENCE).unwrap();
        assert!(event.is_done().unwrap());
    }
    assert!(
        early > 0,
        "five copies that begin late, and each was done at once"
    );
    // A time limit leaves the copy alone.
    // SAFETY: as above.
    let event = unsafe { device.copy(&pinned, &memory) }.unwrap();
    if let Err(error) = event.wait(Instant::now()) {
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
    event.wait(Instant::now() + PATIENCE).unwrap();
    copy(&device, &pageable, &memory).unwrap();
    assert_eq!(contents(&pageable), [1; 8]);
}

pub(crate) fn failing() -> Result<(), Failed> {
    Player::start("failing", &[("CUDA_SIM_FAIL_AFTER", "2")]).end()
}

fn play_failing() {
    let device = CudaDevice::new(0).expect("the simulated GPU");
    let (memory, pinned) = (device.alloc(8).unwrap(), device.alloc_pinned(8).unwrap());
    let mut failure = None;
    for _ in 0..4 {
        match copy(&device, &memory, &pinned) {
            Ok(()) => assert!(failure.is_none(), "a failed GPU stays failed"),
            Err(error) => failure = Some(error),
        }
    }
    let failure = failure.expect("the third copy fails");
    assert_eq!(failure.kind(), ErrorKind::System);
    assert!(
        failure.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"),
        "{failure}"
    );
    assert!(device.alloc(8).is_err());
}

pub(crate) fn shared() -> Result<(), Failed> {
    let device = CudaDevice::new(0)?;
    let (memory, pinned) = (device.alloc(5000)?, device.alloc_pinned(3000)?);
    fill(&pinned, 7);
    copy(&device, &memory.slice(1000, 3000)?, &pinned)?;
    let part = memory.slice(1000, 3000)?;
    let mut opener = Player::start("opener", &[]);
    opener.say(&exported(&device.export(&part)?));
    assert_eq!(opener.hear(), "3000 bytes of 7");
    // What the other process wrote.
    copy(&device, &pinned, &part)?;
    assert_eq!(contents(&pinned), [8; 3000]);
    opener.end()
}

/// Opens the memory, looks at it and writes to it, from another GPU.
fn open() {
    let device = CudaDevice::new(1).expect("the simulated GPU");
    let memory = imported(&device, &hear()).expect("the memory opens");
    let pinned = device.alloc_pinned(memory.len_bytes()).unwrap();
    copy(&device, &pinned, &memory).unwrap();
    let found = contents(&pinned);
    let value = found[0];
    assert!(found.iter().all(|byte| *byte == value));
    fill(&pinned, value + 1);
    copy(&device, &memory, &pinned).unwrap();
    say(&format!("{} bytes of {value}", found.len()));
    hear();
}

pub(crate) fn refused() -> Result<(), Failed> {
    let device = CudaDevice::new(0)?;
    let memory = device.alloc(100)?;
    let exported = device.export(&memory)?;
    let own = device.import(&exported).unwrap_err();
    assert_eq!(own.kind(), ErrorKind::System, "the own process: {own}");
    let host = device.export(&device.alloc_pinned(100)?).unwrap_err();
    assert_eq!(host.kind(), ErrorKind::InvalidArgument, "{host}");
    let good = exported.encode();
    for len in [0, 1, 87, 89] {
        let mut bytes = good.to_vec();
        bytes.resize(len, 0);
        let error = ExportedMemory::decode(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
    // A part that would reach beyond its allocation, or overflows.
    for (field, value) in [(64..72, u64::MAX), (72..80, u64::MAX), (80..88, 99)] {
        let mut bytes = good;
        bytes[field].copy_from_slice(&value.to_le_bytes());
        let error = ExportedMemory::decode(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
    let mut bytes = good;
    bytes[..64].fill(0);
    let garbage = device.import(&ExportedMemory::decode(&bytes)?).unwrap_err();
    assert_eq!(garbage.kind(), ErrorKind::System, "{garbage}");
    Ok(())
}
