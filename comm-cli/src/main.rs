//! `commctl`: the command of the library. Parses the command line and dispatches.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use comm_cli::launch;

/// Starts jobs that use the comm library on this machine.
#[derive(Parser)]
#[command(name = "commctl", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start N local workers and end them together.
    Launch(launch::Options),
    /// Started by `launch` for itself; see the module `launch::guard`.
    #[command(name = launch::GUARD_COMMAND, hide = true)]
    LaunchGuard,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Launch(options) => launch::run(&options),
        Command::LaunchGuard => launch::run_guard(),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("commctl: {error}");
            ExitCode::FAILURE
        }
    }
}
