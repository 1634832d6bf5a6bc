//! Shared memory: switched off, sealed, or with names.

use std::sync::Arc;

use comm_core::{Error, ErrorKind, Result};
use comm_runtime::{CommunicatorBuilder, Setting, Settings, Source};
use comm_transport_shm::{NAME, ShmTransport};

use crate::transports::switched_off;

/// The transport's settings from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShmSettings {
    /// The variable that switches it off, if one does.
    disabled: Option<String>,
    /// What goes into the names of segments, if they have names (`COMM_SHM_NAMED`).
    named: Option<String>,
    /// Whether edges read large steps from the sender's process (`COMM_SHM_PULL`).
    pulls: bool,
}

impl ShmSettings {
    /// Reads the environment, and adds what it finds to the table of `settings`.
    pub(crate) fn read(
        lookup: &dyn Fn(&str) -> Option<String>,
        settings: &mut Settings,
    ) -> Result<Self> {
        let named = switch("COMM_SHM_NAMED", false, lookup, settings)?;
        if named && !cfg!(feature = "shm-named") {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "COMM_SHM_NAMED=1 needs the Cargo feature `shm-named` of comm-api, which is off",
            ));
        }
        // Only a label; the names differ in any case.
        let jobs = [
            "COMM_JOB_ID",
            "TORCHELASTIC_RUN_ID",
            "SLURM_JOB_ID",
            "PMIX_NAMESPACE",
            "COMM_RENDEZVOUS",
        ];
        let job = || jobs.into_iter().find_map(lookup).unwrap_or_default();
        Ok(Self {
            disabled: switched_off("SHM", lookup)?,
            named: named.then(job),
            // By default what was measured to be faster on this processor.
            pulls: switch(
                "COMM_SHM_PULL",
                ShmTransport::pulls_by_default(),
                lookup,
                settings,
            )?,
        })
    }

    /// Registers the transport.
    pub(crate) fn register(self, builder: CommunicatorBuilder) -> CommunicatorBuilder {
        if let Some(variable) = self.disabled {
            return builder.transport(NAME, move |_| {
                Ok(Arc::new(ShmTransport::disabled(format!(
                    "{variable}=1 is set"
                ))))
            });
        }
        match self.named {
            Some(job) => register_named(builder, job),
            None => builder.transport(NAME, move |context| {
                let transport = ShmTransport::new(Arc::clone(&context.doorbells));
                Ok(Arc::new(transport.pulling(self.pulls)))
            }),
        }
    }
}

/// A variable that is 0 or 1, listed in the table of `settings`.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfiguration`] for anything else.
fn switch(
    name: &'static str,
    default: bool,
    lookup: &dyn Fn(&str) -> Option<String>,
    settings: &mut Settings,
) -> Result<bool> {
    let text = lookup(name).filter(|text| !text.trim().is_empty());
    let on = match text.as_deref().map(str::trim) {
        None => default,
        Some("0") => false,
        Some("1") => true,
        Some(other) => {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                format!("{name}={other} is neither 0 nor 1"),
            ));
        }
    };
    settings.note(Setting {
        name,
        value: u8::from(on).to_string(),
        source: match text {
            None => Source::Default,
            Some(_) => Source::Environment(name.to_owned()),
        },
    });
    Ok(on)
}

/// Registers the transport over named segments, and gives the process doorbells that have a name.
#[cfg(feature = "shm-named")]
fn register_named(builder: CommunicatorBuilder, job: String) -> CommunicatorBuilder {
    use comm_transport_shm::NamedDoorbells;

    let removed = comm_transport_shm::sweep();
    if removed > 0 {
        tracing::info!(removed, "removed segments of dead processes from /dev/shm");
    }
    let named = match NamedDoorbells::of_process(&job) {
        Ok(named) => named,
        Err(error) => {
            let reason = error.to_string();
            return builder.transport(NAME, move |_| Ok(Arc::new(ShmTransport::disabled(reason))));
        }
    };
    let builder = builder.doorbells(Arc::clone(named.doorbells()));
    builder.transport(NAME, move |context| {
        Ok(Arc::new(
            if Arc::ptr_eq(&context.doorbells, named.doorbells()) {
                ShmTransport::named(named, job)
            } else {
                ShmTransport::disabled(
                    "COMM_SHM_NAMED=1 was set after the first communicator of this process was made",
                )
            },
        ))
    })
}

/// [`ShmSettings::read`] asks for names only where they are compiled in.
#[cfg(not(feature = "shm-named"))]
fn register_named(builder: CommunicatorBuilder, _job: String) -> CommunicatorBuilder {
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<ShmSettings> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        ShmSettings::read(&lookup, &mut Settings::default())
    }

    #[test]
    fn memory_has_names_only_if_asked_for() {
        assert_eq!(of(&[]).unwrap().named, None);
        assert_eq!(of(&[("COMM_SHM_NAMED", "0")]).unwrap().named, None);
        assert_eq!(of(&[("COMM_SHM_NAMED", "")]).unwrap().named, None);
        let error = of(&[("COMM_SHM_NAMED", "maybe")]).unwrap_err();
        assert!(error.message().contains("COMM_SHM_NAMED=maybe"), "{error}");
        let asked = of(&[("COMM_SHM_NAMED", "1"), ("SLURM_JOB_ID", "7")]);
        if cfg!(feature = "shm-named") {
            assert_eq!(asked.unwrap().named.as_deref(), Some("7"));
        } else {
            assert!(asked.unwrap_err().message().contains("shm-named"));
        }
    }
}
