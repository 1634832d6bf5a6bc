//! Developer commands of the workspace, run as `cargo xtask COMMAND`.
//!
//! This crate only parses and starts things. It depends on no other crate of the workspace and is
//! built into a target directory of its own (see `.cargo/config.toml`), so that
//! `cargo xtask tidy` never compiles the library and never invalidates its build. One file per
//! command; what a user needs lives in `commctl`, which [`commctl`] builds and starts.

#![forbid(unsafe_code)]

mod bench;
mod ci;
mod commctl;
mod features;
mod instructions;
mod launch;
mod loom;
mod process;
mod rdma;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the library: builds `commctl` and runs `commctl bench`.
    #[command(disable_help_flag = true)]
    Bench(bench::Arguments),
    /// Run everything a change has to pass, or only the named steps.
    Ci(ci::Arguments),
    /// Test comm-api with each of its features alone, and let builds that differ meet.
    Features,
    /// Count the instructions of the small paths under valgrind, and hold them to their budget.
    Instructions,
    /// Start local workers: builds `commctl` and runs `commctl launch`.
    #[command(disable_help_flag = true)]
    Launch(launch::Arguments),
    /// Model-check the lock-free code of comm-core with loom.
    Loom(loom::Arguments),
    /// Test the RDMA backend on a soft card in a virtual machine, where that is possible.
    Rdma,
    /// Run the unit, integration and documentation tests of the workspace.
    Test(test::Arguments),
    /// Check the house rules that neither rustc nor clippy knows.
    Tidy,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Ci(arguments) => ci::run(&arguments),
        Command::Features => features::run(),
        Command::Instructions => instructions::run(),
        Command::Launch(arguments) => launch::run(&arguments),
        Command::Loom(arguments) => loom::run(&arguments),
        Command::Rdma => rdma::run().map(drop),
        Command::Test(arguments) => test::run(&arguments),
        Command::Tidy => tidy::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
