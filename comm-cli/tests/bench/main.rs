//! `commctl bench`, run as its users run it.
//!
//! The figures are not judged, only that they are there; sizes and times are tiny.

mod against;
mod arguments;
mod command;
mod jobs;
mod results;
mod transports;
