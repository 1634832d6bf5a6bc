//! Networks that all ranks of a process share.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use comm_core::net::NetBackend;
use comm_core::{Error, ErrorKind, Result, Transport};
use comm_runtime::{Setting, Settings, Source};
use comm_transport_net::{NetOptions, NetTransport};

/// The networks of one kind that ranks of this process use.
///
/// Ranks with equal options share one backend with its event set and its thread.
pub(crate) struct Networks<O> {
    known: Mutex<Vec<Known<O>>>,
}

struct Known<O> {
    /// A forked child has its parent's sockets but not its thread.
    process: u32,
    options: O,
    transport: Weak<NetTransport>,
}

impl<O: Clone + PartialEq> Networks<O> {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self {
            known: Mutex::new(Vec::new()),
        }
    }

    /// The transport of this process with these options, which `make` makes the backend of if
    /// there is none yet.
    pub(crate) fn transport(
        &self,
        name: &str,
        options: O,
        make: impl FnOnce(O) -> Result<Arc<dyn NetBackend>>,
    ) -> Result<Arc<dyn Transport>> {
        let process = std::process::id();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|one| one.process == process && one.transport.strong_count() > 0);
        let equal = known.iter().find(|one| one.options == options);
        if let Some(transport) = equal.and_then(|one| one.transport.upgrade()) {
            return Ok(transport);
        }
        let backend = make(options.clone())?;
        let transport = Arc::new(NetTransport::new(
            backend,
            NetOptions::default().name(name),
        )?);
        known.push(Known {
            process,
            options,
            transport: Arc::downgrade(&transport),
        });
        Ok(transport)
    }
}

/// A number, as a variable has it.
pub(crate) fn plain(text: &str) -> Option<usize> {
    text.trim().parse().ok()
}

/// A variable from `least` to `most` that `parse` reads, under the first of `names` that is set; listed in the table
/// of `settings` under the first.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfiguration`] for one that is no such number.
pub(crate) fn number(
    names: &[&'static str],
    (least, most): (usize, usize),
    default: &str,
    parse: fn(&str) -> Option<usize>,
    lookup: &dyn Fn(&str) -> Option<String>,
    settings: &mut Settings,
) -> Result<Option<usize>> {
    let set = names.iter().find_map(|name| Some((*name, lookup(name)?)));
    let number = match &set {
        None => None,
        Some((name, text)) => Some(
            parse(text)
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| {
                    Error::new(
                        ErrorKind::InvalidConfiguration,
                        format!("{name}={text} is no number from {least} to {most}"),
                    )
                })?,
        ),
    };
    settings.note(Setting {
        name: names[0],
        value: number.map_or_else(|| default.to_owned(), |number| number.to_string()),
        source: set.map_or(Source::Default, |(name, _)| {
            Source::Environment(name.to_owned())
        }),
    });
    Ok(number)
}
