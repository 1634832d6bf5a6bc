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

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Rendezvous, Result, async_trait};
use tokio::task::AbortHandle;

use super::place::{Place, Serve};
use super::tcp_connection::Client;
use super::tcp_server::REFUSED_KEY;
use super::wire::{Answer, Operation};
use crate::control::core::{Core, lock};
use crate::control::process::Process;
use crate::control::secret::{Admission, JobSecret};

/// How long the answer to a question that need not wait may take.
const PEEK_LIMIT: Duration = Duration::from_secs(2);

/// The same while there is no connection: enough to find another table, if there is one.
const LOST_PEEK_LIMIT: Duration = Duration::from_millis(250);

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

    /// Whether there is a connection to the table at the moment.
    pub(super) fn is_connected(&self) -> bool {
        lock(&self.client.state).outbox.is_some()
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
            let limit = if self.is_connected() {
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
