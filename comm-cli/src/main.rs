//! `commctl`: the command of the library. Parses the command line and dispatches.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use comm_cli::{bench, launch, topo};

/// Measures the comm library, starts jobs that use it and looks at machines.
#[derive(Parser)]
#[command(name = "commctl", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure collectives, messages and start-up, here or in a launched job.
    Bench(Box<bench::Options>),
    /// Started by `bench` for itself.
    #[command(name = bench::WORKER_COMMAND, hide = true)]
    BenchWorker {
        /// What to do, in JSON.
        order: String,
    },
    /// Start N local workers and end them together.
    Launch(launch::Options),
    /// Started by `launch` for itself; see the module `launch::guard`.
    #[command(name = launch::GUARD_COMMAND, hide = true)]
    LaunchGuard,
    /// Check, show, draw and plan machines.
    Topo(topo::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Bench(options) => bench::run(&options),
        Command::BenchWorker { order } => bench::run_worker(&order),
        Command::Launch(options) => launch::run(&options),
        Command::LaunchGuard => launch::run_guard(),
        Command::Topo(options) => topo::run(&options),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("commctl: {error}");
            ExitCode::FAILURE
        }
    }
}
