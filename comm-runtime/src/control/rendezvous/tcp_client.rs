//! [`TcpRendezvous`]: a table at a host and port.
//!
//! # Contract
//!
//! * There is no server program: a process that may serve and can bind the address serves the
//!   table, all others are its clients; a server's process is a client of its own table, too.
//! * Clients keep trying until their requests' deadlines. When a connection is lost they look for
//!   a table again (one of them may become the next server) and publish their entries again, so
//!   the death of the serving process loses nothing but that process's own entries.
//! * What cannot become better by waiting ends every request at once: a refusal for the secret or
//!   the version, a program at the address that is no rendezvous.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Rendezvous, Result, async_trait};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::place::{NoConnection, Place, Serve};
use super::tcp_server::{self, REFUSED_KEY, Serving};
use super::wire::{self, Answer, Operation, Request, Response};
use crate::control::core::{Core, lock};
use crate::control::dial;
use crate::control::frame::{self, FrameKind};
use crate::control::hello::{self, HandshakeFailure, Purpose, RejectReason};
use crate::control::process::Process;
use crate::control::secret::{Admission, JobSecret};

/// How long the answer to a question that need not wait may take.
const PEEK_LIMIT: Duration = Duration::from_secs(2);

/// The same while there is no connection: enough to find another table, if there is one.
const LOST_PEEK_LIMIT: Duration = Duration::from_millis(250);

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// A table at one host and port, for the job of this id if it has one.
pub(super) fn place(host: String, port: u16, job_id: Option<&str>) -> Place {
    let name = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    // Ranks may spell the host differently, so only the port and the job's id count here.
    let job = super::job_id(&["port", &port.to_string(), job_id.unwrap_or_default()]);
    Place {
        name,
        targets: vec![(host, port)],
        job,
        serve: Serve::WhoeverCan,
        ..Place::default()
    }
}

/// A rendezvous over TCP; see `COMM_RENDEZVOUS=host:port`.
pub struct TcpRendezvous {
    client: Arc<Client>,
    task: Mutex<Option<AbortHandle>>,
}

struct Client {
    core: Arc<Core>,
    place: Place,
    admission: Admission,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_number: u32,
    pending: BTreeMap<u32, Pending>,
    published: Vec<Operation>,
    /// The queue of the open connection.
    outbox: Option<UnboundedSender<Bytes>>,
    /// Why there is no connection at the moment.
    trouble: Option<Error>,
    /// Why there will never be one.
    fatal: Option<Error>,
    /// What the table of another job said that was at the place first.
    stranger: Option<Error>,
    serving: Option<Serving>,
}

struct Pending {
    operation: Operation,
    reply: oneshot::Sender<Result<Answer>>,
}

impl TcpRendezvous {
    /// A table at `host:port`; `host` is a name or an address. Nothing happens before the first
    /// request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] if the text is no host and port.
    pub fn new(
        process: &Process,
        address: &str,
        secret: Option<JobSecret>,
        insecure: bool,
    ) -> Result<Self> {
        let (host, port) = super::parse_host_port(address)?;
        Ok(Self::at(
            process.core(),
            place(host, port, None),
            Admission { secret, insecure },
        ))
    }

    pub(crate) fn at(core: &Arc<Core>, place: Place, admission: Admission) -> Self {
        let core = Arc::clone(core);
        let client = Arc::new(Client {
            core,
            place,
            admission,
            state: Mutex::default(),
        });
        Self {
            client,
            task: Mutex::new(None),
        }
    }

    fn start(&self) {
        let mut task = lock(&self.task);
        if task.is_none() {
            let client = Arc::clone(&self.client);
            *task = Some(
                self.client
                    .core
                    .runtime()
                    .spawn(client.run())
                    .abort_handle(),
            );
        }
    }

    async fn request(&self, operation: Operation, deadline: Instant) -> Result<Answer> {
        self.client.core.check_fork()?;
        self.start();
        let client = Arc::clone(&self.client);
        let request = async move {
            let (number, answer) = client.submit(operation)?;
            let waited = tokio::time::timeout_at(deadline.into(), answer).await;
            lock(&client.state).pending.remove(&number);
            match waited {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Error::new(ErrorKind::Aborted, "the rendezvous was dropped")),
                Err(_) => Err(client.late()),
            }
        };
        let result = self.client.core.run(request).await;
        result.map_err(|error| error.with("rendezvous", &self.client.place.name))
    }
}

#[async_trait]
impl Rendezvous for TcpRendezvous {
    fn describe(&self) -> String {
        self.client.place.name.clone()
    }

    async fn publish(&self, key: &str, value: Bytes, deadline: Instant) -> Result<()> {
        let operation = Operation::Publish {
            key: key.to_owned(),
            value,
        };
        match self.request(operation, deadline).await? {
            Answer::Stored => Ok(()),
            Answer::Taken => Err(Error::new(
                ErrorKind::Rendezvous,
                "another rank has published something else under the same key",
            )
            .with("key", key)
            .with("rendezvous", &self.client.place.name)),
            answer => Err(unexpected(answer)),
        }
    }

    async fn lookup(&self, key: &str, deadline: Instant) -> Result<Bytes> {
        let now = Instant::now();
        let key = key.to_owned();
        let answer = if deadline <= now {
            let connected = lock(&self.client.state).outbox.is_some();
            let limit = if connected {
                PEEK_LIMIT
            } else {
                LOST_PEEK_LIMIT
            };
            self.request(Operation::Peek { key: key.clone() }, now + limit)
                .await?
        } else {
            self.request(Operation::Lookup { key: key.clone() }, deadline)
                .await?
        };
        match answer {
            Answer::Value(value) => Ok(value),
            Answer::Absent => {
                if key == REFUSED_KEY
                    && let Some(stranger) = &lock(&self.client.state).stranger
                {
                    return Ok(format!("this rank, by {stranger}").into());
                }
                Err(Error::new(ErrorKind::Timeout, "nobody has published the key").with("key", key))
            }
            answer => Err(unexpected(answer)),
        }
    }
}

impl fmt::Debug for TcpRendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpRendezvous")
            .field("place", &self.client.place)
            .finish_non_exhaustive()
    }
}

impl Drop for TcpRendezvous {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take()
            && self.client.core.check_fork().is_ok()
        {
            task.abort();
            lock(&self.client.state).serving = None;
        }
    }
}

fn unexpected(answer: Answer) -> Error {
    match answer {
        Answer::Refused(reason) => Error::new(ErrorKind::Rendezvous, reason),
        answer => Error::new(
            ErrorKind::Protocol,
            format!("the rendezvous answered {answer:?}"),
        ),
    }
}

impl Client {
    fn submit(&self, operation: Operation) -> Result<(u32, oneshot::Receiver<Result<Answer>>)> {
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
    fn late(&self) -> Error {
        let state = lock(&self.state);
        match (&state.outbox, &state.trouble) {
            (None, Some(trouble)) => Error::new(
                ErrorKind::Rendezvous,
                "the rendezvous cannot be reached; check its address and that the rank that \
                 serves it was started",
            )
            .with_source(trouble.clone()),
            (None, None) => Error::new(ErrorKind::Rendezvous, "the rendezvous was not reached"),
            (Some(_), _) => Error::new(ErrorKind::Timeout, "nobody has published the key"),
        }
    }

    /// Keeps a connection to the table as long as the rendezvous is in use.
    async fn run(self: Arc<Self>) {
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
