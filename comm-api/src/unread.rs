//! Variables that look like the library's but that nothing reads.
//!
//! # Contract
//!
//! * A `COMM_*` variable that no part of the library knows is told of, once for each process, by an
//!   event of level WARN (see `COMM_DEBUG`), and in every `explain()`; the name that was
//!   probably meant stands beside it. It is no error: transports of one's own and other
//!   programs may have such variables too.
//! * Values are not looked at, and never told.

use std::env;
use std::sync::Once;

/// All variables, in the order of the alphabet.
const VARIABLES: &[&str] = &[
    "COMM_ALGO",
    "COMM_CHANNELS",
    "COMM_CONNECT_TIMEOUT_SECONDS",
    "COMM_DEBUG",
    "COMM_FRAME_WINDOW_BYTES",
    "COMM_HEARTBEAT_TIMEOUT_SECONDS",
    "COMM_HOSTID",
    "COMM_IB_DISABLE",
    "COMM_IB_GID_INDEX",
    "COMM_IB_HCA",
    "COMM_INIT_TIMEOUT_SECONDS",
    "COMM_INSECURE",
    "COMM_JOB_ID",
    "COMM_LAUNCHER",
    "COMM_LOCAL_RANK",
    "COMM_LOCAL_WORLD_SIZE",
    "COMM_NET_SOCKETS",
    "COMM_NET_SOCKET_BUFFER_BYTES",
    "COMM_ONE_SHOT_BYTES",
    "COMM_OPERATION_TIMEOUT_SECONDS",
    "COMM_P2P_DISABLE",
    "COMM_PORT",
    "COMM_PORT_RANGE",
    "COMM_RANK",
    "COMM_RECEIVE_POOL_BYTES",
    "COMM_RENDEZVOUS",
    "COMM_SECRET",
    "COMM_SECRET_FILE",
    "COMM_SHM_DISABLE",
    "COMM_SHM_NAMED",
    "COMM_SHM_PULL",
    "COMM_SOCKET_IFNAME",
    "COMM_STEP_BYTES",
    "COMM_TRANSPORTS",
    "COMM_TREE_BYTES",
    "COMM_TREE_CHUNK_BYTES",
    "COMM_TREE_RANKS",
    "COMM_WORLD_SIZE",
];

/// Variables that only a command reads, and which one.
const OF_COMMANDS: [(&str, &str); 2] = [
    ("COMM_TOPO_DUMP_FILE", "commctl topo"),
    ("COMM_TOPO_FILE", "commctl topo"),
];

/// What every variable begins with.
const PREFIX: &str = "COMM_";

/// How many letters may be wrong, missing, added or swapped in a name that was meant.
const MOST_EDITS: usize = 2;

/// A sentence for each variable of this process that nothing reads; the first call also warns.
pub(crate) fn told_of_this_process() -> Vec<String> {
    static WARN: Once = Once::new();
    // Names that are no text are none of ours.
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let sentences = unread_variables(names);
    WARN.call_once(|| {
        for sentence in &sentences {
            tracing::warn!("{sentence}");
        }
    });
    sentences
}

/// A sentence for each of these names that looks like a variable of this library and that nothing
/// reads, with the one that was probably meant: for launchers, whose users see what they print.
///
/// ```
/// let told = comm_api::unread_variables(["COMM_STEP_BYTE".to_owned(), "PATH".to_owned()]);
/// assert_eq!(
///     told,
///     ["COMM_STEP_BYTE is set, but nothing here reads it; was COMM_STEP_BYTES meant?"]
/// );
/// ```
#[must_use]
pub fn unread_variables(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut unread: Vec<String> = names
        .into_iter()
        .filter(|name| name.starts_with(PREFIX) && !VARIABLES.contains(&name.as_str()))
        .collect();
    unread.sort_unstable();
    unread.iter().map(|name| sentence(name)).collect()
}

fn sentence(name: &str) -> String {
    if let Some((_, command)) = OF_COMMANDS.iter().find(|(known, _)| *known == name) {
        return format!("{name} is set, but only `{command}` reads it");
    }
    let mut sentence = format!("{name} is set, but nothing here reads it");
    if let Some(meant) = similar_to(name) {
        sentence.push_str("; was ");
        sentence.push_str(meant);
        sentence.push_str(" meant?");
    }
    sentence
}

/// The variable that is nearest to a name, if it is near.
fn similar_to(name: &str) -> Option<&'static str> {
    let near = VARIABLES
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), *known));
    let (_, known) = near.filter(|(edits, _)| *edits <= MOST_EDITS).min()?;
    Some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(names: &[&str]) -> Vec<String> {
        unread_variables(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn variables_that_are_read_and_other_programs_are_not_told_of() {
        let names = ["COMM_ALGO", "PATH", "NCCL_DEBUG", "OMPI_COMM_WORLD_RANK"];
        assert_eq!(told(&names), [""; 0]);
    }

    #[test]
    fn a_variable_that_nothing_reads_is_told_with_the_one_that_was_meant() {
        let told = told(&["COMM_WEATHER", "COMM_SHM_PULLS", "COMM_AGLO"]);
        assert_eq!(
            told,
            [
                "COMM_AGLO is set, but nothing here reads it; was COMM_ALGO meant?",
                "COMM_SHM_PULLS is set, but nothing here reads it; was COMM_SHM_PULL meant?",
                "COMM_WEATHER is set, but nothing here reads it",
            ]
        );
    }

    #[test]
    fn a_variable_of_a_command_is_told_with_the_command() {
        assert_eq!(
            told(&["COMM_TOPO_FILE"]),
            ["COMM_TOPO_FILE is set, but only `commctl topo` reads it"]
        );
    }

    #[test]
    fn the_list_is_in_order_and_names_nothing_twice() {
        assert!(VARIABLES.is_sorted_by(|one, next| one < next));
    }
}
