//! The handshake that opens every control connection.
//!
//! # Contract
//!
//! ```text
//! dialler                              listener
//!   Hello {version, purpose, nonce}  ->
//!                                    <-  Challenge {nonce}      or Reject {reason}
//!   Proof {MAC(key, "dialler", hello, challenge)}  ->
//!                                    <-  Accept {MAC(key, "listener", hello, challenge)}  or Reject
//!   Open                             ->
//! ```
//!
//! * Both sides prove that they know the job secret, over nonces of both sides and over every
//!   field of the hello: a recorded handshake cannot be replayed, a field cannot be changed, and
//!   one side's MAC is no answer for the other. The dialler proves first, so whoever scans the
//!   port gets no MAC to try passwords on.
//! * A connection counts only after `Open`: a dialler that tries several addresses at once drops
//!   the slower ones without the listener taking that for a death.
//! * A listener always says why it refuses; both sides name it.
//! * The handshake authenticates the connection. What follows on it is neither encrypted nor
//!   signed: the network between the hosts of a job carries its data in the clear anyway.
//! * The version is the first thing in the first frame and stays there in all future versions.

use std::io;

use blake3::{Hash, Hasher};
use comm_core::{Error, ErrorKind, Rank, Result};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::frame::{self, Frame, FrameKind, MAX_HANDSHAKE_BYTES};
use super::liveness::ProcessTag;
use super::secret::{self, Admission};

/// Version of the control protocol; ranks of different versions refuse each other.
pub(crate) const PROTOCOL_VERSION: u16 = 1;

/// Random identity of one communicator.
pub(crate) type CommunicatorId = [u8; 16];

/// Identity of a job at its rendezvous: a hash of what the launcher says about it.
pub(crate) type JobId = [u8; 16];

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// A link between two members of a communicator.
    Link {
        communicator: CommunicatorId,
        from: Rank,
        to: Rank,
    },
    /// A client of the rendezvous table of a job.
    Rendezvous { job: JobId },
}

/// Who connects and what for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) purpose: Purpose,
    pub(crate) process: ProcessTag,
    /// Whether the dialler has a job secret.
    has_secret: bool,
    nonce: [u8; 32],
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Challenge {
    process: ProcessTag,
    nonce: [u8; 32],
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Proof {
    mac: [u8; 32],
}

/// Why a listener refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RejectReason {
    /// The listener speaks this other version.
    Version(u16),
    /// The dialler has another secret than the job, or one of them has none.
    Secret { listener_has_one: bool },
    /// The job has no secret and the connection comes from another host.
    Remote,
    /// Nobody of this communicator, of this rank or of this job is here (any more).
    Unknown,
    /// Another process is connected under the same rank already.
    Duplicate,
}

/// Why a handshake did not end in a connection.
#[derive(Debug)]
pub(crate) struct HandshakeFailure {
    pub(crate) error: Error,
    /// The listener's reason, if it refused.
    pub(crate) reason: Option<RejectReason>,
    /// Whether nobody listens there.
    pub(crate) is_refusal: bool,
}

impl From<Error> for HandshakeFailure {
    fn from(error: Error) -> Self {
        let source = std::error::Error::source(&error);
        let is_refusal = source
            .and_then(|source| source.downcast_ref::<io::Error>())
            .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        Self {
            error,
            reason: None,
            is_refusal,
        }
    }
}

/// Opens a connection as the side that dialled; the last step (`Open`) is left to [`open`].
/// Returns which process listens.
///
/// Has no deadline of its own.
pub(crate) async fn dial<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    purpose: Purpose,
    process: ProcessTag,
    admission: &Admission,
) -> Result<ProcessTag, HandshakeFailure> {
    let hello = Hello {
        purpose,
        process,
        has_secret: admission.is_secret(),
        nonce: secret::random()?,
    };
    let hello = encode_hello(PROTOCOL_VERSION, &hello)?;
    write(stream, FrameKind::Hello, &hello).await?;
    let challenge = expect(stream, FrameKind::Challenge, admission).await?;
    let listener = challenge.decode::<Challenge>()?.process;
    let key = admission.key();
    let proof = Proof {
        mac: mac(&key, Side::Dialler, &hello, &challenge.body).into(),
    };
    write(stream, FrameKind::Proof, &encode_body(&proof)?).await?;
    let accept = expect(stream, FrameKind::Accept, admission).await?;
    let accept: Proof = accept.decode()?;
    if Hash::from(accept.mac) != mac(&key, Side::Listener, &hello, &challenge.body) {
        let error = Error::new(
            ErrorKind::Authentication,
            "the listener did not prove that it knows the job secret; another program may have \
             taken the port",
        );
        return Err(error.into());
    }
    Ok(listener)
}

/// Tells the listener that this connection is the one that stays.
pub(crate) async fn open<S: AsyncWrite + Unpin>(stream: &mut S) -> Result<()> {
    write(stream, FrameKind::Open, &[]).await
}

/// Opens a connection as the side that listens.
///
/// `resolve` finds out who is asked for and returns that one's admission rules, or why the
/// dialler is refused. Has no deadline of its own.
pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    process: ProcessTag,
    resolve: impl FnOnce(&Hello) -> Result<Admission, RejectReason>,
) -> Result<Hello, HandshakeFailure> {
    let frame = next(stream, FrameKind::Hello).await?;
    let hello = match decode_hello(&frame)? {
        Ok(hello) => hello,
        Err(version) => {
            let error = version_error(version);
            return refuse(stream, RejectReason::Version(PROTOCOL_VERSION), error).await;
        }
    };
    let admission = match resolve(&hello) {
        Ok(admission) => admission,
        Err(reason) => {
            let error = Error::new(ErrorKind::Authentication, describe(reason));
            return refuse(stream, reason, error.with("claims", claim(&hello))).await;
        }
    };
    let wrong_secret = RejectReason::Secret {
        listener_has_one: admission.is_secret(),
    };
    let secret_error = |hello: &Hello| {
        Error::new(
            ErrorKind::Authentication,
            secret_text(hello.has_secret, admission.is_secret()),
        )
        .with("claims", claim(hello))
    };
    if hello.has_secret != admission.is_secret() {
        return refuse(stream, wrong_secret, secret_error(&hello)).await;
    }
    let challenge = encode_body(&Challenge {
        process,
        nonce: secret::random()?,
    })?;
    write(stream, FrameKind::Challenge, &challenge).await?;
    let proof: Proof = next(stream, FrameKind::Proof).await?.decode()?;
    let key = admission.key();
    if Hash::from(proof.mac) != mac(&key, Side::Dialler, &frame.body, &challenge) {
        return refuse(stream, wrong_secret, secret_error(&hello)).await;
    }
    let accept = Proof {
        mac: mac(&key, Side::Listener, &frame.body, &challenge).into(),
    };
    write(stream, FrameKind::Accept, &encode_body(&accept)?).await?;
    next(stream, FrameKind::Open).await?;
    Ok(hello)
}

/// Who a dialler says that it is, for logs.
pub(crate) fn claim(hello: &Hello) -> String {
    match &hello.purpose {
        Purpose::Link { from, to, .. } => {
            format!("rank {from} (pid {}) to rank {to}", hello.process.pid)
        }
        Purpose::Rendezvous { .. } => {
            format!("a rank in pid {} at the rendezvous", hello.process.pid)
        }
    }
}

#[derive(Clone, Copy)]
enum Side {
    Dialler,
    Listener,
}

fn mac(key: &[u8; 32], side: Side, hello: &[u8], challenge: &[u8]) -> Hash {
    let mut hasher = Hasher::new_keyed(key);
    hasher.update(match side {
        Side::Dialler => b"dialler ",
        Side::Listener => b"listener",
    });
    // The lengths keep the two fields apart.
    hasher.update(&(hello.len() as u64).to_le_bytes());
    hasher.update(hello);
    hasher.update(challenge);
    hasher.finalize()
}

fn encode_hello(version: u16, hello: &Hello) -> Result<Vec<u8>> {
    let mut body = version.to_le_bytes().to_vec();
    body.extend(encode_body(hello)?);
    Ok(body)
}

/// The hello, or the version of a dialler that speaks another one.
fn decode_hello(frame: &Frame) -> Result<Result<Hello, u16>> {
    let garbled = || Error::new(ErrorKind::Protocol, "a hello does not decode");
    let (version, rest) = frame.body.split_first_chunk::<2>().ok_or_else(garbled)?;
    let version = u16::from_le_bytes(*version);
    if version != PROTOCOL_VERSION {
        return Ok(Err(version));
    }
    postcard::from_bytes(rest).map(Ok).map_err(|_| garbled())
}

fn encode_body<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|error| {
        Error::new(
            ErrorKind::Internal,
            format!("a hello does not encode: {error}"),
        )
    })
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, kind: FrameKind, body: &[u8]) -> Result<()> {
    let frame = frame::encode_raw(kind, body)?;
    stream
        .write_all(&frame)
        .await
        .map_err(|error| Error::system("writing to a control connection", error))
}

async fn next<S: AsyncRead + Unpin>(stream: &mut S, kind: FrameKind) -> Result<Frame> {
    let frame = frame::read_frame(stream, MAX_HANDSHAKE_BYTES)
        .await?
        .ok_or_else(|| {
            Error::new(
                ErrorKind::System,
                "the other side closed the connection during the handshake",
            )
        })?;
    if frame.kind == kind {
        Ok(frame)
    } else {
        Err(Error::new(
            ErrorKind::Protocol,
            format!("the handshake expected {kind:?} and got {:?}", frame.kind),
        ))
    }
}

/// Reads the listener's next frame; a `Reject` becomes the error that the dialler reports.
async fn expect<S: AsyncRead + Unpin>(
    stream: &mut S,
    kind: FrameKind,
    admission: &Admission,
) -> Result<Frame, HandshakeFailure> {
    let frame = frame::read_frame(stream, MAX_HANDSHAKE_BYTES)
        .await?
        .ok_or_else(|| {
            Error::new(
                ErrorKind::System,
                "the listener closed the connection during the handshake",
            )
        })?;
    if frame.kind == FrameKind::Reject {
        let reason: RejectReason = frame.decode()?;
        let error = match reason {
            RejectReason::Version(version) => version_error(version),
            RejectReason::Secret { listener_has_one } => Error::new(
                ErrorKind::Authentication,
                secret_text(admission.is_secret(), listener_has_one),
            ),
            RejectReason::Remote => admission.refusal(),
            _ => Error::new(ErrorKind::Rendezvous, describe(reason)),
        };
        return Err(HandshakeFailure {
            error,
            reason: Some(reason),
            is_refusal: false,
        });
    }
    if frame.kind != kind {
        let error = Error::new(
            ErrorKind::Protocol,
            format!("the handshake expected {kind:?} and got {:?}", frame.kind),
        );
        return Err(error.into());
    }
    Ok(frame)
}

async fn refuse<S: AsyncWrite + Unpin, T>(
    stream: &mut S,
    reason: RejectReason,
    error: Error,
) -> Result<T, HandshakeFailure> {
    // The dialler may be gone already; the reason for the refusal is what counts.
    let _ = write(stream, FrameKind::Reject, &encode_body(&reason)?).await;
    let _ = stream.shutdown().await;
    Err(HandshakeFailure {
        error,
        reason: Some(reason),
        is_refusal: false,
    })
}

fn version_error(version: u16) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!(
            "the other side speaks version {version} of the control protocol and this process \
             version {PROTOCOL_VERSION}; start all ranks with the same release of the library"
        ),
    )
}

const fn secret_text(dialler_has_one: bool, listener_has_one: bool) -> &'static str {
    match (dialler_has_one, listener_has_one) {
        (true, true) => "the job secrets differ; set the same COMM_SECRET on every rank",
        (false, true) => {
            "the connecting rank has no job secret but the job has one; set the same COMM_SECRET \
             on every rank"
        }
        (true, false) => {
            "the connecting rank has a job secret but the job has none; set the same COMM_SECRET \
             on every rank"
        }
        (false, false) => {
            "a job without a secret refused the connection; both sides must run the same release"
        }
    }
}

const fn describe(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::Version(_) => "the versions of the control protocol differ",
        RejectReason::Secret { .. } => "the job secrets differ",
        RejectReason::Remote => "a job without a secret takes no connections from other hosts",
        RejectReason::Unknown => {
            "the member or job that was asked for is not here: it has left, or another job uses \
             this port (ranks of one job have the same COMM_JOB_ID)"
        }
        RejectReason::Duplicate => {
            "another process is already connected under this rank; every rank may be started once"
        }
    }
}

#[cfg(test)]
mod tests;
