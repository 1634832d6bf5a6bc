//! How numbers of bytes are written in variables and options.

use crate::{Error, ErrorKind, Result};

/// The ends of a size, a longer one before each that it ends with itself.
const UNITS: [(&str, u64); 10] = [
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("KB", 1 << 10),
    ("MB", 1 << 20),
    ("GB", 1 << 30),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("B", 1),
];

/// Reads a number of bytes as every variable and option of this library takes it: a plain number, or
/// one with `K`, `M` or `G` for powers of 1024, in either case, with or without `B` or `iB`.
///
/// ```
/// use comm_core::parse_byte_size;
///
/// assert_eq!(parse_byte_size("512")?, 512);
/// assert_eq!(parse_byte_size("64K")?, parse_byte_size("64 KiB")?);
/// assert!(parse_byte_size("1.5M").is_err());
/// # Ok::<(), comm_core::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::InvalidConfiguration`] for any other text and for more bytes than `u64` counts.
pub fn parse_byte_size(text: &str) -> Result<u64> {
    let upper = text.trim().to_ascii_uppercase();
    let (digits, factor) = UNITS
        .into_iter()
        .find_map(|(unit, factor)| Some((upper.strip_suffix(unit)?, factor)))
        .unwrap_or((&upper, 1));
    let digits = digits.trim_end();
    Some(digits)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse::<u64>().ok()?.checked_mul(factor))
        .ok_or_else(|| {
            let message = "not a number of bytes; write it as 512, 64K, 8M or 1G";
            Error::new(ErrorKind::InvalidConfiguration, message).with("value", text)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            (" 512B ", 512),
            ("4K", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4 kib", 4096),
            ("64M", 64 << 20),
            ("64MB", 64 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(parse_byte_size(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_and_named() {
        for text in [
            "",
            "K",
            "B",
            "iB",
            "8iB",
            "-1",
            "+1",
            "1.5M",
            "1T",
            "much",
            "4KK",
            "4K B",
            "99999999999G",
        ] {
            let error = parse_byte_size(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{text:?}");
            assert!(error.to_string().contains("64K"), "{error}");
        }
    }
}
