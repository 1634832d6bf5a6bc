//! How the members of a group find and connect each other: the worker's part of it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind, Rank, Rendezvous, Result};
use comm_runtime::control::rendezvous::RendezvousAddress;
use comm_runtime::control::{ControlSettings, Launcher, Process, may_be_an_earlier_start};
use comm_runtime::{Communicator, CommunicatorBuilder, Settings};

/// Registers the transports of one group with the builder of its communicator; called for each
/// group.
pub type TransportHook =
    Arc<dyn Fn(CommunicatorBuilder) -> Result<CommunicatorBuilder> + Send + Sync>;

/// The longest name that goes into the keys of a rendezvous as it is.
const LONGEST_NAME_BYTES: usize = 96;

/// Where the members meet.
#[derive(Clone, Debug)]
pub(crate) enum Meeting {
    Address(RendezvousAddress),
    Table(Arc<dyn Rendezvous>),
}

/// What all groups of a worker have in common.
pub(crate) struct Connector {
    pub(crate) meeting: Meeting,
    pub(crate) control: ControlSettings,
    pub(crate) settings: Settings,
    pub(crate) launcher: Option<(Launcher, Rank)>,
    pub(crate) transports: TransportHook,
    /// The rendezvous, once it is in use. It is kept: this worker may be the one that serves it,
    /// and others come later.
    opened: Mutex<Option<Opened>>,
}

struct Opened {
    rendezvous: Arc<dyn Rendezvous>,
    _process: Arc<Process>,
}

/// One group to be joined.
#[derive(Debug)]
pub(crate) struct Joining<'a> {
    pub(crate) name: &'a str,
    /// How often this worker has closed a group of this name before.
    pub(crate) generation: u32,
    pub(crate) members: &'a str,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
}

impl Connector {
    pub(crate) const fn new(
        meeting: Meeting,
        control: ControlSettings,
        settings: Settings,
        launcher: Option<(Launcher, Rank)>,
        transports: TransportHook,
    ) -> Self {
        Self {
            meeting,
            control,
            settings,
            launcher,
            transports,
            opened: Mutex::new(None),
        }
    }

    /// Joins the group; blocks until all members have come, at most for the join timeout.
    ///
    /// A worker that was started again does not know how often the others have made the group: it
    /// goes on to the next generation for as long as it meets what its earlier start has left.
    ///
    /// # Errors
    ///
    /// As for [`CommunicatorBuilder::build`].
    pub(crate) fn join(&self, group: &Joining<'_>) -> Result<Communicator> {
        let deadline = self.control.join_deadline();
        let mut first = None;
        for generation in group.generation.. {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.join_generation(group, generation, left) {
                Err(error) if may_be_an_earlier_start(&error) && !left.is_zero() => {
                    tracing::debug!(group = group.name, generation, %error, "next generation");
                    first.get_or_insert(error);
                }
                // What stood in the way at first explains why nobody came afterwards.
                Err(error) if error.kind() == ErrorKind::Timeout => {
                    return Err(first.unwrap_or(error));
                }
                joined => return joined,
            }
        }
        Err(first.unwrap_or_else(|| Error::new(ErrorKind::Internal, "a group has no generation")))
    }

    fn join_generation(
        &self,
        group: &Joining<'_>,
        generation: u32,
        timeout: Duration,
    ) -> Result<Communicator> {
        let mut control = self.control.clone();
        control.join_timeout = timeout;
        if let Meeting::Address(RendezvousAddress::UniqueId(id)) = &self.meeting {
            control.secret = Some(id.secret()?);
        }
        let rendezvous = self.rendezvous(&control)?;
        let mut builder = CommunicatorBuilder::new()
            .settings(self.settings.clone())
            .control(control)
            .rendezvous(rendezvous)
            .rank(group.rank, group.size)
            .name(join_name(group.name, generation))
            .shared_setting(
                format!("the members of group '{}'", group.name),
                group.members,
            );
        if let Some((launcher, _)) = self.launcher {
            builder = builder.launcher(launcher);
        }
        (self.transports)(builder)?.build()
    }

    fn rendezvous(&self, control: &ControlSettings) -> Result<Arc<dyn Rendezvous>> {
        let address = match &self.meeting {
            Meeting::Table(table) => return Ok(Arc::clone(table)),
            Meeting::Address(address) => address,
        };
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(Arc::clone(&opened.rendezvous));
        }
        let process = Process::acquire(&control.process_options())?;
        let rank = self.launcher.map_or(0, |(_, rank)| rank);
        let rendezvous = address.open(&process, control.visitor(rank))?;
        *opened = Some(Opened {
            rendezvous: Arc::clone(&rendezvous),
            _process: process,
        });
        Ok(rendezvous)
    }

    /// Lets go of the rendezvous.
    pub(crate) fn close(&self) {
        let opened = self
            .opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(opened);
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("meeting", &self.meeting)
            .field("launcher", &self.launcher)
            .finish_non_exhaustive()
    }
}

/// The name under which a group meets, apart from communicators of any name. Rendezvous keys are
/// short, so of a long name the beginning and a hash stand for the whole; the members are compared
/// in any case.
fn join_name(name: &str, generation: u32) -> String {
    let mut joined = "group ".to_owned();
    if name.len() <= LONGEST_NAME_BYTES {
        joined.push_str(name);
    } else {
        let beginning: String = name.chars().take(LONGEST_NAME_BYTES / 4).collect();
        joined.push_str(&format!("{beginning}~{:016x}", fnv1a(name.as_bytes())));
    }
    if generation > 0 {
        joined.push_str(&format!("#{generation}"));
    }
    joined
}

/// The 64-bit hash FNV-1a (Fowler, Noll, Vo), equal in all releases.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_kept_and_long_ones_stay_apart() {
        assert_eq!(join_name("cg-a:0-b:0", 0), "group cg-a:0-b:0");
        assert_eq!(join_name("cg-a:0-b:0", 2), "group cg-a:0-b:0#2");
        let long = "ä".repeat(200);
        let other = format!("{long}!");
        assert!(join_name(&long, 0).len() < 128);
        assert_ne!(join_name(&long, 0), join_name(&other, 0));
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
