//! The command line of `commctl launch`.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// More workers than this cannot run on one machine; a typing error can ask for them.
const MAX_WORKERS: i64 = 32_767;

/// Arguments of `commctl launch`.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// How many workers to start.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_WORKERS))]
    pub workers: u32,

    /// Set a variable for every worker; has the last word over those that the launcher sets.
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE")]
    pub variables: Vec<Variable>,

    /// Pass output on without the `[rank] ` in front of each line.
    #[arg(long)]
    pub no_prefix: bool,

    /// Where the workers meet (COMM_RENDEZVOUS); otherwise a free port of 127.0.0.1.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    pub rendezvous: Option<String>,

    /// How long the other workers may go on by themselves after one has failed.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    pub grace: Duration,

    /// Bind each worker to one CPU, or to the CPUs of one NUMA node, in turn.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "cpu")]
    pub pin: Option<Pin>,

    /// The program to start and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "PROGRAM [ARGUMENTS]")]
    pub program: Vec<OsString>,
}

/// What a worker is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Pin {
    /// One of the CPUs that the launcher may use.
    Cpu,
    /// All CPUs of one NUMA node that the launcher may use.
    Numa,
}

/// A variable for the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name; neither empty nor with a `=` in it.
    pub key: String,
    /// The value.
    pub value: String,
}

impl std::str::FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Self {
                key: key.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err("write it as KEY=VALUE".to_owned()),
        }
    }
}

/// Accepts `host:port`, also with a bracketed IPv6 address; the port is not 0.
fn parse_address(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || bare_v6 {
        return Err("write it as HOST:PORT or [IPV6]:PORT".to_owned());
    }
    match port.parse::<u16>() {
        Ok(port) if port != 0 => Ok(text.to_owned()),
        _ => Err("the port is a number from 1 to 65535 that all workers use".to_owned()),
    }
}

/// Accepts seconds with or without a fraction.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "write it as a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Result<Options, String> {
        Line::try_parse_from(std::iter::once("launch").chain(line.split(' ')))
            .map(|line| line.options)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn everything_behind_the_program_belongs_to_it() {
        for line in ["-n 2 -- prog -n 3 --env", "-n 2 prog -n 3 --env"] {
            assert_eq!(parse(line).unwrap().program, ["prog", "-n", "3", "--env"]);
        }
    }

    #[test]
    fn defaults_are_two_seconds_of_grace_and_no_binding() {
        let options = parse("-n 1 -- true").unwrap();
        assert_eq!(options.grace, Duration::from_secs(2));
        assert_eq!(options.pin, None);
        assert!(!options.no_prefix);
    }

    #[test]
    fn pin_means_one_cpu_each_unless_it_says_otherwise() {
        assert_eq!(parse("-n 1 --pin -- true").unwrap().pin, Some(Pin::Cpu));
        assert_eq!(
            parse("-n 1 --pin=numa -- true").unwrap().pin,
            Some(Pin::Numa)
        );
    }

    #[test]
    fn bad_values_are_refused_with_what_to_write() {
        let refused = [
            ("-n 0 -- true", "0 is not in"),
            ("-n 99999 -- true", "99999 is not in"),
            ("-n 2", "PROGRAM"),
            ("-n 2 --env KEY -- true", "KEY=VALUE"),
            ("-n 2 --env =v -- true", "KEY=VALUE"),
            ("-n 2 --rendezvous host -- true", "1 to 65535"),
            ("-n 2 --rendezvous host:0 -- true", "1 to 65535"),
            ("-n 2 --rendezvous :80 -- true", "HOST:PORT"),
            ("-n 2 --rendezvous fe80::1:80 -- true", "[IPV6]:PORT"),
            ("-n 2 --grace -1 -- true", "--grace"),
            ("-n 2 --grace long -- true", "number of seconds"),
        ];
        for (line, wanted) in refused {
            let message = parse(line).unwrap_err();
            assert!(message.contains(wanted), "{line}: {message}");
        }
    }

    #[test]
    fn a_value_may_be_empty_or_hold_more_equal_signs() {
        let options = parse("-n 1 --env A= --env B=c=d -- true").unwrap();
        assert_eq!(
            options.variables[0],
            Variable {
                key: "A".into(),
                value: String::new()
            }
        );
        assert_eq!(
            options.variables[1],
            Variable {
                key: "B".into(),
                value: "c=d".into()
            }
        );
    }
}
