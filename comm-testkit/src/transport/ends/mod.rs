//! Connected ends as the clauses see them: whole payloads in, whole payloads out, whichever kind
//! of connection the transport made.

mod recv;
mod send;
mod waiter;

use comm_core::{ConnInfo, Error, ErrorKind};

pub use recv::{Received, RecvEnd};
pub use send::SendEnd;
pub use waiter::{Attempt, Waiter};

fn wrong_kind(conn: &ConnInfo) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the transport connected another kind of end than asked for",
    )
    .with("end", format!("{conn:?}"))
}
