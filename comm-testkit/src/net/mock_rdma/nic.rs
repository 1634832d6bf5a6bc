//! The hardware: moves messages, notices failures, takes its time.

use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

use comm_core::net::MrSlice;
use comm_core::{Error, ErrorKind};

use super::fabric::{Core, lock};
use super::state::{Completion, End, Link, Posted, Rest, Side, Signal, State, Target};

/// What withdrawn receives are filled with as long as they are not at rest.
const SCRIBBLE: u8 = 0xDB;

/// The hardware's thread; ends when the fabric does.
pub(super) fn run(core: &Core) {
    while let Some(delay) = wait_for_work(core) {
        thread::sleep(delay);
        // Dropped after the lock was released, see `Core::state`.
        let mut garbage = Vec::new();
        let mut state = core.state();
        rest_undead(&mut state, &mut garbage);
        for _ in 0..=state.rng.below(core.config.max_burst) {
            let matched: Vec<u64> = matched(&state).collect();
            let signals = u64::from(!state.signals.is_empty());
            let candidates = matched.len() as u64 + signals;
            if candidates == 0 {
                break;
            }
            match matched.get(state.rng.below(candidates) as usize) {
                Some(&link) => deliver(core, &mut state, link, &mut garbage),
                None => notice(&mut state),
            }
        }
        drop(state);
        drop(garbage);
    }
}

/// Sleeps until there is something to do; how long to wait with it, or `None` at the end.
fn wait_for_work(core: &Core) -> Option<Duration> {
    let mut state = core.state();
    loop {
        if state.stop {
            return None;
        }
        if !state.signals.is_empty() || matched(&state).next().is_some() {
            let longest = u64::try_from(core.config.max_delay.as_nanos()).unwrap_or(u64::MAX);
            return Some(Duration::from_nanos(
                state.rng.below(longest.saturating_add(1)),
            ));
        }
        let rests = state.undead.iter().filter_map(|undead| match undead.rest {
            Rest::At(at) => Some(at),
            Rest::Never => None,
        });
        match rests.min() {
            Some(at) if at <= Instant::now() => return Some(Duration::ZERO),
            Some(at) => {
                let timeout = at.saturating_duration_since(Instant::now());
                state = wait_timeout(core, state, timeout);
            }
            None => {
                state = core
                    .nic
                    .wait(state)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
    }
}

fn wait_timeout<'a>(
    core: &'a Core,
    state: MutexGuard<'a, State>,
    timeout: Duration,
) -> MutexGuard<'a, State> {
    core.nic
        .wait_timeout(state, timeout)
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .0
}

/// Links on which something can move.
fn matched(state: &State) -> impl Iterator<Item = u64> {
    state
        .links
        .iter()
        .filter(|(_, link)| can_move(link))
        .map(|(&id, _)| id)
}

fn can_move(Link { ends: [send, recv] }: &Link) -> bool {
    let Some(first) = send.posted.front() else {
        return false;
    };
    let moving = !send.stopped && !recv.stopped;
    moving && (first.put.is_some() || !recv.posted.is_empty())
}

/// Moves the first message or put of a link.
fn deliver(core: &Core, state: &mut State, link_id: u64, garbage: &mut Vec<Posted>) {
    let Some(link) = state.links.get_mut(&link_id) else {
        return;
    };
    let [send, recv] = &mut link.ends;
    let Some(message) = send.posted.pop_front() else {
        return;
    };
    let bytes = message.slice.len_bytes();
    let (send_port, recv_port) = (send.port, recv.port);

    let failure = match message.put {
        Some(target) => put(core, &message.slice, target).err(),
        None => {
            let Some(place) = recv.posted.pop_front() else {
                return;
            };
            let fits = bytes <= place.slice.len_bytes();
            if fits {
                // SAFETY: `bytes` lies in both slices, which the requests keep alive and whose
                // owners promised to leave them alone; they are not one and the same, since
                // nobody may send from what is being received into.
                unsafe { message.slice.as_ptr().copy_to(place.slice.as_ptr(), bytes) };
                let token = place.token;
                let done = Completion::Done {
                    link: link_id,
                    side: Side::Recv,
                    token,
                    bytes,
                };
                state.ports[recv_port].complete(done);
            }
            let too_long = (!fits).then(|| {
                Error::new(
                    ErrorKind::Truncated,
                    "a message was longer than the buffer posted for it",
                )
                .with("message_bytes", bytes)
                .with("buffer_bytes", place.slice.len_bytes())
            });
            garbage.push(place);
            too_long
        }
    };
    match failure {
        None => {
            let token = message.token;
            let done = Completion::Done {
                link: link_id,
                side: Side::Send,
                token,
                bytes,
            };
            state.ports[send_port].complete(done);
        }
        Some(error) => break_link(state, link_id, &error),
    }
    garbage.push(message);
}

/// Writes to a window.
fn put(core: &Core, source: &MrSlice, target: Target) -> Result<(), Error> {
    let windows = lock(&core.windows);
    let bytes = source.len_bytes();
    let fitting = windows.get(&target.window).and_then(|window| {
        let offset = usize::try_from(target.offset_bytes).ok()?;
        let end = offset.checked_add(bytes)?;
        (end <= window.len_bytes).then_some((window.address, offset))
    });
    let Some((address, offset)) = fitting else {
        return Err(Error::new(
            ErrorKind::Protocol,
            "a put went outside of the peer's open windows",
        )
        .with("offset_bytes", target.offset_bytes)
        .with("bytes", bytes));
    };
    // SAFETY: `offset` lies inside the window.
    let address = unsafe { address.add(offset) };
    // SAFETY: both ranges were checked; the window is open, hence its memory alive, while the
    // table is locked; its owner reads it through raw pointers only.
    unsafe { source.as_ptr().copy_to(address, bytes) };
    Ok(())
}

/// Fails both ends with the same error.
fn break_link(state: &mut State, link: u64, error: &Error) {
    for side in [Side::Send, Side::Recv] {
        tell(state, link, side, error.clone());
    }
}

/// Stops an end and reports why, unless it knows already.
fn tell(state: &mut State, link: u64, side: Side, error: Error) {
    let Ok(End {
        port,
        closed: false,
        failure: None,
        stopped,
        ..
    }) = state.end(link, side)
    else {
        return;
    };
    *stopped = true;
    let port = *port;
    state.ports[port].complete(Completion::Failed { link, side, error });
}

/// Handles the oldest signal.
fn notice(state: &mut State) {
    match state.signals.pop_front() {
        None => {}
        Some(Signal::Room { port }) => state.ports[port].complete(Completion::Room),
        Some(Signal::Broken { link, error }) => break_link(state, link, &error),
        Some(Signal::Closed { link, side }) => {
            let error = Error::new(
                ErrorKind::PeerDied,
                "the other end of the connection is gone",
            );
            tell(state, link, side.other(), error);
            if state
                .links
                .get(&link)
                .is_some_and(|link| link.ends.iter().all(|end| end.closed))
            {
                state.links.remove(&link);
            }
        }
        Some(Signal::Connecting { connect, listener }) => join(state, connect, listener),
    }
}

/// Makes a link between a connect and a listener.
fn join(state: &mut State, connect: u64, listener: u64) {
    let Some(from) = state.connects.get(&connect) else {
        return;
    };
    let send_port = from.port;
    let outcome = match state.listeners.get(&listener) {
        None => Err(Error::new(
            ErrorKind::PeerDied,
            "nobody listens for this handle any more",
        )),
        Some(to) => {
            let recv_port = to.port;
            let link = state.id();
            let ends = [End::new(send_port), End::new(recv_port)];
            state.links.insert(link, Link { ends });
            state.ports[recv_port].complete(Completion::Accepted { listener, link });
            Ok(link)
        }
    };
    state.ports[send_port].complete(Completion::Connected { connect, outcome });
}

/// Lets go of dropped connections' memory that has come to rest.
fn rest_undead(state: &mut State, garbage: &mut Vec<Posted>) {
    let now = Instant::now();
    let (rested, busy) = std::mem::take(&mut state.undead)
        .into_iter()
        .partition(|undead| matches!(undead.rest, Rest::At(at) if at <= now));
    state.undead = busy;
    let rested: Vec<super::state::Undead> = rested;
    for undead in rested {
        if undead.side == Side::Recv {
            undead.posted.iter().for_each(scribble);
        }
        garbage.extend(undead.posted);
    }
}

/// Writes to a withdrawn receive, as the contract allows until the connection has quiesced.
pub(super) fn scribble(posted: &Posted) {
    let slice = &posted.slice;
    // SAFETY: the request keeps the slice alive, and until `Quiesced` was answered its owner
    // leaves it alone.
    unsafe { slice.as_ptr().write_bytes(SCRIBBLE, slice.len_bytes()) };
}
