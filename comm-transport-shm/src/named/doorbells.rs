//! The doorbells of a process in a named segment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use comm_core::Result;
use comm_core::doorbell::{DOORBELL_SET_BYTES, Doorbells, PeerDoorbells, RingTarget};

use super::NamedSegment;

/// The doorbells of this process, which peers open by name.
///
/// There is one set as long as somebody holds its doorbells; its name goes with it.
#[derive(Clone, Debug)]
pub struct NamedDoorbells {
    doorbells: Arc<Doorbells>,
    name: Arc<str>,
}

/// The set that is in use.
static CURRENT: Mutex<Option<Current>> = Mutex::new(None);

struct Current {
    doorbells: Weak<Doorbells>,
    name: Arc<str>,
    /// A forked child has its parent's set, and needs one of its own.
    process: u32,
}

/// The sets of peers that edges of this process use, by name. An entry keeps nothing alive.
static MAPPED: Mutex<Option<HashMap<Vec<u8>, Weak<PeerDoorbells>>>> = Mutex::new(None);

impl NamedDoorbells {
    /// The set of this process, made if there is none; `job` goes into its name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ResourceExhausted`](comm_core::ErrorKind) if `/dev/shm` is full; what the system
    /// says otherwise.
    pub fn of_process(job: &str) -> Result<Self> {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*current
            && known.process == std::process::id()
            && let Some(doorbells) = known.doorbells.upgrade()
        {
            let name = Arc::clone(&known.name);
            return Ok(Self { doorbells, name });
        }
        let segment = Arc::new(NamedSegment::create(job, DOORBELL_SET_BYTES)?);
        let (base, name) = (segment.as_ptr()?, Arc::from(segment.name()));
        // SAFETY: the segment is page-aligned, of this length, zero and mapped as long as it lives.
        // Peers map it as a set of doorbells only.
        let doorbells = unsafe { Doorbells::from_raw(base, segment) };
        *current = Some(Current {
            doorbells: Arc::downgrade(&doorbells),
            name: Arc::clone(&name),
            process: std::process::id(),
        });
        Ok(Self { doorbells, name })
    }

    /// The doorbells, at which the threads of the process have to wait.
    #[must_use]
    pub const fn doorbells(&self) -> &Arc<Doorbells> {
        &self.doorbells
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Whom to ring through the doorbells that a peer named: this process itself if they are `own`.
pub(crate) fn ring_target(own: &NamedDoorbells, name: &[u8]) -> Result<RingTarget> {
    if name == own.name.as_bytes() {
        return Ok(RingTarget::Local(Arc::clone(&own.doorbells)));
    }
    let mut guard = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let mapped = guard.get_or_insert_default();
    if let Some(peer) = mapped.get(name).and_then(Weak::upgrade) {
        return Ok(RingTarget::Peer(peer));
    }
    let segment = Arc::new(NamedSegment::open(name, DOORBELL_SET_BYTES)?);
    let base = segment.as_ptr()?;
    // SAFETY: the segment is page-aligned and was checked to have this length; it is mapped as long
    // as it lives. Whoever else writes to it can change values of atomics (see the contract of this
    // module for one that shrinks it).
    let peer = Arc::new(unsafe { PeerDoorbells::from_raw(base, segment) });
    mapped.retain(|_, peer| peer.strong_count() > 0);
    mapped.insert(name.to_vec(), Arc::downgrade(&peer));
    Ok(RingTarget::Peer(peer))
}

#[cfg(test)]
mod tests {
    use comm_core::ErrorKind;

    use super::*;

    #[test]
    fn a_process_has_one_set_and_rings_it_without_a_second_mapping() {
        let first = NamedDoorbells::of_process("job").unwrap();
        let second = NamedDoorbells::of_process("job").unwrap();
        assert!(Arc::ptr_eq(first.doorbells(), second.doorbells()));
        let target = ring_target(&first, second.name().as_bytes()).unwrap();
        assert!(matches!(target, RingTarget::Local(set) if Arc::ptr_eq(&set, first.doorbells())));
    }

    #[test]
    fn a_peers_set_is_rung_by_its_name() {
        let own = NamedDoorbells::of_process("job").unwrap();
        // As another process makes it.
        let segment = Arc::new(NamedSegment::create("job", DOORBELL_SET_BYTES).unwrap());
        let name = segment.name().to_owned();
        let base = segment.as_ptr().unwrap();
        // SAFETY: as in `of_process`.
        let other = unsafe { Doorbells::from_raw(base, segment) };
        let bell = other.claim().unwrap();
        let ticket = bell.ticket();
        ring_target(&own, name.as_bytes())
            .unwrap()
            .ring(bell.number());
        assert_ne!(bell.ticket(), ticket);
    }

    #[test]
    fn bytes_that_are_no_name_are_refused() {
        let own = NamedDoorbells::of_process("job").unwrap();
        let error = ring_target(&own, b"../../etc/passwd").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
}
