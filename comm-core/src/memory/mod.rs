//! Memory that processes of one host share.

#[cfg(target_os = "linux")]
mod exclusive;
#[cfg(target_os = "linux")]
mod sealed;

#[cfg(target_os = "linux")]
pub use exclusive::ReadMapping;
#[cfg(target_os = "linux")]
pub use sealed::{SealedMemory, SharedMapping};
