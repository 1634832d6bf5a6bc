//! Copy and reduce kernels for host memory.
