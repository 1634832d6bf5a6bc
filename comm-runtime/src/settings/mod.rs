//! Settings of a communicator: where each value comes from.
//!
//! # Contract
//!
//! * A value set on the builder wins over `COMM_*` variables, these over the `NCCL_*` variable of
//!   the same meaning, that over the default.
//! * A variable that is set but cannot be parsed is an error, never ignored; one that is set to
//!   nothing counts as not set.
//! * [`Settings::table`] tells every effective value and its source; `explain()` prints it.

mod parse;
mod variable;

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use comm_core::Result;

use self::parse::{
    algorithms, bytes, channels, names, number, printed, seconds, seconds_or_none, step_bytes,
    step_bytes_of_buffer,
};
use crate::plan::PlanConfig;

pub use self::variable::variable;

/// How many channels there may be.
pub(crate) const CHANNELS: RangeInclusive<u32> = 1..=64;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Nothing set it.
    Default,
    /// An environment variable.
    Environment(String),
    /// The program.
    Builder,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Environment(name) => f.write_str(name),
            Self::Builder => f.write_str("builder"),
        }
    }
}

/// One effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name of the setting: its `COMM_*` variable.
    pub name: &'static str,
    /// The value as text.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
}

/// The settings of a communicator.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Sizes and limits that steer planning.
    pub plan: PlanConfig,
    /// How long an edge may take to connect.
    pub connect_timeout: Duration,
    /// How long one operation may take; `None` for any time.
    pub operation_timeout: Option<Duration>,
    /// Bytes of frames to one peer that may be on their way without acknowledgement; one frame may
    /// always be.
    pub frame_window_bytes: usize,
    /// Transports that may be used, in this order; empty means all that are registered.
    pub transports: Vec<String>,
    /// Sentences about the environment that a reader of [`explain`] should see.
    ///
    /// [`explain`]: crate::Communicator::explain
    pub notes: Vec<String>,
    table: Vec<Setting>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            plan: PlanConfig::default(),
            connect_timeout: Duration::from_secs(30),
            operation_timeout: Some(Duration::from_secs(1800)),
            frame_window_bytes: 32 << 20,
            transports: Vec::new(),
            notes: Vec::new(),
            table: Vec::new(),
        }
    }
}

impl Settings {
    /// The settings of the process's environment.
    ///
    /// # Errors
    ///
    /// [`InvalidConfiguration`](comm_core::ErrorKind) for a variable that cannot be parsed.
    pub fn from_env() -> Result<Self> {
        Self::from_lookup(variable)
    }

    /// The settings that `lookup` yields by variable name.
    ///
    /// # Errors
    ///
    /// As for [`Settings::from_env`].
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut settings = Self::default();
        let mut reader = Reader {
            lookup: &lookup,
            table: Vec::new(),
        };
        let plan = &mut settings.plan;
        reader.read(
            "COMM_STEP_BYTES",
            &mut plan.step_bytes,
            step_bytes,
            ToString::to_string,
        )?;
        if reader
            .table
            .last()
            .is_some_and(|setting| setting.source == Source::Default)
        {
            reader.table.pop();
            reader.read_as(
                "COMM_STEP_BYTES",
                "NCCL_BUFFSIZE",
                &mut plan.step_bytes,
                step_bytes_of_buffer,
            )?;
        }
        reader.read(
            "COMM_CHANNELS",
            &mut plan.channels,
            channels,
            ToString::to_string,
        )?;
        reader.read(
            "COMM_TREE_RANKS",
            &mut plan.tree_ranks,
            number,
            ToString::to_string,
        )?;
        for (name, value) in [
            ("COMM_ONE_SHOT_BYTES", &mut plan.one_shot_bytes),
            ("COMM_TREE_BYTES", &mut plan.tree_bytes),
            ("COMM_TREE_CHUNK_BYTES", &mut plan.tree_chunk_bytes),
        ] {
            reader.read(name, value, bytes, ToString::to_string)?;
        }
        reader.read("COMM_ALGO", &mut plan.algorithms, algorithms, |list| {
            printed(list.iter().map(|algorithm| algorithm.as_str()))
        })?;
        reader.read("COMM_TRANSPORTS", &mut settings.transports, names, |list| {
            printed(list.iter().map(String::as_str))
        })?;
        reader.read(
            "COMM_CONNECT_TIMEOUT_SECONDS",
            &mut settings.connect_timeout,
            seconds,
            |time| time.as_secs_f64().to_string(),
        )?;
        reader.read(
            "COMM_OPERATION_TIMEOUT_SECONDS",
            &mut settings.operation_timeout,
            seconds_or_none,
            |time| time.map_or("none".to_owned(), |time| time.as_secs_f64().to_string()),
        )?;
        reader.read(
            "COMM_FRAME_WINDOW_BYTES",
            &mut settings.frame_window_bytes,
            bytes,
            ToString::to_string,
        )?;
        settings.table = reader.table;
        Ok(settings)
    }

    /// Every effective value and its source.
    #[must_use]
    pub fn table(&self) -> &[Setting] {
        &self.table
    }

    /// Adds a value of another part of the library to the table.
    pub fn note(&mut self, setting: Setting) {
        self.table.retain(|known| known.name != setting.name);
        self.table.push(setting);
    }

    /// Records that the program set a value.
    pub(crate) fn note_builder(&mut self, name: &'static str, value: String) {
        self.note(Setting {
            name,
            value,
            source: Source::Builder,
        });
    }
}

struct Reader<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    table: Vec<Setting>,
}

impl Reader<'_> {
    /// A variable's text. An empty one says nothing, as if the variable were not set: that is how
    /// scripts and launchers take one back.
    fn text_of(&self, variable: &str) -> Option<String> {
        (self.lookup)(variable).filter(|text| !text.trim().is_empty())
    }

    /// Reads a variable, or its NCCL namesake where there is one.
    fn read<T>(
        &mut self,
        name: &'static str,
        value: &mut T,
        parse: impl Fn(&str) -> Result<T>,
        print: impl Fn(&T) -> String,
    ) -> Result<()> {
        let fallback = match name {
            "COMM_ALGO" => Some("NCCL_ALGO"),
            _ => None,
        };
        let mut source = Source::Default;
        for variable in std::iter::once(name).chain(fallback) {
            if let Some(text) = self.text_of(variable) {
                *value = parse(text.trim()).map_err(|error| error.with("variable", variable))?;
                source = Source::Environment(variable.to_owned());
                break;
            }
        }
        self.table.push(Setting {
            name,
            value: print(value),
            source,
        });
        Ok(())
    }

    /// Reads a variable whose NCCL namesake counts in another unit.
    fn read_as(
        &mut self,
        name: &'static str,
        variable: &str,
        value: &mut usize,
        parse: impl Fn(&str) -> Result<usize>,
    ) -> Result<()> {
        let mut source = Source::Default;
        if let Some(text) = self.text_of(variable) {
            *value = parse(text.trim()).map_err(|error| error.with("variable", variable))?;
            source = Source::Environment(variable.to_owned());
        }
        self.table.push(Setting {
            name,
            value: value.to_string(),
            source,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use comm_core::{Algorithm, ErrorKind};

    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Settings> {
        Settings::from_lookup(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    fn source(settings: &Settings, name: &str) -> Source {
        settings
            .table()
            .iter()
            .find(|setting| setting.name == name)
            .unwrap()
            .source
            .clone()
    }

    #[test]
    fn our_variable_wins_over_nccls_and_that_over_the_default() {
        let settings = with(&[("COMM_STEP_BYTES", "128K"), ("NCCL_BUFFSIZE", "4194304")]).unwrap();
        assert_eq!(settings.plan.step_bytes, 128 << 10);
        let settings = with(&[("NCCL_BUFFSIZE", "4194304")]).unwrap();
        assert_eq!(settings.plan.step_bytes, 512 << 10);
        assert_eq!(
            source(&settings, "COMM_STEP_BYTES"),
            Source::Environment("NCCL_BUFFSIZE".to_owned())
        );
        let settings = with(&[]).unwrap();
        assert_eq!(settings.plan, PlanConfig::default());
        assert_eq!(source(&settings, "COMM_STEP_BYTES"), Source::Default);
    }

    #[test]
    fn a_value_that_cannot_be_parsed_names_its_variable() {
        for (name, value) in [
            ("COMM_STEP_BYTES", "many"),
            ("COMM_STEP_BYTES", "100"),
            ("COMM_STEP_BYTES", "0"),
            ("COMM_STEP_BYTES", "2G"),
            ("NCCL_BUFFSIZE", "0"),
            ("COMM_CHANNELS", "0"),
            ("COMM_ALGO", "spiral"),
            ("COMM_TREE_RANKS", "all"),
            ("COMM_OPERATION_TIMEOUT_SECONDS", "-1"),
            ("COMM_OPERATION_TIMEOUT_SECONDS", "0"),
            ("COMM_CONNECT_TIMEOUT_SECONDS", "1e12"),
        ] {
            let error = with(&[(name, value)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn algorithms_can_be_listed_or_excluded() {
        let settings = with(&[("NCCL_ALGO", "ring, Tree")]).unwrap();
        assert_eq!(
            settings.plan.algorithms,
            [Algorithm::Ring, Algorithm::DoubleTree]
        );
        let settings = with(&[("COMM_ALGO", "^one_shot")]).unwrap();
        assert!(!settings.plan.algorithms.contains(&Algorithm::OneShot));
        assert!(settings.plan.algorithms.contains(&Algorithm::Ring));
    }

    #[test]
    fn a_variable_that_is_set_to_nothing_counts_as_not_set() {
        for name in [
            "COMM_ALGO",
            "COMM_TRANSPORTS",
            "COMM_STEP_BYTES",
            "COMM_CHANNELS",
        ] {
            let settings = with(&[(name, " ")]).unwrap();
            assert_eq!(settings.plan, PlanConfig::default(), "{name}");
            assert_eq!(source(&settings, name), Source::Default, "{name}");
        }
        let settings = with(&[("COMM_ALGO", ""), ("NCCL_ALGO", "ring")]).unwrap();
        assert_eq!(settings.plan.algorithms, [Algorithm::Ring]);
        let table = with(&[]).unwrap();
        let algorithms = table.table().iter().find(|one| one.name == "COMM_ALGO");
        assert_eq!(algorithms.unwrap().value, "all");
    }

    #[test]
    fn a_timeout_can_be_switched_off() {
        let settings = with(&[("COMM_OPERATION_TIMEOUT_SECONDS", "none")]).unwrap();
        assert_eq!(settings.operation_timeout, None);
    }
}
