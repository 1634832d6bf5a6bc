//! Why a join failed: finding the best reason, and telling it to the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind, Rank};
use tokio::task::JoinSet;

use super::{Attempt, encode, presence_key, rank_key};
use crate::control::failure::{Failure, WireFailure};
use crate::control::member::Member;
use crate::control::rendezvous::REFUSED_KEY;

/// How long a failed join takes to tell its reason to the others.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// How long a rank that lost a peer waits for a better reason than that loss.
const REASON_LIMIT: Duration = Duration::from_secs(1);

/// Why a join failed.
pub(super) struct Failed {
    pub(super) error: Error,
    /// The rank that failed, if it is one.
    pub(super) rank: Option<Rank>,
    /// The others have to be told, because this rank found the reason.
    pub(super) tell: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self {
            error,
            rank: None,
            tell: true,
        }
    }
}

impl Attempt {
    /// The reason that another rank published, as soon as there is one.
    pub(super) async fn watch_fault(&self) -> Failed {
        match self.fault(self.options.deadline).await {
            Some(failed) => failed,
            // The other steps meet the same trouble and know more about it.
            None => std::future::pending().await,
        }
    }

    /// A peer that failed to join also closes its connections; its reason is the better one.
    pub(super) async fn better_reason(&self, error: Error) -> Failed {
        self.fault(Instant::now() + REASON_LIMIT)
            .await
            .unwrap_or_else(|| error.into())
    }

    /// The reason that another rank has published by `deadline`.
    async fn fault(&self, deadline: Instant) -> Option<Failed> {
        let fault: WireFailure = self.lookup("fault", deadline).await.ok()?;
        let error = Failure::from(fault).to_error();
        let error = error.with("told_by", self.options.rendezvous.describe());
        Some(Failed {
            error,
            rank: None,
            tell: false,
        })
    }

    /// The reason when the deadline has passed: everybody who never published an address.
    pub(super) async fn who_is_missing(&self) -> Failed {
        let now = Instant::now();
        if let Some(failed) = self.fault(now).await {
            return failed;
        }
        let mut lookups = JoinSet::new();
        for rank in (0..self.options.world_size).filter(|rank| *rank != self.options.rank) {
            let keys = [rank_key(rank), presence_key(rank)].map(|key| self.key(&key));
            let rendezvous = Arc::clone(&self.options.rendezvous);
            lookups.spawn(async move {
                let mut found = rendezvous.lookup(&keys[0], now).await;
                if found
                    .as_ref()
                    .is_err_and(|no| no.kind() == ErrorKind::Timeout)
                {
                    found = rendezvous.lookup(&keys[1], now).await;
                }
                (rank, found)
            });
        }
        let mut missing = Vec::new();
        while let Some(Ok((rank, found))) = lookups.join_next().await {
            match found {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Timeout => missing.push(rank),
                // The rendezvous itself is what is broken: nobody can be told there.
                Err(error) => {
                    return Failed {
                        error,
                        rank: None,
                        tell: false,
                    };
                }
            }
        }
        missing.sort_unstable();
        let waited = self.start.elapsed().as_secs_f64();
        let message = if missing.is_empty() {
            format!(
                "all {} ranks came to the rendezvous, but could not all connect to each other \
                 within {waited:.1} s; check the network and firewalls between the hosts",
                self.options.world_size
            )
        } else {
            format!(
                "{} of {} ranks did not come within {waited:.1} s: {}; check that they were \
                 started and reach the rendezvous (COMM_INIT_TIMEOUT_SECONDS sets the limit)",
                missing.len(),
                self.options.world_size,
                list(&missing)
            )
        };
        let mut error = Error::new(ErrorKind::Timeout, message)
            .with("rendezvous", self.options.rendezvous.describe());
        // Only tables over TCP know whom they have turned away.
        if let Ok(refused) = self.options.rendezvous.lookup(REFUSED_KEY, now).await {
            error = error.with("refused", String::from_utf8_lossy(&refused));
        }
        error.into()
    }

    /// Tells the others why, and takes the member down.
    pub(super) async fn give_up(&self, failed: Failed, member: Option<Arc<Member>>) -> Error {
        let Failed { error, rank, tell } = failed;
        tracing::debug!(rank = self.options.rank, %error, "join: failed");
        let failure = Failure {
            origin: self.options.rank,
            failed: rank,
            kind: error.kind(),
            message: text_of(&error),
        };
        let deadline = Instant::now() + FAREWELL_LIMIT;
        let told = async {
            if tell && let Ok(fault) = encode(&failure.to_wire()) {
                // Another rank may have been first, or the rendezvous be what is broken.
                let rendezvous = &self.options.rendezvous;
                let _ = rendezvous
                    .publish(&self.key("fault"), fault, deadline)
                    .await;
            }
        };
        // A user's rendezvous may ignore its deadline.
        let _ = tokio::time::timeout_at(deadline.into(), told).await;
        if let Some(member) = member {
            member.fail(failure);
            member.leave(deadline.into()).await;
        }
        error.with("rank", self.options.rank)
    }
}

/// The error's text without its kind, which travels beside it.
fn text_of(error: &Error) -> String {
    let text = error.to_string();
    let prefix = format!("{}: ", error.kind());
    text.strip_prefix(&prefix).unwrap_or(&text).to_owned()
}

/// Ranks in the shortest readable form, for example `1, 4-7`.
fn list(ranks: &[Rank]) -> String {
    let mut ranges: Vec<(Rank, Rank)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let ranges = ranges.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    });
    ranges.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_listed_shortly() {
        assert_eq!(list(&[1]), "1");
        assert_eq!(list(&[0, 1, 3]), "0, 1, 3");
        assert_eq!(list(&[2, 4, 5, 6, 7, 9]), "2, 4-7, 9");
    }
}
