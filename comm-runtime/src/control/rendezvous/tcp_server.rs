//! The rendezvous table that one process of a job serves.
//!
//! # Contract
//!
//! * The table is an in-memory map; whoever has proved to know the job secret may read it and add
//!   to it, and nobody can change an entry.
//! * It lives as long as its [`Serving`]. If a join failed (there is a `fault` entry), it stays
//!   up to [`LINGER_LIMIT`] longer, until all clients have read the reason and gone, or until this
//!   process serves another one for the job.
//! * Keys, values and the whole table are bounded.
//! * It notes whom it refused last, for the secret or the job, under [`REFUSED_KEY`]: a rank that misses
//!   others at its deadline can say that somebody came who was not let in.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;

use super::wire::{self, Answer, Operation, Request, Response};
use crate::control::core::{Core, lock};
use crate::control::frame::{self, FrameKind};
use crate::control::hello::JobId;
use crate::control::listener::Listening;
use crate::control::process::LINGER_LIMIT;
use crate::control::secret::Admission;

/// How much a table may hold.
const MAX_TABLE_BYTES: usize = 256 << 20;

/// The key under which a table tells whom it has turned away for the secret; belongs to no
/// communicator.
pub(crate) const REFUSED_KEY: &str = "refused";

/// How long a table with a fault waits at least, for ranks that are just connecting.
const LATECOMER_LIMIT: Duration = Duration::from_millis(300);

/// The tables that this process serves, by job.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    tables: Mutex<HashMap<JobId, Weak<Table>>>,
}

impl Tables {
    pub(crate) fn get(&self, job: JobId) -> Option<Arc<Table>> {
        lock(&self.tables).get(&job)?.upgrade()
    }

    /// Notes that `peer` was refused at the table of this job, and why.
    pub(crate) fn note_refusal(&self, job: JobId, peer: IpAddr, pid: u32, reason: &str) {
        if let Some(table) = self.get(job) {
            table.note_refused(peer, pid, reason);
        }
    }

    /// Notes that `peer` asked for the table of a job that has none here.
    pub(crate) fn note_stranger(&self, peer: IpAddr, pid: u32) {
        let tables: Vec<_> = lock(&self.tables).values().cloned().collect();
        for table in tables.iter().filter_map(Weak::upgrade) {
            let reason = "it belongs to another job, or its COMM_JOB_ID differs";
            table.note_refused(peer, pid, reason);
        }
    }
}

/// One job's table.
pub(crate) struct Table {
    admission: Admission,
    state: Mutex<State>,
    /// The number of clients.
    clients: watch::Sender<usize>,
    closed: watch::Sender<bool>,
    /// Whether it is only there for those who have not read yet why a join failed.
    lingers: AtomicBool,
}

#[derive(Default)]
struct State {
    values: HashMap<String, Bytes>,
    bytes: usize,
    /// Who waits for a key: a connection's queue and the number of its request.
    waiting: HashMap<String, Vec<(UnboundedSender<Bytes>, u32)>>,
}

impl Table {
    pub(crate) const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Leaves word of a process that was turned away: of the last one, however often strangers knock.
    fn note_refused(&self, peer: IpAddr, pid: u32, reason: &str) {
        let note = format!("a process that says it is pid {pid} on {peer}: {reason}");
        lock(&self.state)
            .values
            .insert(REFUSED_KEY.to_owned(), note.into());
    }

    /// Answers one client until it goes or the table closes.
    pub(crate) fn serve(
        self: Arc<Self>,
        mut stream: TcpStream,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + Send {
        self.clients.send_modify(|clients| *clients += 1);
        let mut closed = self.closed.subscribe();
        async move {
            let (reader, mut writer) = stream.split();
            let (outbox, queue) = mpsc::unbounded_channel();
            let result = tokio::select! {
                result = self.answer_all(BufReader::new(reader), &outbox) => result,
                result = write_all(&mut writer, queue) => result,
                _ = closed.wait_for(|closed| *closed) => Ok(()),
            };
            if let Err(error) = result {
                tracing::debug!(%peer, %error, "a rendezvous client was dropped");
            }
            self.clients.send_modify(|clients| *clients -= 1);
        }
    }

    async fn answer_all<R: tokio::io::AsyncRead + Unpin>(
        &self,
        mut reader: R,
        outbox: &UnboundedSender<Bytes>,
    ) -> Result<()> {
        while let Some(frame) = frame::read_frame(&mut reader, wire::MAX_BYTES).await? {
            if frame.kind != FrameKind::Request {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "a client sent something else",
                ));
            }
            let request: Request = frame.decode()?;
            if let Some(answer) = self.answer(request.number, request.operation, outbox)? {
                // The other end of the queue lives as long as this connection.
                let _ = outbox.send(respond(request.number, answer)?);
            }
        }
        Ok(())
    }

    /// The answer to a request, unless it has to wait.
    fn answer(
        &self,
        number: u32,
        operation: Operation,
        outbox: &UnboundedSender<Bytes>,
    ) -> Result<Option<Answer>> {
        let mut state = lock(&self.state);
        match operation {
            Operation::Publish { key, value } => self.publish(&mut state, key, value).map(Some),
            Operation::Peek { key } => Ok(Some(
                state
                    .values
                    .get(&key)
                    .cloned()
                    .map_or(Answer::Absent, Answer::Value),
            )),
            Operation::Lookup { key } if key.len() > wire::MAX_KEY_BYTES => {
                Ok(Some(Answer::Refused("the key is too long".to_owned())))
            }
            Operation::Lookup { key } => match state.values.get(&key) {
                Some(value) => Ok(Some(Answer::Value(value.clone()))),
                None => {
                    state
                        .waiting
                        .entry(key)
                        .or_default()
                        .push((outbox.clone(), number));
                    Ok(None)
                }
            },
        }
    }

    fn publish(&self, state: &mut State, key: String, value: Bytes) -> Result<Answer> {
        if let Some(known) = state.values.get(&key) {
            return Ok(if *known == value {
                Answer::Stored
            } else {
                Answer::Taken
            });
        }
        let bytes = key.len() + value.len();
        if key == REFUSED_KEY
            || key.len() > wire::MAX_KEY_BYTES
            || value.len() > wire::MAX_VALUE_BYTES
            || state.bytes + bytes > MAX_TABLE_BYTES
        {
            return Ok(Answer::Refused(
                "the key is reserved, or key, value or table are too large".to_owned(),
            ));
        }
        state.bytes += bytes;
        for (outbox, number) in state.waiting.remove(&key).unwrap_or_default() {
            // Clients that have gone do not care.
            let _ = outbox.send(respond(number, Answer::Value(value.clone()))?);
        }
        state.values.insert(key, value);
        Ok(Answer::Stored)
    }

    fn has_fault(&self) -> bool {
        lock(&self.state)
            .values
            .keys()
            .any(|key| key.ends_with("/fault"))
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("clients", &*self.clients.borrow())
            .finish_non_exhaustive()
    }
}

fn respond(number: u32, answer: Answer) -> Result<Bytes> {
    frame::encode(FrameKind::Response, &Response { number, answer })
}

/// Writes what is queued.
pub(super) async fn write_all(
    writer: &mut tokio::net::tcp::WriteHalf<'_>,
    mut queue: UnboundedReceiver<Bytes>,
) -> Result<()> {
    while let Some(frame) = queue.recv().await {
        writer
            .write_all(&frame)
            .await
            .map_err(|error| Error::system("writing to a rendezvous connection", error))?;
    }
    Ok(())
}

/// A table that this process serves; dropping it ends the service.
#[derive(Debug)]
pub(crate) struct Serving {
    core: Arc<Core>,
    job: JobId,
    table: Option<Arc<Table>>,
    /// Listeners of the table's own; empty if clients come to the process's listeners.
    listening: Vec<Listening>,
}

impl Serving {
    /// Serves a table for the job; clients come over `listeners` and the process's own ones.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] if this process serves a table for the job already.
    pub(crate) fn start(
        core: &Arc<Core>,
        job: JobId,
        admission: Admission,
        listeners: Vec<std::net::TcpListener>,
    ) -> Result<Self> {
        let table = Arc::new(Table {
            admission,
            state: Mutex::default(),
            clients: watch::Sender::new(0),
            closed: watch::Sender::new(false),
            lingers: AtomicBool::new(false),
        });
        {
            let mut tables = lock(&core.tables.tables);
            let entry = tables.entry(job).or_default();
            // One that lingers gives way: a join that failed may be tried again at once.
            let known = entry.upgrade();
            if known.is_some_and(|known| !known.lingers.load(Ordering::Relaxed)) {
                return Err(Error::new(
                    ErrorKind::InvalidConfiguration,
                    "this process serves a rendezvous table for the same job already",
                ));
            }
            *entry = Arc::downgrade(&table);
        }
        let mut serving = Self {
            core: Arc::clone(core),
            job,
            table: Some(table),
            listening: Vec::new(),
        };
        for listener in listeners {
            serving.listening.push(Listening::start(core, listener)?);
        }
        Ok(serving)
    }
}

impl Serving {
    /// Where this process reaches its own listener, if the table has one.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        let address = self.listening.first()?.address();
        let local = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Some(SocketAddr::new(local, address.port()))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let Some(table) = self.table.take() else {
            return;
        };
        if self.core.check_fork().is_err() {
            return;
        }
        let listening = std::mem::take(&mut self.listening);
        if !table.has_fault() {
            close(&self.core, self.job, &table);
            return;
        }
        table.lingers.store(true, Ordering::Relaxed);
        let (core, job) = (Arc::clone(&self.core), self.job);
        let guard = core.lingering.begin();
        self.core.runtime().spawn(async move {
            let mut clients = table.clients.subscribe();
            let all_gone = async {
                tokio::time::sleep(LATECOMER_LIMIT).await;
                // An error would mean that the table is gone, and it is held here.
                let _ = clients.wait_for(|clients| *clients == 0).await;
            };
            let _ = tokio::time::timeout(LINGER_LIMIT, all_gone).await;
            drop(listening);
            close(&core, job, &table);
            drop(guard);
        });
    }
}

fn close(core: &Core, job: JobId, table: &Arc<Table>) {
    let mut tables = lock(&core.tables.tables);
    // A later table for the same job may have taken the place.
    if tables
        .get(&job)
        .is_some_and(|known| known.as_ptr() == Arc::as_ptr(table))
    {
        tables.remove(&job);
    }
    drop(tables);
    table.closed.send_replace(true);
}
