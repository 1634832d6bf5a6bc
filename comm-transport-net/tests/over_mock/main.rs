//! The NET transport over the mock network: what the transport promises whatever the network does.
#![cfg(target_os = "linux")]

mod closing;
mod connecting;
mod failure;
mod hostile;
mod steps;
mod support;
