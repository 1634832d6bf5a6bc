//! Communicators made from a communicator: [`Communicator::split`], [`Communicator::shrink`].
//!
//! # Contract
//!
//! * The new communicator is one of its own: its failures, deadlines and lanes have nothing to do with
//!   the old one's, which goes on as it was and may be dropped first. Settings and transports are
//!   inherited; the same instance of a transport serves both.
//! * Nobody needs the job's meeting place any more: the ranks know each other's addresses from the old
//!   communicator, and rank 0 of the new one serves the table for as long as joining takes.
//! * `split` is collective on all ranks of a communicator that works; calls pair up in their order.
//!   Whoever dies meanwhile ends it on all ranks. If some ranks do not call it, this communicator fails.
//! * `shrink` concerns the ranks that stay and nobody else, and works on a communicator that failed.
//!   Those who name other ranks are told of the difference.
//! * Both end by the deadline for joining (`COMM_INIT_TIMEOUT_SECONDS`) with who is missing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use comm_core::{Error, ErrorKind, Rank, Result, Transport};
use serde::{Deserialize, Serialize};

use super::{Communicator, CommunicatorBuilder};
use crate::control::rendezvous::{Kin, LocalRendezvous};
use crate::control::{ControlSettings, FAILED_RANK, Launcher};
use crate::settings::Settings;

/// The exchanges of the colours on the control plane; the number of the split is added.
const SPLIT: u64 = u64::from_le_bytes(*b"\0\0\0split");

/// How a communicator was made, for those that are made from it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(super) name: String,
    pub(super) control: ControlSettings,
    pub(super) settings: Settings,
    pub(super) shared: Vec<(String, String)>,
    pub(super) launcher: Option<Launcher>,
    /// How often the communicator was split.
    pub(super) splits: AtomicU64,
}

/// What a rank brings to a split.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Wish {
    color: Option<u32>,
    key: i64,
}

impl Communicator {
    /// Makes a communicator of the ranks that give the same `color`, ordered by `key` and, where keys
    /// are equal, by their ranks here. `None` as color takes part in no new communicator and gets
    /// `None`.
    ///
    /// Collective: every rank calls it, in the same order relative to other splits. It needs no
    /// collective of the data path, which may be in use meanwhile.
    ///
    /// Blocks until the ranks of this color have joined, at most for the init timeout twice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Poisoned`] if this communicator has failed; its failure if it fails meanwhile.
    /// [`ErrorKind::Timeout`] with who is missing: of all ranks, which ends this communicator as in any
    /// collective, or of those of this color, which does not.
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        let core = &self.core;
        core.check_usable()?;
        let number = core.origin.splits.fetch_add(1, Ordering::Relaxed);
        let wishes = match self.exchange_wishes(number, Wish { color, key }) {
            Ok(wishes) => wishes,
            Err(error) => return Err(self.cannot_split(number, &error)),
        };
        let Some(color) = color else { return Ok(None) };
        let mut members: Vec<(i64, Rank)> = (0..)
            .zip(&wishes)
            .filter(|(_, wish)| wish.color == Some(color))
            .map(|(rank, wish)| (wish.key, rank))
            .collect();
        members.sort_unstable();
        let members: Vec<Rank> = members.into_iter().map(|(_, rank)| rank).collect();
        let child = Child {
            name: format!("split-{number}-{color}"),
            purpose: format!("color {color} of split #{number}"),
            members: &members,
            shared: None,
            while_parent_works: true,
        };
        self.join_child(&child).map(Some)
    }

    /// Ends the communicator: some ranks have split it and others have not, so no later split would pair
    /// up.
    fn cannot_split(&self, number: u64, error: &Error) -> Error {
        let core = &self.core;
        if let Some(failure) = core.control.failure() {
            return failure;
        }
        let text = format!(
            "split #{number}: {}; every rank has to call split(), in the same order as all others \
             (COMM_INIT_TIMEOUT_SECONDS sets the limit)",
            error.message()
        );
        core.fail(Error::new(error.kind(), text).with("rank", core.rank));
        core.abort.error()
    }

    fn exchange_wishes(&self, number: u64, own: Wish) -> Result<Vec<Wish>> {
        let failed = |error| {
            Error::new(
                ErrorKind::Protocol,
                "the colors of a split cannot be exchanged",
            )
            .with_source(error)
        };
        let own = postcard::to_allocvec(&own).map_err(failed)?;
        let core = &self.core;
        let tag = SPLIT.wrapping_add(number);
        let deadline = core.origin.control.join_deadline();
        let all = core.control.allgather(tag, Bytes::from(own), deadline)?;
        all.iter()
            .map(|wish| postcard::from_bytes(wish).map_err(failed))
            .collect()
    }

    /// Makes a communicator of all ranks but the `excluded` ones, in the same order: for going on after
    /// a rank has died, and for letting ranks go.
    ///
    /// Called by the ranks that stay, all with the same `excluded`; which rank a failure is about tells
    /// [`failed_rank`](Self::failed_rank). Nothing is asked of the excluded ranks. What was
    /// under way on this communicator is not waited for and does not move.
    ///
    /// Blocks until all ranks that stay have joined, at most for the init timeout.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a rank that does not exist and if the calling rank itself is
    /// excluded; [`ErrorKind::InvalidConfiguration`] on all ranks if they exclude different ones;
    /// [`ErrorKind::Timeout`] with who is missing.
    pub fn shrink(&self, excluded: &[Rank]) -> Result<Self> {
        let excluded: BTreeSet<Rank> = excluded.iter().copied().collect();
        let (own, world_size) = (self.rank(), self.world_size());
        if let Some(last) = excluded.last().filter(|last| **last >= world_size) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a rank is excluded that does not exist",
            )
            .with("excluded", last)
            .with("world_size", world_size));
        }
        if excluded.contains(&own) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a rank cannot exclude itself; only the ranks that stay call shrink()",
            )
            .with("rank", own));
        }
        let members: Vec<Rank> = (0..world_size)
            .filter(|rank| !excluded.contains(rank))
            .collect();
        let names: Vec<String> = excluded.iter().map(ToString::to_string).collect();
        self.join_child(&Child {
            name: "shrink".to_owned(),
            purpose: "the shrunk communicator".to_owned(),
            members: &members,
            shared: Some(("excluded ranks", names.join(","))),
            while_parent_works: false,
        })
    }

    /// The rank that ended the communicator by its death, or by leaving while others waited for it, if one
    /// did; every rank tells the same.
    #[must_use]
    pub fn failed_rank(&self) -> Option<Rank> {
        let failure = self.failure()?;
        let (_, rank) = failure.context().find(|(key, _)| *key == FAILED_RANK)?;
        rank.parse().ok()
    }

    /// Joins a communicator of which this rank is a member.
    fn join_child(&self, child: &Child<'_>) -> Result<Self> {
        let core = &self.core;
        let origin = &core.origin;
        let missing = || Error::new(ErrorKind::Internal, "a rank joins others than its own");
        let rank = (0..)
            .zip(child.members)
            .find_map(|(rank, member)| (*member == core.rank).then_some(rank))
            .ok_or_else(missing)?;
        let server = core.peers.get(child.members[0] as usize);
        let world_size = u32::try_from(child.members.len()).map_err(|_| missing())?;
        let meeting = if world_size == 1 {
            Arc::new(LocalRendezvous::new())
        } else {
            core.control.meet_kin(
                &Kin {
                    purpose: &child.purpose,
                    server: server.ok_or_else(missing)?,
                    serve: rank == 0,
                    while_parent_works: child.while_parent_works,
                },
                &origin.control,
            )?
        };
        let mut builder = CommunicatorBuilder::new()
            .rank(rank, world_size)
            .rendezvous(meeting)
            .name(format!("{}/{}", origin.name, child.name))
            .control(origin.control.clone())
            .settings(origin.settings.clone());
        if let Some(launcher) = origin.launcher {
            builder = builder.launcher(launcher);
        }
        for (name, value) in &origin.shared {
            builder = builder.shared_setting(name, value);
        }
        if let Some((name, value)) = &child.shared {
            builder = builder.shared_setting(*name, value);
        }
        let mut made = core.transports.iter();
        for (name, unavailable) in &core.transport_table {
            let transport: Result<Arc<dyn Transport>> = match unavailable {
                None => made.next().cloned().ok_or_else(missing),
                Some(reason) => Err(Error::new(ErrorKind::Unavailable, reason.clone())),
            };
            builder = builder.transport(name, move |_| transport);
        }
        builder.build()
    }
}

/// A communicator to be made from another one.
struct Child<'a> {
    /// Its name behind the parent's.
    name: String,
    /// The same in words, and what its ranks find each other by.
    purpose: String,
    /// Its ranks by their ranks in the parent.
    members: &'a [Rank],
    /// What must be equal on all its ranks beside the parent's settings.
    shared: Option<(&'static str, String)>,
    /// Whether a failure of the parent ends the joining.
    while_parent_works: bool,
}
