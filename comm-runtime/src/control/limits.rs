//! The number of descriptors that this process may open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// What the process itself, its transports and its files may need beside the control plane.
const REST: u64 = 512;

/// Raises the soft limit of open descriptors as far as `count` of them need it.
///
/// The limit is never lowered, and never raised beyond the need: programs that use `select`
/// depend on small numbers. If the hard limit is too low nothing is done here, and the call that
/// finds no descriptor reports it.
pub(crate) fn allow_descriptors(count: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    let Some(soft) = limit.current else { return };
    let needed = count.saturating_add(REST);
    let wanted = limit.maximum.map_or(needed, |hard| hard.min(needed));
    if soft < wanted {
        limit.current = Some(wanted);
        match setrlimit(Resource::Nofile, limit) {
            Ok(()) => tracing::debug!(from = soft, to = wanted, "raised the descriptor limit"),
            Err(error) => tracing::warn!(%error, "the descriptor limit cannot be raised"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_need_and_not_beyond_the_hard_limit() {
        let before = getrlimit(Resource::Nofile);
        let (Some(soft), Some(hard)) = (before.current, before.maximum) else {
            return;
        };
        allow_descriptors(1);
        assert_eq!(
            getrlimit(Resource::Nofile).current,
            Some(soft.max(hard.min(1 + REST)))
        );
        allow_descriptors(soft);
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.current, Some(hard.min(soft + REST)));
        assert_eq!(after.maximum, before.maximum);
    }
}
