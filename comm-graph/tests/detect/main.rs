//! Detection on trees of files that look like real machines, and on this machine.

mod broken;
mod filling;
mod machines;
#[cfg(feature = "nvml")]
mod nvml;
mod tree;
