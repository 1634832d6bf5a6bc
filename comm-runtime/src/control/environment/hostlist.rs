//! Slurm's notation for lists of hosts.
//!
//! ```text
//! list    = host *("," host)
//! host    = 1*(text / "[" range *("," range) "]")
//! range   = digits ["-" digits]
//! ```
//!
//! `n[1-2],gpu[007-008]-ib` is `n1`, `n2`, `gpu007-ib`, `gpu008-ib`: numbers keep the width of the
//! first one of their range, several brackets in a host multiply, the last one running fastest.

use comm_core::{Error, ErrorKind, Result};

/// The longest list; what is longer is taken for garbage before memory is spent on it.
const MAX_HOSTS: usize = 1 << 16;

/// The names of all hosts of the list, in its order; at least one.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfiguration`] for a text that is no such list.
pub(super) fn expand(text: &str) -> Result<Vec<String>> {
    let mut hosts = Vec::new();
    for item in split(text.trim()) {
        let of_item = item.and_then(|item| expand_host(item, MAX_HOSTS - hosts.len()));
        hosts.extend(of_item.map_err(|reason| invalid(reason, text))?);
    }
    Ok(hosts)
}

fn invalid(reason: &'static str, text: &str) -> Error {
    let shown: String = text.chars().take(200).collect();
    Error::new(
        ErrorKind::InvalidConfiguration,
        format!("the text is no list of hosts as Slurm writes them: {reason}"),
    )
    .with("value", shown)
}

/// The hosts of a list as they are written: its parts between commas outside of brackets.
fn split(text: &str) -> impl Iterator<Item = Result<&str, &'static str>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let mut inside = false;
        for (at, character) in text.char_indices() {
            match character {
                '[' => inside = true,
                ']' => inside = false,
                ',' if !inside => {
                    rest = Some(&text[at + 1..]);
                    return Some(Ok(&text[..at]));
                }
                _ => {}
            }
        }
        Some(if inside {
            Err("a bracket is not closed")
        } else {
            Ok(text)
        })
    })
}

/// The names that one host of a list stands for, up to `limit` of them.
fn expand_host(item: &str, limit: usize) -> Result<Vec<String>, &'static str> {
    if item.is_empty() {
        return Err("a name is empty");
    }
    if item.contains(char::is_whitespace) {
        return Err("a name has white space in it");
    }
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((text, more)) = rest.split_once('[') {
        let (ranges, behind) = more.split_once(']').ok_or("a bracket is not closed")?;
        if text.contains(']') {
            return Err("a bracket is not opened");
        }
        let mut numbers = Vec::new();
        for range in ranges.split(',') {
            numbers.extend(expand_range(range, limit)?);
            if names.len().saturating_mul(numbers.len()) > limit {
                return Err(TOO_LONG);
            }
        }
        names = names
            .iter()
            .flat_map(|name| {
                let with = |number| format!("{name}{text}{number}");
                numbers.iter().map(with).collect::<Vec<_>>()
            })
            .collect();
        rest = behind;
    }
    if rest.contains(']') {
        return Err("a bracket is not opened");
    }
    if names.len() > limit {
        return Err(TOO_LONG);
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

const TOO_LONG: &str = "it has more than 65536 hosts";

/// The numbers of a range, padded to the width of the first.
fn expand_range(range: &str, limit: usize) -> Result<Vec<String>, &'static str> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let width = first.len();
    let number = |digits: &str| -> Result<u64, &'static str> {
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("a range consists of numbers");
        }
        digits.parse().map_err(|_| "a number is too large")
    };
    let (first, last) = (number(first)?, number(last)?);
    let count = last
        .checked_sub(first)
        .ok_or("a range ends before it begins")?;
    if count >= limit as u64 {
        return Err(TOO_LONG);
    }
    Ok((first..=last)
        .map(|number| format!("{number:0width$}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_notation_is_expanded_in_order() {
        for (text, hosts) in [
            ("n1", &["n1"][..]),
            ("n[1-2]", &["n1", "n2"]),
            ("n[1,3-4,9]", &["n1", "n3", "n4", "n9"]),
            ("n[9-11]", &["n9", "n10", "n11"]),
            ("n[009-011]", &["n009", "n010", "n011"]),
            ("gpu[07-08]-ib", &["gpu07-ib", "gpu08-ib"]),
            (
                "a,b[1-2],c.example.org",
                &["a", "b1", "b2", "c.example.org"],
            ),
            ("r[1-2]n[1-2]", &["r1n1", "r1n2", "r2n1", "r2n2"]),
            ("login-01,n[1]", &["login-01", "n1"]),
            (" n1\n", &["n1"]),
        ] {
            assert_eq!(expand(text).unwrap(), hosts, "{text}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused_and_shown() {
        for text in [
            "",
            ",",
            "a,",
            "n[",
            "n]",
            "n[1",
            "n[]",
            "n[1-]",
            "n[-1]",
            "n[x]",
            "n[3-1]",
            "n]1[",
            "n[1-99999999]",
            "n[1-300]m[1-300]",
            "n[1-99999999999999999999]",
            "a b",
            "n[[1]]",
        ] {
            let error = expand(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{text:?}");
            assert!(error.to_string().contains("Slurm"), "{error}");
        }
    }

    /// A host in brackets: prefix, first number, how many, width, suffix.
    fn group() -> impl Strategy<Value = (String, u64, u64, usize, String)> {
        (
            "[a-z]{1,4}",
            0..500_u64,
            1..20_u64,
            1..5_usize,
            "(-[a-z]{1,3})?",
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_written_list_expands_to_what_was_written(groups in prop::collection::vec(group(), 1..5)) {
            let mut written = Vec::new();
            let mut expected = Vec::new();
            for (prefix, first, count, width, suffix) in groups {
                let last = first + count - 1;
                written.push(format!("{prefix}[{first:0width$}-{last:0width$}]{suffix}"));
                let numbers = first..=last;
                expected.extend(numbers.map(|number| format!("{prefix}{number:0width$}{suffix}")));
            }
            prop_assert_eq!(expand(&written.join(",")).unwrap(), expected);
        }

        #[test]
        fn any_text_is_refused_or_expanded_within_the_limit(text in r"[a\[\],0-9x \-]{0,40}") {
            if let Ok(hosts) = expand(&text) {
                prop_assert!(!hosts.is_empty() && hosts.len() <= MAX_HOSTS);
                prop_assert!(hosts.iter().all(|host| !host.is_empty()));
            }
        }
    }
}
