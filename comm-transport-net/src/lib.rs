//! NET transport.
