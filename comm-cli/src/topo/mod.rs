//! `commctl topo`: looks at machines and at what the library makes of them.
//!
//! # Contract
//!
//! | command | prints | exit code |
//! |---|---|---|
//! | `validate FILE...` | every finding as `file:line: error: ...` | 1 when a file cannot be used |
//! | `show [FILE]` | the machine as a text tree, links, and how near devices are | 0 |
//! | `plan FILE... --op OP --bytes SIZE` | predicted time per algorithm and protocol, fastest first | 0 |
//! | `graph FILE... [--json]` | channels, neighbours, rounds and costs | 0 |
//! | `detect [-o FILE]` | this machine as a topology file | 0 |
//! | `draw FILE -o out.svg [--trees]` | pictures of the machine, its rings and its trees | 0 |
//!
//! * `--hosts K` plans a job on K hosts; several files are taken in turn, so as many hosts as files
//!   (the default) are one of each, in that order. One picture shows one file.
//! * Variables that steer paths and search work as in a job, under `COMM_` and NCCL's names.
//! * `show` without a file and `detect` look at this machine and fill in what the file named by
//!   `COMM_TOPO_FILE` or `NCCL_TOPO_FILE` lacks; `COMM_TOPO_DUMP_FILE` or `NCCL_TOPO_DUMP_FILE`
//!   names a file that the result is also written to.
//! * A file that cannot be read or used ends a command with an error that names file and line.
//! * Output goes to standard output and warnings to standard error; a reader that closes the pipe
//!   early is no error.

mod detect;
mod draw;
mod graph;
mod input;
mod options;
mod plan;
mod show;
mod validate;

pub use options::{Command, Detect, Job, Operation, Options};

use std::io::{ErrorKind as IoErrorKind, Write as _};

use comm_api::variable;
use comm_core::{Error, Result};

/// Runs the command and returns the exit code for this process.
///
/// # Errors
///
/// `InvalidConfiguration` for files and variables that make no sense, `System` when a file cannot
/// be read or written, and what planning a job may return.
pub fn run(options: &Options) -> Result<u8> {
    let lookup = variable;
    match &options.command {
        Command::Validate { files } => {
            let (text, usable) = validate::findings(files);
            print(&text)?;
            return Ok(u8::from(!usable));
        }
        Command::Show { file } => print(&show::text(file.as_deref(), &lookup)?)?,
        Command::Plan { job, op, bytes } => print(&plan::table(job, *op, *bytes, &lookup)?)?,
        Command::Graph { job, json } => print(&graph::text(job, *json, &lookup)?)?,
        Command::Detect(options) => {
            if let Some(text) = detect::run(options, &lookup)? {
                print(&text)?;
            }
        }
        Command::Draw {
            file,
            hosts,
            output,
            trees,
        } => {
            let job = Job {
                files: vec![file.clone()],
                hosts: Some(*hosts),
            };
            draw::run(&job, output, *trees, &lookup)?;
        }
    }
    Ok(0)
}

/// Reads a variable by name.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != IoErrorKind::BrokenPipe => {
            Err(Error::system("writing to standard output", error))
        }
        _ => Ok(()),
    }
}
