//! `COMM_DEBUG`: diagnostics on standard error without any set-up by the application.
//!
//! # Contract
//!
//! * `COMM_DEBUG=WARN|INFO|DEBUG|TRACE` (or `NCCL_DEBUG`, where `VERSION` counts as `INFO`) prints
//!   the library's events of that level and above, one line each, on standard error.
//! * If the application has installed a `tracing` subscriber, that one gets the events and
//!   `COMM_DEBUG` changes nothing.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use comm_core::{Error, ErrorKind, Result};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// Installs the printer if the environment asks for it. Later calls do nothing.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfiguration`] for a level that does not exist.
pub(crate) fn install_from_env() -> Result<()> {
    static INSTALL: Once = Once::new();
    let Some(level) = level(comm_runtime::variable)? else {
        return Ok(());
    };
    INSTALL.call_once(|| {
        let printer = Printer {
            level,
            next_span: AtomicU64::new(1),
        };
        // Fails if the application has a subscriber, which then gets the events.
        let _ = tracing::subscriber::set_global_default(printer);
    });
    Ok(())
}

fn level(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Level>> {
    for name in ["COMM_DEBUG", "NCCL_DEBUG"] {
        let Some(text) = lookup(name) else { continue };
        return match text.trim().to_ascii_uppercase().as_str() {
            "" | "NONE" | "OFF" => Ok(None),
            "ERROR" => Ok(Some(Level::ERROR)),
            "WARN" => Ok(Some(Level::WARN)),
            "VERSION" | "INFO" | "ABORT" => Ok(Some(Level::INFO)),
            "DEBUG" => Ok(Some(Level::DEBUG)),
            "TRACE" => Ok(Some(Level::TRACE)),
            other => Err(Error::new(
                ErrorKind::InvalidConfiguration,
                format!("{name}={other} is no level; use ERROR, WARN, INFO, DEBUG or TRACE"),
            )),
        };
    }
    Ok(None)
}

/// Prints the library's own events as lines.
#[derive(Debug)]
struct Printer {
    level: Level,
    next_span: AtomicU64,
}

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("comm_")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.next_span.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let metadata = event.metadata();
        let text = format!(
            "comm[{}] {} {}{}{}\n",
            std::process::id(),
            metadata.level(),
            metadata.target(),
            if line.message.is_empty() {
                String::new()
            } else {
                format!(": {}", line.message)
            },
            line.fields,
        );
        // One write per line, so that lines of several processes do not mix. If standard error is
        // closed there is nobody to tell.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Level>> {
        level(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn our_variable_wins_and_nccls_is_a_fallback() {
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&[("NCCL_DEBUG", "VERSION")]).unwrap(), Some(Level::INFO));
        assert_eq!(
            of(&[("COMM_DEBUG", "warn"), ("NCCL_DEBUG", "TRACE")]).unwrap(),
            Some(Level::WARN)
        );
    }

    #[test]
    fn an_unknown_level_is_an_error_that_names_the_variable() {
        let error = of(&[("COMM_DEBUG", "LOUD")]).unwrap_err();
        assert!(error.to_string().contains("COMM_DEBUG=LOUD"), "{error}");
    }
}
