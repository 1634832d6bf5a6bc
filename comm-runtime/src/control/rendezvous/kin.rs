//! Where ranks meet that know each other from a communicator already.
//!
//! # Contract
//!
//! * Rank 0 of the new communicator serves the table, at the control listeners of its process, from
//!   [`open`] until the returned rendezvous is dropped. The others know the addresses from the old
//!   communicator's facts and ask until the table is there, so the ranks may come in any order, and
//!   the meeting place of the job is not needed any more.
//! * While the old communicator works, its failure ends every request: whoever dies before it has come
//!   is not waited for.
//! * The secret is the job's. The identity of the table is made of the old communicator's, which is
//!   random, and of the purpose: ranks that mean different things do not meet by accident.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, PeerInfo, Rendezvous, Result, async_trait};

use super::job_id;
use super::place::{Place, Serve};
use super::tcp_client::TcpRendezvous;
use super::tcp_server::Serving;
use crate::control::core::Core;
use crate::control::member::Member;
use crate::control::secret::{Admission, JobSecret};

/// Who meets.
#[derive(Clone, Debug)]
pub(crate) struct Kin<'a> {
    /// What for, the same on all ranks.
    pub(crate) purpose: &'a str,
    /// What the old communicator knows of rank 0 of the new one.
    pub(crate) server: &'a PeerInfo,
    /// Whether that is this rank.
    pub(crate) serve: bool,
    /// Whether a failure of the old communicator ends the meeting.
    pub(crate) while_parent_works: bool,
}

/// The table of ranks that know each other by `parent`, served by this process if it is the one.
///
/// # Errors
///
/// [`InvalidConfiguration`](comm_core::ErrorKind) if the process serves this very table
/// already: two calls for one purpose are under way.
pub(crate) fn open(
    parent: &Arc<Member>,
    kin: &Kin<'_>,
    secret: Option<JobSecret>,
    insecure: bool,
) -> Result<Arc<dyn Rendezvous>> {
    let core = parent.core();
    let admission = Admission { secret, insecure };
    let communicator = format!("{:032x}", u128::from_be_bytes(parent.communicator()));
    let place = Place {
        name: format!("rank 0 of {}, which is {}", kin.purpose, kin.server),
        targets: addresses(core, kin.server)
            .map(|address| (address.ip().to_string(), address.port()))
            .collect(),
        job: job_id(&["kin", &communicator, kin.purpose]),
        serve: Serve::AnotherProcess,
        ..Place::default()
    };
    let serving = if kin.serve {
        let own = Serving::start(core, place.job, admission.clone(), Vec::new())?;
        Some(own)
    } else {
        None
    };
    Ok(Arc::new(KinRendezvous {
        absent: format!(
            "{} is to be rank 0 of {} and has not come; it has to make the same call",
            kin.server, kin.purpose
        ),
        client: TcpRendezvous::at(core, place, admission),
        parent: kin.while_parent_works.then(|| Arc::clone(parent)),
        _serving: serving,
    }))
}

/// The addresses of a process as seen from here: loopback first on the same host, else not at all.
fn addresses<'a>(core: &Core, info: &'a PeerInfo) -> impl Iterator<Item = &'a SocketAddr> {
    let (loopback, network): (Vec<_>, Vec<_>) = info
        .control_addresses
        .iter()
        .partition(|address| address.ip().is_loopback());
    let same_host = info.host == core.host;
    let loopback = loopback.into_iter().filter(move |_| same_host);
    loopback.chain(network)
}

struct KinRendezvous {
    client: TcpRendezvous,
    /// What to say if the table is not there in time.
    absent: String,
    /// The old communicator, if its failure counts.
    parent: Option<Arc<Member>>,
    /// Ends with the rendezvous.
    _serving: Option<Serving>,
}

impl KinRendezvous {
    /// Carries out a request unless the old communicator fails.
    async fn unless_parent_fails<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let request = async {
            request.await.map_err(|error| {
                if error.kind() == ErrorKind::Rendezvous && !self.client.is_connected() {
                    let absent = Error::new(ErrorKind::Rendezvous, self.absent.clone());
                    absent.with_source(error)
                } else {
                    error
                }
            })
        };
        let Some(parent) = &self.parent else {
            return request.await;
        };
        let failure = async {
            loop {
                let changed = parent.changed().notified();
                if let Some(error) = parent.failure() {
                    return error;
                }
                changed.await;
            }
        };
        tokio::select! {
            biased;
            result = request => result,
            error = failure => Err(error),
        }
    }
}

#[async_trait]
impl Rendezvous for KinRendezvous {
    fn describe(&self) -> String {
        self.client.describe()
    }

    async fn publish(&self, key: &str, value: Bytes, deadline: Instant) -> Result<()> {
        self.unless_parent_fails(self.client.publish(key, value, deadline))
            .await
    }

    async fn lookup(&self, key: &str, deadline: Instant) -> Result<Bytes> {
        self.unless_parent_fails(self.client.lookup(key, deadline))
            .await
    }
}

impl fmt::Debug for KinRendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KinRendezvous")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
