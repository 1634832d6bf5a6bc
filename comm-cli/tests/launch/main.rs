//! `commctl launch`, run as its users run it: real processes, small shell programs as workers.
//!
//! No test asserts how quickly something happens; a watchdog ends a launch that hangs.

mod job;

mod environment;
mod examples;
mod failure;
mod leftovers;
mod output;
mod signals;
