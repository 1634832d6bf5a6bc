//! The command line of `commctl topo`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use comm_bench::Size;
use comm_core::Error;
use comm_graph::tuning::Collective;

/// Arguments of `commctl topo`.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `commctl topo` does.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Check topology files; every finding is printed with file and line.
    Validate {
        /// Topology files in NCCL's XML format.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print a machine as text: this one, or that of a topology file.
    Show {
        /// A topology file in NCCL's XML format.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Predict how long a collective takes with each algorithm and protocol.
    Plan {
        /// The machines.
        #[command(flatten)]
        job: Job,
        /// The collective.
        #[arg(long, value_enum, default_value = "all_reduce")]
        op: Operation,
        /// Bytes per rank, with K, M or G for powers of 1024.
        #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
        bytes: Size,
    },
    /// Print channels, neighbours, rounds and costs of a job.
    Graph {
        /// The machines.
        #[command(flatten)]
        job: Job,
        /// Everything as one line of JSON instead of a summary.
        #[arg(long)]
        json: bool,
    },
    /// Write this machine's topology file.
    Detect(Detect),
    /// Draw a machine and its rings as SVG.
    Draw {
        /// A topology file in NCCL's XML format.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// On how many such hosts the job of the rings and trees runs.
        #[arg(long, value_name = "K", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        hosts: u32,
        /// The picture to write.
        #[arg(short, long, value_name = "SVG")]
        output: PathBuf,
        /// Also draw the trees over all hosts, into a file beside it that ends in `.trees.svg`.
        #[arg(long)]
        trees: bool,
    },
}

/// Which hosts a job has.
#[derive(clap::Args, Clone, Debug)]
pub struct Job {
    /// Topology files in NCCL's XML format, one per kind of host.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How many hosts; they take the files in turn. [default: one per file]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub hosts: Option<u32>,
}

/// Arguments of `commctl topo detect`.
#[derive(clap::Args, Clone, Debug)]
pub struct Detect {
    /// Where to write the file; standard output otherwise.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Process slots per NUMA node, for jobs on host memory.
    ///
    /// [default: none beside GPUs; otherwise one per usable CPU, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub slots: Option<u32>,
    /// The directory that holds the machine's `sys` and `proc`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

/// A collective, as bench names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Operation {
    /// Sum over all ranks, on all ranks.
    AllReduce,
    /// Every rank's part, on all ranks.
    AllGather,
    /// Sum over all ranks, one part on each.
    ReduceScatter,
    /// One rank's data, on all ranks.
    Broadcast,
    /// Sum over all ranks, on one.
    Reduce,
}

impl Operation {
    pub(super) const fn collective(self) -> Collective {
        match self {
            Self::AllReduce => Collective::AllReduce,
            Self::AllGather => Collective::AllGather,
            Self::ReduceScatter => Collective::ReduceScatter,
            Self::Broadcast => Collective::Broadcast,
            Self::Reduce => Collective::Reduce,
        }
    }
}

fn size(text: &str) -> Result<Size, String> {
    text.parse()
        .map_err(|error: Error| error.message().to_owned())
}
