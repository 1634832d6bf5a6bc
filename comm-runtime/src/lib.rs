//! Control plane, communicator life, planner and execution.

pub mod control;
pub mod kernels;
