//! The built-in kinds of [`Rendezvous`](comm_core::Rendezvous).
//!
//! All of them check what they read only for its shape; that a peer belongs to the job is proved
//! by the handshake of the links. Their methods can be awaited on any executor.

mod local;
mod tcp_client;
mod tcp_server;
mod wire;

use comm_core::{Error, ErrorKind, Result};

pub use local::LocalRendezvous;
pub use tcp_client::TcpRendezvous;
pub(crate) use tcp_server::Tables;

use super::hello::JobId;

/// Splits `host:port` or `[address]:port`.
pub(crate) fn parse_host_port(text: &str) -> Result<(String, u16)> {
    let invalid = || {
        Error::new(
            ErrorKind::InvalidConfiguration,
            "a rendezvous is host:port, [IPv6 address]:port, file:///directory or a unique id",
        )
        .with("value", text)
    };
    let (host, port) = text.trim().rsplit_once(':').ok_or_else(invalid)?;
    let port: u16 = port.parse().map_err(|_| invalid())?;
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = bracketed.unwrap_or(host);
    if port == 0 || host.is_empty() || (bracketed.is_none() && host.contains([':', '/'])) {
        return Err(invalid());
    }
    Ok((host.to_owned(), port))
}

/// The identity of a job, made of what all its ranks know about it.
pub(crate) fn job_id(parts: &[&str]) -> JobId {
    let mut hasher = blake3::Hasher::new_derive_key("comm control plane 1 job id");
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let mut id = JobId::default();
    hasher.finalize_xof().fill(&mut id);
    id
}
