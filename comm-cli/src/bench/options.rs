//! The command line of `commctl bench`.

use std::path::PathBuf;
use std::time::Duration;

use comm_bench::{Operation, Places, Size, Suite, Sweep};
use comm_core::{DType, Error, ReduceOp, Result};

use super::against::AgainstOptions;
use super::transports::AUTO;
use crate::launch::Pin;

/// More ranks than this cannot run on one machine; a typing error can ask for them.
const MAX_RANKS: i64 = 32_767;
/// The ratio of sizes.
const FACTOR: u64 = 2;
/// The same where several transports are measured one after the other.
const OVERVIEW_FACTOR: u64 = 8;

/// Arguments of `commctl bench`.
///
/// Lists are separated by commas. Sizes are bytes, with K, M or G for powers of 1024.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// What to measure: all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all,
    /// gather, scatter, pingpong, bandwidth, object, object8, tensor, tensor8, init, or all.
    #[arg(long = "op", value_name = "OPERATION,..", value_delimiter = ',')]
    pub operations: Vec<OperationChoice>,

    /// Which transports may connect the ranks, tried in this order: p2p (ranks are then threads of
    /// one process), shm, verbs, net, uds (the example of a transport of one's own), or auto for the
    /// library's choice. [default: auto; without --op and --ranks p2p, shm and net in turn]
    #[arg(long = "transport", value_name = "NAME,..", value_delimiter = ',')]
    pub transports: Vec<String>,

    /// How many ranks to start; several numbers for several jobs. [default: 2, and 4 for all_reduce
    /// without --op]
    #[arg(long, short = 'n', value_name = "N,..", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    pub ranks: Vec<u32>,

    /// The smallest size.
    #[arg(long, short = 'b', value_name = "SIZE", default_value = "8", value_parser = size)]
    pub min_bytes: Size,

    /// The largest size. [default: 64M, or the smallest size if that is larger]
    #[arg(long, short = 'e', value_name = "SIZE", value_parser = size)]
    pub max_bytes: Option<Size>,

    /// The ratio of one size to the one before. [default: 2; 8 without --op, --ranks and
    /// --transport]
    #[arg(long, short = 'f', value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(2..))]
    pub factor: Option<u64>,

    /// Element types: f32, f64, f16, bf16, i8, u8, i32, u32, i64, u64.
    #[arg(
        long,
        value_name = "TYPE,..",
        value_delimiter = ',',
        default_value = "f32"
    )]
    #[arg(value_parser = dtype)]
    pub dtype: Vec<DType>,

    /// Reduction operators: sum, prod, min, max, avg.
    #[arg(
        long,
        value_name = "OPERATOR,..",
        value_delimiter = ',',
        default_value = "sum"
    )]
    #[arg(value_parser = redop)]
    pub redop: Vec<ReduceOp>,

    /// Check the results (the default).
    #[arg(long, overrides_with = "no_check")]
    pub check: bool,

    /// Do not check the results.
    #[arg(long)]
    pub no_check: bool,

    /// Measure collectives in place only.
    #[arg(long, conflicts_with = "out_of_place")]
    pub in_place: bool,

    /// Measure collectives out of place only.
    #[arg(long)]
    pub out_of_place: bool,

    /// Take buffers from mem_alloc, so that the ranks of this machine read each other's directly.
    #[arg(long)]
    pub mem_alloc: bool,

    /// Write the input of collectives before each call and read the result after it, within the measured
    /// time, as programs do: otherwise peers find the input of earlier calls in their caches.
    #[arg(long, conflicts_with = "against")]
    pub fresh: bool,

    /// Write one JSON object per line and row to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// How long to measure each size in each place. [default: 0.2, less if the whole would take
    /// more than a minute]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub time: Option<Duration>,

    /// Bind each worker to one CPU (the default if there are as many), or to the CPUs of one NUMA
    /// node, in turn.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "cpu")]
    #[arg(overrides_with = "no_pin")]
    pub pin: Option<Pin>,

    /// Leave it to the kernel where workers run.
    #[arg(long, overrides_with = "pin")]
    pub no_pin: bool,

    /// Other systems to compare with.
    #[command(flatten)]
    pub against: AgainstOptions,
}

/// What `--op` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationChoice {
    /// Every operation that the number of ranks allows.
    All,
    /// This one.
    One(Operation),
}

impl std::str::FromStr for OperationChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "all" => Ok(Self::All),
            name => name
                .parse()
                .map(Self::One)
                .map_err(|error: Error| error.message().to_owned()),
        }
    }
}

impl Options {
    /// The names of the transports to use; empty for the library's choice.
    pub(super) fn transports(&self) -> Vec<String> {
        match self.transports.as_slice() {
            [only] if only == AUTO => Vec::new(),
            names => names.to_vec(),
        }
    }

    /// Whether nothing is said about what to measure over what: an overview is wanted.
    pub(super) const fn is_overview(&self) -> bool {
        self.operations.is_empty() && self.ranks.is_empty() && self.transports.is_empty()
    }

    /// What the workers of a job of so many ranks are bound to, on a machine with so many CPUs.
    ///
    /// Ranks that do not share CPUs are bound unless the user says otherwise: the kernel likes to
    /// run two processes that wake each other on one CPU, and then measures itself.
    pub(super) fn pin(&self, ranks: u32, cpus: usize) -> Option<Pin> {
        let by_default = (!self.no_pin && ranks as usize <= cpus).then_some(Pin::Cpu);
        self.pin.or(by_default)
    }

    /// The measurements of a job of so many ranks.
    pub(super) fn suite(&self, operations: Vec<Operation>) -> Suite {
        let factor = if self.is_overview() {
            OVERVIEW_FACTOR
        } else {
            FACTOR
        };
        let max = self
            .max_bytes
            .unwrap_or_else(|| self.min_bytes.max(Size(64 << 20)));
        Suite {
            operations,
            sizes: Sweep {
                min: self.min_bytes,
                max,
                factor: self.factor.unwrap_or(factor),
            },
            dtypes: self.dtype.clone(),
            redops: self.redop.clone(),
            places: match (self.in_place, self.out_of_place) {
                (true, _) => Places::InPlace,
                (_, true) => Places::OutOfPlace,
                _ => Places::Both,
            },
            mem_alloc: self.mem_alloc,
            fresh: self.fresh,
            check: !self.no_check,
            time: self.time.unwrap_or_else(|| Suite::default().time),
        }
    }
}

fn size(text: &str) -> Result<Size, String> {
    text.parse()
        .map_err(|error: Error| error.message().to_owned())
}

fn dtype(text: &str) -> Result<DType, String> {
    text.parse()
        .map_err(|error: Error| error.message().to_owned())
}

fn redop(text: &str) -> Result<ReduceOp, String> {
    text.parse()
        .map_err(|error: Error| error.message().to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "write it as a number of seconds such as 0.5".to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    pub(in crate::bench) fn parse(line: &str) -> Result<Options, String> {
        Line::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()))
            .map(|line| line.options)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_given_is_the_librarys_default() {
        let options = parse("--transport auto").unwrap();
        assert_eq!(options.suite(Operation::ALL.to_vec()), Suite::default());
        assert_eq!(options.transports(), [""; 0]);
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let options = parse("--op all_reduce,init --dtype bf16,u8 --redop max,avg -n 2,8").unwrap();
        assert_eq!(options.operations.len(), 2);
        assert_eq!(options.dtype, [DType::Bf16, DType::U8]);
        assert_eq!(options.redop, [ReduceOp::Max, ReduceOp::Avg]);
        assert_eq!(options.ranks, [2, 8]);
    }

    #[test]
    fn sizes_take_suffixes_and_the_largest_follows_the_smallest() {
        let sizes = |line| parse(line).unwrap().suite(vec![]).sizes;
        let sweep = sizes("--min-bytes 4K --max-bytes 2M --factor 8");
        assert_eq!(
            (sweep.min, sweep.max, sweep.factor),
            (Size(4096), Size(2 << 20), 8)
        );
        assert_eq!(sizes("--min-bytes 1G").max, Size(1 << 30));
    }

    #[test]
    fn the_last_word_on_checking_counts() {
        assert!(parse("").unwrap().suite(vec![]).check);
        assert!(!parse("--no-check").unwrap().suite(vec![]).check);
        assert!(!parse("--check --no-check").unwrap().suite(vec![]).check);
        assert!(parse("--no-check --check").unwrap().suite(vec![]).check);
    }

    #[test]
    fn buffers_are_plain_unless_asked_for() {
        assert!(!parse("").unwrap().suite(vec![]).mem_alloc);
        assert!(parse("--mem-alloc").unwrap().suite(vec![]).mem_alloc);
    }

    #[test]
    fn inputs_stay_as_they_are_unless_asked_for_and_are_those_of_one_system() {
        assert!(!parse("").unwrap().suite(vec![]).fresh);
        assert!(parse("--fresh").unwrap().suite(vec![]).fresh);
        assert!(parse("--fresh --against openmpi").is_err());
    }

    #[test]
    fn one_place_excludes_the_other() {
        assert_eq!(
            parse("--in-place").unwrap().suite(vec![]).places,
            Places::InPlace
        );
        assert_eq!(
            parse("--out-of-place").unwrap().suite(vec![]).places,
            Places::OutOfPlace
        );
        assert!(parse("--in-place --out-of-place").is_err());
    }

    #[test]
    fn ranks_are_bound_if_each_can_have_a_cpu() {
        let pin = |line, ranks| parse(line).unwrap().pin(ranks, 2);
        assert_eq!((pin("", 2), pin("", 3)), (Some(Pin::Cpu), None));
        assert_eq!(
            (pin("--no-pin", 2), pin("--pin=numa", 3)),
            (None, Some(Pin::Numa))
        );
        assert_eq!(pin("--pin --no-pin", 2), None);
    }

    #[test]
    fn bad_values_are_refused_with_what_to_write() {
        for (line, wanted) in [
            (
                "--op allreduce",
                "all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, gather, \
                 scatter, pingpong, bandwidth, object, object8, tensor, tensor8, init or all",
            ),
            ("--ranks 0", "0 is not in"),
            ("--ranks two", "invalid"),
            ("--min-bytes many", "64K"),
            ("--factor 1", "1 is not in"),
            ("--dtype float", "f32"),
            ("--redop plus", "sum, prod"),
            ("--time soon", "number of seconds"),
        ] {
            let message = parse(line).unwrap_err();
            assert!(message.contains(wanted), "{line}: {message}");
        }
    }

    #[test]
    fn without_arguments_sizes_are_few_but_reach_as_far() {
        let factor = |line| parse(line).unwrap().suite(vec![]).sizes.factor;
        assert_eq!((factor(""), factor("--min-bytes 1K")), (8, 8));
        assert_eq!((factor("--op init"), factor("--transport auto")), (2, 2));
        assert_eq!((factor("-n 3"), factor("--factor 4")), (2, 4));
    }
}
