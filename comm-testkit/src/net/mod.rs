//! For networks: a mock, and the conformance suite of [`comm_core::net::NetBackend`].
//!
//! * [`MockRdma`]: an RDMA-like network inside one process, driven by a seed, that does late what
//!   real networks do late and fails where it is told to.
//! * [`MockDevice`]: an accelerator with memory that the CPU cannot touch and copies that take
//!   their time.
//! * [`conformance`]: one function per clause of the contract, and
//!   [`net_backend_conformance!`](crate::net_backend_conformance), which makes tests of them.
//! * [`Rig`] and [`Buffer`]: two connected backends and memory, with which further tests of a
//!   backend can be written without `unsafe`.
//! * [`SecondProcess`]: a peer that can be killed.
//! * [`Payload`]: contents that can be checked.

mod buffer;
pub mod conformance;
#[cfg(target_os = "linux")]
mod mock_device;
#[cfg(target_os = "linux")]
mod mock_rdma;
mod payload;
mod rig;
mod rng;
mod second_process;

pub use buffer::Buffer;
#[cfg(target_os = "linux")]
pub use mock_device::MockDevice;
#[cfg(target_os = "linux")]
pub use mock_rdma::{MockConfig, MockFabric, MockRdma};
pub use payload::Payload;
pub use rig::{NetFixture, Rig};
pub use rng::Rng;
pub use second_process::{SecondProcess, SecondRole, second_role};
