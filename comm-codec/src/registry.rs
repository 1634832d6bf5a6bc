//! [`Registry`]: codecs by name and by the number on the wire.
//!
//! # Contract
//!
//! * A registry has the codecs of this build and those that were registered. Names and numbers are
//!   unique: a second one of either is an error, and the registry stays as it was.
//! * The names and numbers of this crate are its own, compiled in or not; other codecs have numbers
//!   from [`FIRST_CUSTOM`] on.
//! * Asking for a codec that is not there is an error that names the Cargo feature that brings it,
//!   or lists what is there.

use std::sync::Arc;

use comm_core::{Codec, Error, ErrorKind, Result};

use crate::settings::{CodecChoice, CompressionSettings};
use crate::wire_id::{FIRST_CUSTOM, KNOWN, Known};

/// Codecs; see the [module](self). Clones share the codecs and their contexts.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    codecs: Vec<Arc<dyn Codec>>,
}

impl Registry {
    /// The codecs of this build with their default settings: what a receiver needs.
    #[must_use]
    pub fn builtin() -> Self {
        Self {
            codecs: vec![
                #[cfg(any(feature = "lz4", feature = "lz4-c"))]
                Arc::new(crate::Lz4::default()),
                #[cfg(feature = "zstd")]
                Arc::new(crate::Zstd::default()),
            ],
        }
    }

    /// The codecs of this build, the chosen one with its settings. A custom one has to be registered
    /// before it can be asked for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the codec, or what is asked of it, is not compiled in;
    /// [`ErrorKind::InvalidConfiguration`] if its library does not have such a setting.
    pub fn configured(settings: &CompressionSettings) -> Result<Self> {
        let mut registry = Self::builtin();
        if matches!(settings.codec(), CodecChoice::Custom(_)) {
            return Ok(registry);
        }
        // Also the error, if it is not compiled in.
        let id = registry.named(settings.codec().name())?.wire_id();
        let chosen = made(settings.codec())?;
        for codec in &mut registry.codecs {
            if codec.wire_id() == id
                && let Some(chosen) = &chosen
            {
                *codec = Arc::clone(chosen);
            }
        }
        Ok(registry)
    }

    /// Adds a codec of the program's own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] if its name or number is taken or reserved, or its name
    /// is empty or not in lower case.
    pub fn register(&mut self, codec: Arc<dyn Codec>) -> Result<()> {
        let (name, id) = (codec.name(), codec.wire_id());
        let refused = |message: &str| {
            Err(
                Error::new(ErrorKind::InvalidConfiguration, message.to_owned())
                    .with("codec", name)
                    .with("wire_id", id),
            )
        };
        if name.is_empty() || name.chars().any(char::is_uppercase) {
            return refused("the name of a codec is in lower case and not empty");
        }
        if KNOWN.iter().any(|known| known.name == name) {
            return refused("this name is that of a codec of the library; choose another one");
        }
        if id < FIRST_CUSTOM {
            return refused("wire ids below 128 belong to the library; choose one of 128 to 255");
        }
        for other in &self.codecs {
            if other.name() == name {
                return refused("a codec of this name is registered already");
            }
            if other.wire_id() == id {
                return refused("a codec of this wire id is registered already");
            }
        }
        self.codecs.push(codec);
        Ok(())
    }

    /// The codec of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] that says how to get it.
    pub fn named(&self, name: &str) -> Result<&Arc<dyn Codec>> {
        let found = self.codecs.iter().find(|codec| codec.name() == name);
        found.ok_or_else(|| {
            let known = KNOWN.iter().find(|known| known.name == name);
            self.missing(known, &format!("codec '{name}'"))
        })
    }

    /// The codec whose format has this number on the wire.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] that says how to get it.
    pub fn with_wire_id(&self, wire_id: u8) -> Result<&Arc<dyn Codec>> {
        let found = self.codecs.iter().find(|codec| codec.wire_id() == wire_id);
        found.ok_or_else(|| {
            let known = KNOWN.iter().find(|known| known.wire_id == wire_id);
            self.missing(known, &format!("codec with the wire id {wire_id}"))
        })
    }

    /// The names of all codecs, those of this build first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.codecs.iter().map(|codec| codec.name())
    }

    #[cold]
    fn missing(&self, known: Option<&Known>, what: &str) -> Error {
        let names: Vec<_> = self.names().collect();
        let message = match (known, names.as_slice()) {
            (Some(known), _) => format!(
                "the codec '{}' is not compiled in; enable the Cargo feature {}",
                known.name, known.features
            ),
            (None, []) => format!("there is no {what}; no codec is compiled in or registered"),
            (None, names) => format!(
                "there is no {what}; there is {}. Register it on all processes",
                names.join(", ")
            ),
        };
        Error::new(ErrorKind::Unavailable, message)
    }
}

/// The codec of this crate that is chosen, if it is one and compiled in.
fn made(choice: &CodecChoice) -> Result<Option<Arc<dyn Codec>>> {
    Ok(match choice {
        #[cfg(any(feature = "lz4", feature = "lz4-c"))]
        CodecChoice::Lz4 { acceleration } => Some(Arc::new(crate::Lz4::new(*acceleration)?)),
        #[cfg(feature = "zstd")]
        CodecChoice::Zstd {
            level,
            max_inflight,
        } => Some(Arc::new(crate::Zstd::new(*level, *max_inflight)?)),
        _ => None,
    })
}
