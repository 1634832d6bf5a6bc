//! What the facts of all ranks must agree about.

use comm_core::{Error, ErrorKind, PeerInfo, Result};

/// Whether all ranks have equal [settings](PeerInfo::settings); all ranks come to the same answer.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfiguration`] that names the setting and two ranks with their values.
pub(super) fn same_settings(peers: &[PeerInfo]) -> Result<()> {
    let Some(first) = peers.first() else {
        return Ok(());
    };
    for peer in peers {
        for (name, value) in &first.settings {
            let other = peer.settings.get(name).map_or("(unset)", String::as_str);
            if other != value {
                return Err(Error::new(
                    ErrorKind::InvalidConfiguration,
                    format!(
                        "{name} must be equal on all ranks, but rank {} has '{value}' and rank {} \
                         has '{other}'",
                        first.rank, peer.rank
                    ),
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use comm_core::{HostId, ProcessId};

    use super::*;

    #[test]
    fn a_difference_names_the_setting_the_ranks_and_the_values() {
        let mut peers =
            [0, 1, 2].map(|rank| PeerInfo::new(rank, HostId([0; 16]), ProcessId([0; 16])));
        for peer in &mut peers {
            peer.settings
                .insert("COMM_STEP_BYTES".to_owned(), "65536".to_owned());
        }
        same_settings(&peers).unwrap();
        peers[2]
            .settings
            .insert("COMM_STEP_BYTES".to_owned(), "4096".to_owned());
        let error = same_settings(&peers).unwrap_err();
        for part in ["COMM_STEP_BYTES", "rank 0", "'65536'", "rank 2", "'4096'"] {
            assert!(error.message().contains(part), "{error}");
        }
    }
}
