//! The doorbells of other processes, each set mapped once per process.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use comm_core::doorbell::{Doorbells, PeerDoorbells, RingTarget};
use comm_core::{Error, Result};

/// Device and inode: what makes a file the same file, whichever descriptor it came by.
type FileId = (u64, u64);

/// The sets that edges of this process use at the moment.
///
/// An entry keeps nothing alive. As long as a set is mapped its inode lives, so a number cannot
/// stand for another file meanwhile.
static MAPPED: Mutex<Option<HashMap<FileId, Weak<PeerDoorbells>>>> = Mutex::new(None);

/// Whom to ring through the doorbells that a peer sent: this process itself if they are `own`.
pub(crate) fn ring_target(own: &Arc<Doorbells>, fd: OwnedFd) -> Result<RingTarget> {
    let id = file_id(&fd)?;
    if let Some(own_fd) = own.fd()
        && file_id(own_fd)? == id
    {
        return Ok(RingTarget::Local(Arc::clone(own)));
    }
    let mut guard = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let mapped = guard.get_or_insert_default();
    if let Some(peer) = mapped.get(&id).and_then(Weak::upgrade) {
        return Ok(RingTarget::Peer(peer));
    }
    let peer = Arc::new(PeerDoorbells::map(fd)?);
    mapped.retain(|_, peer| peer.strong_count() > 0);
    mapped.insert(id, Arc::downgrade(&peer));
    Ok(RingTarget::Peer(peer))
}

fn file_id(fd: impl AsFd) -> Result<FileId> {
    let stat = rustix::fs::fstat(fd)
        .map_err(|errno| Error::system("inspecting a peer's doorbells", errno))?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use comm_core::ErrorKind;

    use super::*;

    fn fd_of(bells: &Doorbells) -> OwnedFd {
        bells.fd().unwrap().try_clone_to_owned().unwrap()
    }

    #[test]
    fn the_own_set_is_rung_without_a_mapping() {
        let own = Doorbells::shared().unwrap();
        let target = ring_target(&own, fd_of(&own)).unwrap();
        assert!(matches!(target, RingTarget::Local(set) if Arc::ptr_eq(&set, &own)));
    }

    #[test]
    fn a_peers_set_is_mapped_once_as_long_as_it_is_used() {
        let (own, other) = (Doorbells::shared().unwrap(), Doorbells::shared().unwrap());
        let peer = |target| match target {
            RingTarget::Peer(peer) => peer,
            other => panic!("expected a peer, got {other:?}"),
        };
        let first = peer(ring_target(&own, fd_of(&other)).unwrap());
        let second = peer(ring_target(&own, fd_of(&other)).unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        let gone = Arc::downgrade(&first);
        drop((first, second));
        assert!(gone.upgrade().is_none(), "the cache keeps nothing alive");

        let bell = other.claim().unwrap();
        let ticket = bell.ticket();
        ring_target(&own, fd_of(&other))
            .unwrap()
            .ring(bell.number());
        assert_ne!(bell.ticket(), ticket);
    }

    #[test]
    fn a_file_that_is_no_set_of_doorbells_is_refused() {
        let own = Doorbells::shared().unwrap();
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert_eq!(
            ring_target(&own, null).unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }
}
