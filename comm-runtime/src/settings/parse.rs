//! How the text of a variable becomes a value, and a list text again.

use std::str::FromStr;
use std::time::Duration;

use comm_core::fifo::FifoLayout;
use comm_core::{Algorithm, Error, ErrorKind, Result, parse_byte_size};

use super::CHANNELS;
use crate::control::LONGEST_WAIT;

fn bad(what: &'static str, text: &str) -> Error {
    Error::new(ErrorKind::InvalidConfiguration, what).with("value", text)
}

pub(super) fn number<T: FromStr>(text: &str) -> Result<T> {
    text.parse()
        .map_err(|_| bad("the value must be a number", text))
}

/// A size in bytes.
pub(super) fn bytes(text: &str) -> Result<usize> {
    let bytes = parse_byte_size(text)?;
    usize::try_from(bytes).map_err(|_| bad("the size is too large", text))
}

/// The capacity of a step: what an edge can be set up with.
pub(super) fn step_bytes(text: &str) -> Result<usize> {
    valid_step(bytes(text)?, text)
}

/// The capacity of a step from the size of NCCL's buffer, which holds eight.
pub(super) fn step_bytes_of_buffer(text: &str) -> Result<usize> {
    valid_step((bytes(text)? / 8).next_multiple_of(64), text)
}

fn valid_step(step_bytes: usize, text: &str) -> Result<usize> {
    match FifoLayout::new(step_bytes) {
        Ok(_) => Ok(step_bytes),
        Err(_) => Err(bad(
            "a step is a multiple of 64 bytes, from 64 bytes to 1 GiB",
            text,
        )),
    }
}

pub(super) fn channels(text: &str) -> Result<u32> {
    let channels: u32 = number(text)?;
    if CHANNELS.contains(&channels) {
        Ok(channels)
    } else {
        Err(bad("the number of channels must be from 1 to 64", text))
    }
}

/// A time, or `none` for no limit.
pub(super) fn seconds_or_none(text: &str) -> Result<Option<Duration>> {
    if text == "none" {
        return Ok(None);
    }
    seconds(text).map(Some).map_err(|_| {
        bad(
            "the value must be a positive number of seconds, up to a year, or `none` for no limit",
            text,
        )
    })
}

pub(super) fn seconds(text: &str) -> Result<Duration> {
    let seconds: f64 = number(text)?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero() && *time <= LONGEST_WAIT)
        .ok_or_else(|| {
            bad(
                "the value must be a positive number of seconds, up to a year",
                text,
            )
        })
}

pub(super) fn names(text: &str) -> Result<Vec<String>> {
    Ok(list(text).map(str::to_ascii_lowercase).collect())
}

/// A list such as `ring,one_shot`, or `^ring` for all but the ring.
pub(super) fn algorithms(text: &str) -> Result<Vec<Algorithm>> {
    let (exclude, rest) = match text.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let named: Vec<Algorithm> = list(rest)
        .map(|name| match name.to_ascii_lowercase().as_str() {
            // NCCL's name for it.
            "tree" => Ok(Algorithm::DoubleTree),
            name => name.parse(),
        })
        .collect::<Result<_>>()
        .map_err(|error| bad("the list names an unknown algorithm", text).with_source(error))?;
    if !exclude {
        return Ok(named);
    }
    Ok(Algorithm::ALL
        .into_iter()
        .filter(|algorithm| !named.contains(algorithm))
        .collect())
}

/// The elements of a list that restricts a choice; an empty one allows everything.
pub(super) fn printed<'a>(list: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = list.collect();
    if names.is_empty() {
        "all".to_owned()
    } else {
        names.join(",")
    }
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
}
