//! How this crate reads the environment.
//!
//! # Contract
//!
//! * A variable that is set to nothing counts as not set: that is how scripts and launchers take
//!   one back.
//! * One that cannot be parsed is an error that names it.

use comm_core::{Error, ErrorKind, Result, parse_byte_size};
use comm_runtime::{Setting, Settings, Source};

const RECEIVE_POOL: &str = "COMM_RECEIVE_POOL_BYTES";

/// A text that says something.
fn set(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

/// A number of bytes.
pub(crate) fn size(text: &str) -> Option<usize> {
    usize::try_from(parse_byte_size(text).ok()?).ok()
}

/// How many bytes the pool of received messages may hold (`COMM_RECEIVE_POOL_BYTES`); added to the
/// table of `settings`.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfiguration`] for what is no number of bytes.
pub(crate) fn receive_pool_bytes(
    lookup: &dyn Fn(&str) -> Option<String>,
    settings: &mut Settings,
) -> Result<usize> {
    let text = set(lookup(RECEIVE_POOL));
    let bytes = match &text {
        None => comm_group::DEFAULT_RECEIVE_POOL_BYTES,
        Some(text) => size(text).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidConfiguration,
                format!("{RECEIVE_POOL}={text} is no number of bytes, such as 64M, or 0"),
            )
        })?,
    };
    settings.note(Setting {
        name: RECEIVE_POOL,
        value: bytes.to_string(),
        source: text.map_or(Source::Default, |_| {
            Source::Environment(RECEIVE_POOL.to_owned())
        }),
    });
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(text: Option<&str>) -> Result<usize> {
        receive_pool_bytes(&|_| text.map(str::to_owned), &mut Settings::default())
    }

    #[test]
    fn sizes_of_the_pool_are_read_with_their_units() {
        assert_eq!(pool(Some("0")).unwrap(), 0);
        assert_eq!(pool(Some("64M")).unwrap(), 64 << 20);
        for text in ["M", "-1", "99999999999G", "much"] {
            let error = pool(Some(text)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.message().contains(RECEIVE_POOL), "{error}");
        }
    }

    #[test]
    fn a_pool_that_is_set_to_nothing_has_the_default_size() {
        let default = comm_group::DEFAULT_RECEIVE_POOL_BYTES;
        assert_eq!(pool(None).unwrap(), default);
        assert_eq!(pool(Some(" ")).unwrap(), default);
    }

    #[test]
    fn the_size_of_the_pool_is_told_with_its_source() {
        let mut settings = Settings::default();
        receive_pool_bytes(&|_| Some("1K".to_owned()), &mut settings).unwrap();
        let [setting] = settings.table() else {
            panic!("one setting was read: {settings:?}");
        };
        assert_eq!(
            (setting.name, setting.value.as_str()),
            (RECEIVE_POOL, "1024")
        );
        assert_eq!(setting.source, Source::Environment(RECEIVE_POOL.to_owned()));
    }
}
