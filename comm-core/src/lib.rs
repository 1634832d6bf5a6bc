//! Contracts and vocabulary of the `comm` library.

mod error;

pub use error::{Error, ErrorKind, Result, Retry};
