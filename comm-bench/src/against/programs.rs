//! The peers' programs, as sources: they are compiled where they run.
//!
//! All of them take operations, sizes and seconds as their first three arguments and print one line
//! `OP RANKS BYTES MICROSECONDS` for each measurement; see [`Sample::parse`](super::Sample::parse).

/// Measures an MPI library; C, for `mpicc`. Arguments: operations, sizes, seconds.
pub const MPI: &str = include_str!("../../peers/mpi_bench.c");

/// Measures a bare step FIFO between two processes, which is what this machine can reach; C.
/// Arguments: operations, sizes, seconds, and the two CPUs.
pub const FIFO_LIMIT: &str = include_str!("../../peers/fifo_limit.c");

/// Measures bare sockets between two processes, which is what this machine's TCP can reach; C.
/// Arguments as for [`FIFO_LIMIT`].
pub const TCP_LIMIT: &str = include_str!("../../peers/tcp_limit.c");

/// What [`FIFO_LIMIT`] and [`TCP_LIMIT`] include, under the name [`PAIR_NAME`].
pub const PAIR: &str = include_str!("../../peers/pair.h");

/// The file name of [`PAIR`].
pub const PAIR_NAME: &str = "pair.h";

/// Measures Gloo through `torch.distributed`; Python. Arguments: operations, sizes, seconds, ranks
/// and CPUs.
pub const GLOO: &str = include_str!("../../peers/gloo_bench.py");
