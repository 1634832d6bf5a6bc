//! How a member leaves.
//!
//! # Contract
//!
//! * What is queued for a peer arrives, also if the link is still being dialled: the last part of an
//!   exchange, for instance, without which the peer could not go on. A member waits for that,
//!   [`LAST_DIALS`] longer than for its goodbyes to be read.
//! * A peer that has read the last goodbye has read everything before: of two links to a peer, which both
//!   ends dialled at a time, the one over which this member sends goes first, and the other one says
//!   goodbye when that was read.
//! * A member of a failed communicator has told the failure and waits for no dialling.
//! * One that is abandoned closes its links without a word: its peers count it as dead.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use comm_core::Rank;
use tokio::time::Instant;

use super::{Link, Member, State};
use crate::control::core::lock;
use crate::control::link::Outgoing;

/// How much longer a member waits for links that are being dialled.
const LAST_DIALS: Duration = Duration::from_secs(4);

/// How long it waits for goodbyes to be read if dialling took all its time.
const LAST_GOODBYES: Duration = Duration::from_millis(500);

impl Member {
    /// Says goodbye to all peers and waits, up to `deadline`, until they have read it.
    ///
    /// From the call on, not only from the first poll, the end of the process waits for it.
    pub(crate) fn leave(self: Arc<Self>, deadline: Instant) -> impl Future<Output = ()> + Send {
        let linger = self.core.lingering.begin();
        async move {
            self.say_goodbye(deadline).await;
            drop(linger);
        }
    }

    async fn say_goodbye(&self, deadline: Instant) {
        lock(&self.state).leaving = true;
        if self.failure.get().is_none() {
            let dialled = self.say_goodbyes_until(State::has_dialled);
            let limit = tokio::time::timeout_at(deadline + LAST_DIALS, dialled);
            if limit.await.is_err() {
                tracing::debug!(
                    rank = self.rank,
                    "some ranks were not reached before this rank left"
                );
            }
        }
        lock(&self.state).stop_dialling();
        let closed = self.say_goodbyes_until(|state| state.links.is_empty());
        let deadline = deadline.max(Instant::now() + LAST_GOODBYES);
        if tokio::time::timeout_at(deadline, closed).await.is_err() {
            tracing::debug!(
                rank = self.rank,
                "some ranks did not read this rank's goodbye"
            );
        }
        self.abandon();
    }

    /// Says goodbye wherever its time has come, until `done`.
    async fn say_goodbyes_until(&self, done: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = lock(&self.state);
                state.say_goodbyes();
                if done(&state) {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Closes all links without a word.
    pub(crate) fn abandon(&self) {
        self.core.members.remove(self);
        let mut state = lock(&self.state);
        state.leaving = true;
        for link in state.links.values() {
            link.task.abort();
        }
        state.links.clear();
        for peer in &mut state.peers {
            peer.route = None;
        }
    }
}

impl State {
    fn has_dialled(&self) -> bool {
        self.links.values().all(|link| link.open)
    }

    fn stop_dialling(&mut self) {
        for link in self.links.values().filter(|link| !link.open) {
            link.task.abort();
        }
        self.links.retain(|_, link| link.open);
    }

    /// Says goodbye on all open links but those that come after the route to their peer, as long as
    /// that is there.
    pub(super) fn say_goodbyes(&mut self) {
        let peers = &self.peers;
        let is_route = |link: &Link| {
            let route = peers.get(link.peer as usize);
            let route = route.and_then(|peer| peer.route.as_ref());
            route.is_some_and(|route| route.same_channel(&link.outbox))
        };
        let routes: HashMap<Rank, u64> = self
            .links
            .iter()
            .filter(|(_, link)| is_route(link))
            .map(|(number, link)| (link.peer, *number))
            .collect();
        for (number, link) in &mut self.links {
            let is_due = routes.get(&link.peer).is_none_or(|route| route == number);
            if link.open && is_due && !link.said_goodbye {
                link.said_goodbye = true;
                // A closed queue belongs to a link that has just ended.
                let _ = link.outbox.send(Outgoing::Goodbye);
            }
        }
    }
}
