//! A link: one open connection between two members.
//!
//! # Contract
//!
//! * What one side queues arrives at the other in that order, or the link ends.
//! * Queueing never blocks. A link sends everything that is queued before its goodbye.
//! * A link ends in one of the ways of [`LinkEnd`]; only a goodbye is an orderly one.
//! * What the peer has said before counts, whatever else is noticed first: that its process has ended, or
//!   that nothing can be written any more. Everything that has come is read before.
//! * Descriptors of a message are on their way before the message is, so they are there when it
//!   arrives; the receiver delivers a message only together with its descriptors, or with the
//!   reason why they did not come.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Rank};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio::sync::mpsc::UnboundedReceiver;

use super::fd_socket::{self, FdTicket};
use super::frame::{self, Frame, FrameKind, MAX_FRAME_BYTES};
use super::liveness::ProcessTag;
use super::member::Member;
use super::plane::Message;

/// How much is gathered into one write.
const WRITE_BATCH_BYTES: usize = 256 << 10;

/// How long nothing may have come before nothing more is expected of a connection that is at its end.
const LAST_WORDS_LIMIT: Duration = Duration::from_millis(100);

/// In how many parts a silence is measured. Time in which this process did not run is found over at once,
/// whatever has come meanwhile; of that, one part counts.
const PARTS_OF_SILENCE: u32 = 10;

/// Something that waits to be written to a link.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A complete frame.
    Frame(Bytes),
    /// A message whose descriptors go first.
    MessageWithFds(Message),
    /// The orderly end.
    Goodbye,
}

/// How a link ended.
#[derive(Debug)]
pub(crate) enum LinkEnd {
    /// The peer said goodbye.
    PeerLeft,
    /// This side has nothing more to do with it.
    LocalEnd,
    /// The peer said nothing for this long.
    Silent(Duration),
    /// The connection broke or carried nonsense.
    Broken(Error),
}

/// A [`Message`] in a frame.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireMessage {
    kind: u16,
    fds: WireFds,
    payload: Bytes,
}

#[derive(Debug, Serialize, Deserialize)]
enum WireFds {
    None,
    /// They are in the receiver's descriptor socket.
    Sent(FdTicket),
    /// They could not be sent, for this reason.
    Failed(String),
}

/// The frame of a message without descriptors.
pub(crate) fn message_frame(message: &Message) -> comm_core::Result<Bytes> {
    message_frame_with(message, WireFds::None)
}

fn message_frame_with(message: &Message, fds: WireFds) -> comm_core::Result<Bytes> {
    let wire = WireMessage {
        kind: message.kind,
        fds,
        payload: message.payload.clone(),
    };
    frame::encode(FrameKind::Message, &wire)
}

/// Runs the link until it ends.
pub(crate) async fn run(
    mut stream: TcpStream,
    mut outbox: UnboundedReceiver<Outgoing>,
    member: &Arc<Member>,
    peer: Rank,
    process: ProcessTag,
) -> LinkEnd {
    member.heartbeat().apply(&stream);
    let (reader, writer) = stream.split();
    let own = member.core().tag();
    let heard = AtomicU64::new(0);
    let otherwise = async {
        let end = tokio::select! {
            end = write(writer, &mut outbox, member, peer) => end,
            () = process.ended(&own) => {
                LinkEnd::Broken(Error::new(ErrorKind::System, "the process has ended"))
            }
        };
        last_words(&heard).await;
        end
    };
    tokio::select! {
        biased;
        end = read(BufReader::new(reader), member, peer, &heard) => end,
        end = otherwise => end,
    }
}

/// Waits until nothing more comes, by the number of frames `heard`.
async fn last_words(heard: &AtomicU64) {
    // Twice in a row: a thread that did not run finds the first pause over before it has read all.
    let mut quiet = 0;
    while quiet < 2 {
        // Relaxed: both are of one task.
        let before = heard.load(Ordering::Relaxed);
        tokio::time::sleep(LAST_WORDS_LIMIT / 2).await;
        quiet = if heard.load(Ordering::Relaxed) == before {
            quiet + 1
        } else {
            0
        };
    }
}

/// The result of `next`, unless it takes longer than `limit` of the time in which this process runs.
async fn within<T>(limit: Duration, next: impl Future<Output = T>) -> Option<T> {
    let mut next = pin!(next);
    for _ in 0..PARTS_OF_SILENCE {
        let part = tokio::time::timeout(limit / PARTS_OF_SILENCE, &mut next);
        if let Ok(done) = part.await {
            return Some(done);
        }
    }
    None
}

/// Tells a peer that connected too late that the member has left.
pub(crate) async fn farewell(mut stream: TcpStream) {
    if let Ok(goodbye) = frame::encode_raw(FrameKind::Goodbye, &[]) {
        // If the peer is gone there is nobody to tell.
        let _ = stream.write_all(&goodbye).await;
        let _ = stream.shutdown().await;
    }
}

async fn write(
    mut writer: WriteHalf<'_>,
    outbox: &mut UnboundedReceiver<Outgoing>,
    member: &Arc<Member>,
    peer: Rank,
) -> LinkEnd {
    let interval = member.heartbeat().interval();
    let mut batch = Vec::new();
    loop {
        batch.clear();
        let mut goodbye = false;
        let mut next = match tokio::time::timeout(interval, outbox.recv()).await {
            Ok(Some(item)) => Some(item),
            Ok(None) => return LinkEnd::LocalEnd,
            Err(_) => {
                match frame::encode_raw(FrameKind::Ping, &[]) {
                    Ok(ping) => batch.extend_from_slice(&ping),
                    Err(error) => return LinkEnd::Broken(error),
                }
                None
            }
        };
        while let Some(item) = next {
            let bytes = match item {
                Outgoing::Frame(bytes) => Ok(bytes),
                Outgoing::MessageWithFds(message) => with_fds(message, member, peer).await,
                Outgoing::Goodbye => {
                    goodbye = true;
                    frame::encode_raw(FrameKind::Goodbye, &[])
                }
            };
            match bytes {
                Ok(bytes) => batch.extend_from_slice(&bytes),
                Err(error) => return LinkEnd::Broken(error),
            }
            if goodbye || batch.len() >= WRITE_BATCH_BYTES {
                break;
            }
            next = outbox.try_recv().ok();
        }
        if let Err(error) = writer.write_all(&batch).await {
            return LinkEnd::Broken(Error::system("writing to a control link", error));
        }
        if goodbye {
            // Closing before the peer has read everything could destroy what is under way, so
            // the peer closes first; the reader sees that.
            let _ = writer.shutdown().await;
            std::future::pending::<()>().await;
        }
    }
}

async fn with_fds(
    mut message: Message,
    member: &Arc<Member>,
    peer: Rank,
) -> comm_core::Result<Bytes> {
    let fds = std::mem::take(&mut message.fds);
    let wire = match fd_socket::send(member, peer, fds).await {
        Ok(ticket) => WireFds::Sent(ticket),
        Err(error) => WireFds::Failed(error.to_string()),
    };
    message_frame_with(&message, wire)
}

async fn read<R: AsyncRead + Unpin>(
    mut reader: R,
    member: &Arc<Member>,
    peer: Rank,
    heard: &AtomicU64,
) -> LinkEnd {
    let limit = member.heartbeat().timeout();
    loop {
        let next = frame::read_frame(&mut reader, MAX_FRAME_BYTES);
        let frame = match limit {
            None => next.await,
            Some(limit) => match within(limit, next).await {
                Some(frame) => frame,
                None => return LinkEnd::Silent(limit),
            },
        };
        heard.fetch_add(1, Ordering::Relaxed);
        let result = match frame {
            Ok(Some(frame)) if frame.kind == FrameKind::Goodbye => return LinkEnd::PeerLeft,
            Ok(Some(frame)) => deliver(frame, member, peer).await,
            Ok(None) => Err(Error::new(ErrorKind::System, "the connection was closed")),
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            return LinkEnd::Broken(error);
        }
    }
}

async fn deliver(frame: Frame, member: &Arc<Member>, peer: Rank) -> comm_core::Result<()> {
    match frame.kind {
        FrameKind::Ping => Ok(()),
        FrameKind::Gather => member.on_gather(peer, frame.decode()?),
        FrameKind::Failure => {
            member.fail(super::failure::WireFailure::into(frame.decode()?));
            Ok(())
        }
        FrameKind::Message => {
            let wire: WireMessage = frame.decode()?;
            let mut message = Message::new(wire.kind, wire.payload);
            match wire.fds {
                WireFds::None => {}
                WireFds::Sent(ticket) => match member.core().fds.take(member, ticket).await {
                    Ok(fds) => message.fds = fds,
                    Err(error) => message.fds_error = Some(error),
                },
                WireFds::Failed(reason) => {
                    message.fds_error = Some(Error::new(
                        ErrorKind::Unavailable,
                        format!("the sender could not pass its file descriptors: {reason}"),
                    ));
                }
            }
            if let Some(error) = message.fds_error.take() {
                let error = error.with("from_rank", peer);
                tracing::warn!(%error, "a control message came without its file descriptors");
                message.fds_error = Some(error);
            }
            member.handler().on_message(peer, message);
            Ok(())
        }
        kind => Err(Error::new(
            ErrorKind::Protocol,
            format!("a {kind:?} frame does not belong on a link"),
        )),
    }
}
