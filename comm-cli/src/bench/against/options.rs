//! The part of the command line that concerns other systems.

use std::path::PathBuf;

/// What to compare with, and how.
#[derive(clap::Args, Clone, Debug)]
pub struct AgainstOptions {
    /// Measure other systems in turn with this library: openmpi, ucx, gloo, iperf3, fifo_limit,
    /// tcp_limit. Those that are not installed are named and left out.
    #[arg(long, value_name = "SYSTEM,..", value_delimiter = ',', value_enum)]
    pub against: Vec<System>,

    /// How often every system is measured, in turn, with --against.
    #[arg(long, value_name = "N", default_value_t = 5, requires = "against")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Where the plot of --against goes, as SVG. [default: bench-against.svg]
    #[arg(long, value_name = "FILE", requires = "against")]
    pub plot: Option<PathBuf>,
}

/// A system to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum System {
    /// Open MPI, or whatever `mpicc` and `mpirun` are: all operations, shared memory and TCP.
    #[value(name = "openmpi")]
    OpenMpi,
    /// UCX by its own `ucx_perftest`: messages, shared memory and TCP.
    Ucx,
    /// Gloo through torch.distributed: ping-pong and all-reduce over TCP.
    Gloo,
    /// `iperf3`: the stream that TCP carries over loopback.
    Iperf3,
    /// A bare step FIFO in shared memory: what this machine can reach with two ranks.
    #[value(name = "fifo_limit")]
    FifoLimit,
    /// Bare sockets over loopback: what this machine's TCP can reach with two ranks.
    #[value(name = "tcp_limit")]
    TcpLimit,
}
