//! What a joining rank writes to the rendezvous, and reads there.

use std::time::Instant;

use bytes::Bytes;
use comm_core::{Error, ErrorKind, PeerInfo, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::reason::Failed;
use super::{Attempt, Opening, Registration};
use crate::control::EARLIER_START;

impl Attempt {
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}/{key}", self.options.name)
    }

    pub(super) async fn publish(&self, key: &str, value: &impl Serialize) -> Result<(), Failed> {
        let key = self.key(key);
        let value = encode(value)?;
        let rendezvous = &self.options.rendezvous;
        let source = match rendezvous.publish(&key, value, self.options.deadline).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // If another rank took the place, say who it is.
        let taken = match rendezvous.lookup(&key, Instant::now()).await {
            Ok(taken) => decode::<Registration>(&taken)
                .or_else(|_| decode::<Opening>(&taken).map(|opening| opening.registration)),
            Err(_) => return Err(source.into()),
        };
        match taken {
            Ok(other)
                if other.info.process == self.facts.process
                    && self.differences(&other.info).is_empty() =>
            {
                let error = Error::new(
                    ErrorKind::InvalidConfiguration,
                    format!(
                        "this process has joined a communicator of the name '{}' as rank {} at \
                         this rendezvous already; give each of several communicators a name of \
                         its own, with `.name(\"...\")` on the builders of all its ranks",
                        self.options.name, self.options.rank
                    ),
                );
                Err(error
                    .with("rendezvous", rendezvous.describe())
                    .with_source(source)
                    .into())
            }
            Ok(other) => {
                let error = Error::new(
                    ErrorKind::Rendezvous,
                    format!(
                        "rank {} is claimed twice: by {} and by {}; start every rank once, and \
                         give every job a rendezvous (or COMM_JOB_ID) and every communicator of a \
                         program a name of its own{}",
                        self.options.rank,
                        other.info,
                        self.facts,
                        self.differences(&other.info)
                    ),
                )
                .with("rendezvous", rendezvous.describe())
                .with_source(source);
                let error = if lives(&other.info, &self.facts) {
                    error
                } else {
                    error.with(EARLIER_START, "possible")
                };
                Err(Failed {
                    rank: Some(self.options.rank),
                    error,
                    tell: true,
                })
            }
            Err(_) => Err(source.into()),
        }
    }

    /// In which settings another rank differs from this one, which may be the reason of a
    /// disagreement.
    pub(super) fn differences(&self, other: &PeerInfo) -> String {
        let mut text = String::new();
        for (name, own) in &self.facts.settings {
            if let Some(theirs) = other.settings.get(name)
                && theirs != own
            {
                text.push_str(&format!("; {name}: here '{own}', there '{theirs}'"));
            }
        }
        text
    }

    pub(super) async fn lookup<T: DeserializeOwned>(
        &self,
        key: &str,
        deadline: Instant,
    ) -> Result<T> {
        let rendezvous = &self.options.rendezvous;
        decode(&rendezvous.lookup(&self.key(key), deadline).await?)
            .map_err(|error| error.with("rendezvous", rendezvous.describe()))
    }
}

pub(super) fn encode(value: &impl Serialize) -> Result<Bytes> {
    postcard::to_allocvec(value)
        .map(Bytes::from)
        .map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                format!("facts of a rank do not encode: {error}"),
            )
        })
}

pub(super) fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T> {
    postcard::from_bytes(value).map_err(|error| {
        Error::new(
            ErrorKind::Rendezvous,
            format!(
                "an entry of the rendezvous does not decode: {error}; another release or another \
                 program uses the same place"
            ),
        )
    })
}

/// Whether another process is known to live: only those of this host can be asked for.
fn lives(other: &PeerInfo, own: &PeerInfo) -> bool {
    let process = i32::try_from(other.pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    other.host == own.host
        && process.is_some_and(|process| rustix::process::test_kill_process(process).is_ok())
}
