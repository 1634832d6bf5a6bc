//! The variables of this process.

/// The text of a variable of this process.
///
/// One that is set to nothing counts as not set: that is how scripts and launchers take one back.
/// Bytes that are no text become U+FFFD, so that what reads the variable refuses it by its name
/// instead of taking it for one that is not set.
#[must_use]
pub fn variable(name: &str) -> Option<String> {
    let text = std::env::var_os(name)?.to_string_lossy().into_owned();
    Some(text).filter(|text| !text.trim().is_empty())
}
