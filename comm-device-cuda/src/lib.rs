//! CUDA memory: [`CudaDevice`], a [`Device`](comm_core::device::Device) over the driver's
//! interface.
//!
//! ```
//! use comm_core::device::Device;
//! use comm_device_cuda::CudaDevice;
//!
//! match CudaDevice::new(0) {
//!     Ok(device) => println!("{} has memory of kind {}", device.name(), device.memory_kind()),
//!     Err(error) => println!("no CUDA: {error}"),
//! }
//! ```
//!
//! # Contract
//!
//! Beside the clauses D1 to D4 of [`comm_core::device`]:
//!
//! * **Loaded at run time.** The driver (`libcuda.so.1`) is looked for when the first device is
//!   made. Nothing of CUDA is needed to build or to start a program; without a driver or a GPU
//!   [`CudaDevice::new`] says which is [`Unavailable`](comm_core::ErrorKind::Unavailable).
//! * **The primary context** of the GPU is used, which other CUDA libraries of the process use too.
//!   The calling thread's current context is put back after every call.
//! * **Copies between device and pinned memory** go to a stream of their own; pageable memory, which
//!   the driver copies from and to while the caller waits, is left to the device's thread. So
//!   [`copy`](comm_core::device::Device::copy) never waits for either.
//! * **Events** end on the device's thread, which rings the doorbells of those who sleep. A GPU that
//!   fails ends all events with its error.
//! * **Other processes** of the host open memory by [`CudaDevice::export`] and
//!   [`CudaDevice::import`]. The exporting process keeps the memory allocated while others use it;
//!   nothing can make it.

mod context;
mod device;
mod driver;
mod share;
mod worker;

pub use device::CudaDevice;
pub use share::ExportedMemory;
