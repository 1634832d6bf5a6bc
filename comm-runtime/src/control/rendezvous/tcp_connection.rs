//! The connection of a rendezvous's client to the table.
//!
//! # Contract
//!
//! One task keeps it: it looks for the table or serves it, sends what is pending, delivers answers, and
//! starts again when the connection is lost, until the rendezvous is dropped or it is settled that
//! there will never be a table. Requests wait in [`State`] meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Result};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;

use super::place::{NoConnection, Place};
use super::tcp_server::{self, Serving};
use super::wire::{self, Answer, Operation, Request, Response};
use crate::control::core::{Core, lock};
use crate::control::dial;
use crate::control::frame::{self, FrameKind};
use crate::control::hello::{self, HandshakeFailure, Purpose, RejectReason};
use crate::control::secret::Admission;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Client {
    pub(super) core: Arc<Core>,
    pub(super) place: Place,
    pub(super) admission: Admission,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) next_number: u32,
    pub(super) pending: BTreeMap<u32, Pending>,
    pub(super) published: Vec<Operation>,
    /// The queue of the open connection.
    pub(super) outbox: Option<UnboundedSender<Bytes>>,
    /// Why there is no connection at the moment.
    pub(super) trouble: Option<Error>,
    /// Why there will never be one.
    pub(super) fatal: Option<Error>,
    /// What the table of another job said that was at the place first.
    pub(super) stranger: Option<Error>,
    pub(super) serving: Option<Serving>,
}

pub(super) struct Pending {
    pub(super) operation: Operation,
    pub(super) reply: oneshot::Sender<Result<Answer>>,
}

impl Client {
    pub(super) fn submit(
        &self,
        operation: Operation,
    ) -> Result<(u32, oneshot::Receiver<Result<Answer>>)> {
        let mut state = lock(&self.state);
        if let Some(error) = &state.fatal {
            return Err(error.clone());
        }
        let number = state.next_number;
        state.next_number = number.wrapping_add(1);
        if let Some(outbox) = &state.outbox {
            // A closed queue belongs to a connection that broke; the next one sends all that is
            // pending.
            let _ = outbox.send(request_frame(number, &operation)?);
        }
        let (reply, answer) = oneshot::channel();
        state.pending.insert(number, Pending { operation, reply });
        Ok((number, answer))
    }

    /// The error of a request whose deadline has passed.
    pub(super) fn late(&self) -> Error {
        let state = lock(&self.state);
        // A table of another job says more than the broken connections after its end.
        match (
            &state.outbox,
            state.stranger.as_ref().or(state.trouble.as_ref()),
        ) {
            (None, Some(trouble)) => Error::new(
                ErrorKind::Rendezvous,
                "the rendezvous cannot be reached; check its address and that the rank that \
                 serves it was started",
            )
            .with_source(trouble.clone()),
            (None, None) => Error::new(
                ErrorKind::Rendezvous,
                "what listens at the rendezvous has not answered; check its address, and that no \
                 other program has the port",
            ),
            (Some(_), _) => Error::new(ErrorKind::Timeout, "nobody has published the key"),
        }
    }

    /// Keeps a connection to the table as long as the rendezvous is in use.
    pub(super) async fn run(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect().await {
                Ok(stream) => {
                    pause = FIRST_PAUSE;
                    let end = self.converse(stream).await;
                    let mut state = lock(&self.state);
                    state.outbox = None;
                    state.trouble = end.err();
                }
                Err(NoConnection::Later(error)) => {
                    tracing::trace!(%error, place = self.place.name, "no rendezvous yet");
                    lock(&self.state).trouble = Some(error);
                }
                Err(NoConnection::Never(error)) => {
                    let mut state = lock(&self.state);
                    for (_, pending) in std::mem::take(&mut state.pending) {
                        // Whoever does not wait any more does not care.
                        let _ = pending.reply.send(Err(error.clone()));
                    }
                    state.fatal = Some(error);
                    return;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Finds the table, or serves it.
    async fn connect(&self) -> Result<TcpStream, NoConnection> {
        let mut addresses = self.place.resolve(&self.admission).await?;
        let own = {
            let mut state = lock(&self.state);
            if state.serving.is_none() {
                state.serving = self
                    .place
                    .try_to_serve(&self.core, &self.admission, &addresses);
            }
            state.serving.as_ref().and_then(Serving::local_address)
        };
        if let Some(own) = own {
            addresses = vec![own];
        }
        let purpose = Purpose::Rendezvous {
            job: self.place.job,
        };
        let failures = match dial::try_all(&self.core, &addresses, &purpose, &self.admission).await
        {
            Ok((mut stream, _)) => {
                hello::open(&mut stream)
                    .await
                    .map_err(NoConnection::Later)?;
                return Ok(stream);
            }
            Err(failures) => failures,
        };
        if self.place.targets.len() == 1
            && let Some(failure) = failures.values().find(|failure| is_stranger(failure))
        {
            lock(&self.state).stranger = Some(failure.error.clone());
        }
        let is_final = failures.values().any(|failure| self.is_final(failure));
        let error = dial::summary(failures).error;
        Err(if is_final {
            NoConnection::Never(error)
        } else {
            NoConnection::Later(error)
        })
    }

    /// Whether the answer at an address settles that no table will ever be there.
    fn is_final(&self, failure: &HandshakeFailure) -> bool {
        match failure.reason {
            Some(RejectReason::Unknown | RejectReason::Duplicate) => false,
            Some(_) => true,
            // At one of several places a stranger is to be expected.
            None => {
                let kind = failure.error.kind();
                self.place.targets.len() == 1
                    && matches!(kind, ErrorKind::Protocol | ErrorKind::Authentication)
            }
        }
    }

    /// Sends what is pending and delivers answers until the connection ends.
    async fn converse(&self, mut stream: TcpStream) -> Result<()> {
        let (reader, mut writer) = stream.split();
        let (outbox, queue) = mpsc::unbounded_channel();
        {
            let mut state = lock(&self.state);
            // Entries of a table that is gone; their answers are known already.
            for operation in &state.published {
                let _ = outbox.send(request_frame(u32::MAX, operation)?);
            }
            for (number, pending) in &state.pending {
                let _ = outbox.send(request_frame(*number, &pending.operation)?);
            }
            state.outbox = Some(outbox);
        }
        tokio::select! {
            result = self.read_answers(BufReader::new(reader)) => result,
            result = tcp_server::write_all(&mut writer, queue) => result,
        }
    }

    async fn read_answers<R: tokio::io::AsyncRead + Unpin>(&self, mut reader: R) -> Result<()> {
        while let Some(frame) = frame::read_frame(&mut reader, wire::MAX_BYTES).await? {
            if frame.kind != FrameKind::Response {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "a server sent something else",
                ));
            }
            let response: Response = frame.decode()?;
            let mut state = lock(&self.state);
            let Some(pending) = state.pending.remove(&response.number) else {
                continue;
            };
            if matches!(pending.operation, Operation::Publish { .. })
                && response.answer == Answer::Stored
            {
                state.published.push(pending.operation);
            }
            // Whoever does not wait any more does not care.
            let _ = pending.reply.send(Ok(response.answer));
        }
        Err(Error::new(
            ErrorKind::System,
            "the rendezvous closed the connection",
        ))
    }
}

/// Whether the table of another job answered.
fn is_stranger(failure: &HandshakeFailure) -> bool {
    failure.reason == Some(RejectReason::Unknown)
}

fn request_frame(number: u32, operation: &Operation) -> Result<Bytes> {
    frame::encode(
        FrameKind::Request,
        &Request {
            number,
            operation: operation.clone(),
        },
    )
}
