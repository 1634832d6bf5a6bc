//! Comparison with the answers of NCCL's own graph code on real machines' files.
//!
//! Reads the shared folder named by `COMM_SHARED_DIR`, or `../shared` next to the workspace; every
//! test prints why it skips where the folder is absent.

mod cases;
mod paths;
mod patterns;
mod plans;
mod report;
mod search;
mod tuning;
