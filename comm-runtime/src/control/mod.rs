//! Control plane and rendezvous.
