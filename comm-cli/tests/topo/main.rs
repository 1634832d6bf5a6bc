//! `commctl topo`, run as its users run it, on files written by the tests.

mod commands;
mod machine;
