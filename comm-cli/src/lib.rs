//! The commands of `commctl`, each as a module that the program only dispatches to.
//!
//! | command | module | what it does |
//! |---|---|---|
//! | `commctl bench` | [`mod@bench`] | measures the library |
//! | `commctl launch` | [`launch`] | starts local workers and ends them together |
//! | `commctl topo` | [`topo`] | checks, shows, draws and plans machines |
//!
//! A command takes its parsed arguments and returns the exit code of the program, or a
//! [`comm_core::Error`] that the program prints.

#![deny(unsafe_code)]

pub mod bench;
pub mod launch;
pub mod topo;
