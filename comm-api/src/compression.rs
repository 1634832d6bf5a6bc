//! Compression of messages, as the environment says.
//!
//! # Contract
//!
//! * `COMM_COMPRESSION` names a codec (`lz4` or `zstd`), or says `off`, which is the default;
//!   `COMM_COMPRESSION_MIN_BYTES` is the size from which on tensors are compressed. Everything else
//!   has its default; a program that wants more passes settings to the builder.
//! * A name that is none is an error. Whether the codec is compiled in is found when the worker is
//!   built.

use comm_core::{Error, ErrorKind, Result};
use comm_group::CompressionSettings;
use comm_runtime::{Setting, Settings, Source};

use crate::environment::size;

const COMPRESSION: &str = "COMM_COMPRESSION";
const MIN_BYTES: &str = "COMM_COMPRESSION_MIN_BYTES";

/// What is chosen if nothing is.
const OFF: &str = "off";

/// How messages are compressed; added to the table of `settings`.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfiguration`] that names the variable.
pub(crate) fn compression(
    lookup: &dyn Fn(&str) -> Option<String>,
    settings: &mut Settings,
) -> Result<Option<CompressionSettings>> {
    let set = |name: &str| {
        let text = lookup(name).map(|text| text.trim().to_owned());
        text.filter(|text| !text.is_empty())
    };
    let (codec, min_bytes) = (set(COMPRESSION), set(MIN_BYTES));
    let mut builder = CompressionSettings::builder();
    if let Some(text) = &min_bytes {
        let bytes = size(text).filter(|bytes| *bytes > 0).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidConfiguration,
                format!("{MIN_BYTES}={text} is no number of bytes from 1 on, such as 16K"),
            )
        })?;
        builder = builder.min_bytes(bytes);
    }
    let chosen = match codec.as_deref() {
        None | Some(OFF) => None,
        Some(name @ ("lz4" | "zstd")) => Some(builder.codec(name).build()?),
        Some(name) => {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                format!("{COMPRESSION}={name} is none of off, lz4 and zstd"),
            ));
        }
    };
    let source = |name: &str, is_set| match is_set {
        true => Source::Environment(name.to_owned()),
        false => Source::Default,
    };
    settings.note(Setting {
        name: COMPRESSION,
        value: codec.clone().unwrap_or_else(|| OFF.to_owned()),
        source: source(COMPRESSION, codec.is_some()),
    });
    if let Some(chosen) = &chosen {
        settings.note(Setting {
            name: MIN_BYTES,
            value: chosen.min_bytes().to_string(),
            source: source(MIN_BYTES, min_bytes.is_some()),
        });
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(codec: Option<&str>, bytes: Option<&str>) -> Result<Option<CompressionSettings>> {
        let lookup = |name: &str| {
            let text = if name == COMPRESSION { codec } else { bytes };
            text.map(str::to_owned)
        };
        compression(&lookup, &mut Settings::default())
    }

    #[test]
    fn compression_is_off_unless_a_codec_is_named() {
        for codec in [None, Some(""), Some("off")] {
            assert_eq!(read(codec, Some("1M")).unwrap(), None);
        }
        let settings = read(Some("zstd"), None).unwrap().unwrap();
        assert_eq!(
            (settings.codec().name(), settings.min_bytes()),
            ("zstd", 16384)
        );
        let settings = read(Some(" lz4 "), Some("1M")).unwrap().unwrap();
        assert_eq!(
            (settings.codec().name(), settings.min_bytes()),
            ("lz4", 1 << 20)
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (codec, bytes, name) in [
            (Some("gzip"), None, COMPRESSION),
            (None, Some("much"), MIN_BYTES),
            (Some("lz4"), Some("0"), MIN_BYTES),
        ] {
            let error = read(codec, bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.message().contains(name), "{error}");
        }
    }

    #[test]
    fn what_is_chosen_is_told_with_its_source() {
        let mut settings = Settings::default();
        let lookup = |name: &str| (name == COMPRESSION).then(|| "zstd".to_owned());
        compression(&lookup, &mut settings).unwrap();
        let told: Vec<_> = settings
            .table()
            .iter()
            .map(|setting| (setting.name, setting.value.as_str(), setting.source.clone()))
            .collect();
        let environment = Source::Environment(COMPRESSION.to_owned());
        assert_eq!(
            told,
            [
                (COMPRESSION, "zstd", environment),
                (MIN_BYTES, "16384", Source::Default)
            ]
        );
    }
}
