//! The unsafe code of the control plane.

mod interfaces;
#[cfg(target_os = "linux")]
mod process_end;

pub(crate) use interfaces::enumerate;
#[cfg(target_os = "linux")]
pub(crate) use process_end::process_end;
