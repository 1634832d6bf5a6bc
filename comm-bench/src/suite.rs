//! What is measured: a plain value that is the same on all ranks and travels as JSON.

use std::time::Duration;

use comm_api::{DType, Error, ErrorKind, ReduceOp, Result};
use serde::{Deserialize, Serialize};

use crate::operation::{Case, Operation, init};
use crate::size::{Size, Sweep};

/// Where a collective puts its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Places {
    /// Into a second buffer, and into its input.
    #[default]
    Both,
    /// Into a second buffer.
    OutOfPlace,
    /// Into its input.
    InPlace,
}

/// The measurements of one job.
///
/// Every operation is measured with every element type, those that reduce with every operator, at
/// every size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// What is measured, in this order.
    pub operations: Vec<Operation>,
    /// At which sizes.
    pub sizes: Sweep,
    /// With which element types.
    pub dtypes: Vec<DType>,
    /// With which operators; not used by operations that do not reduce.
    pub redops: Vec<ReduceOp>,
    /// In which places; not used by operations that are no collectives.
    pub places: Places,
    /// Whether buffers come from `Communicator::mem_alloc`, so that
    /// the ranks of one host read them directly.
    #[serde(default)]
    pub mem_alloc: bool,
    /// Whether every rank writes its input before each call of a collective and reads the result after it,
    /// within the measured time: otherwise a peer finds the input of earlier calls in its own cache.
    #[serde(default)]
    pub fresh: bool,
    /// Whether results are checked.
    pub check: bool,
    /// How long one size in one place is measured, roughly.
    pub time: Duration,
}

impl Default for Suite {
    /// Everything, from 8 bytes to 64 MiB in powers of two, as checked sums of f32.
    fn default() -> Self {
        Self {
            operations: Operation::ALL.to_vec(),
            sizes: Sweep {
                min: Size(8),
                max: Size(64 << 20),
                factor: 2,
            },
            dtypes: vec![DType::F32],
            redops: vec![ReduceOp::Sum],
            places: Places::Both,
            mem_alloc: false,
            fresh: false,
            check: true,
            time: Duration::from_millis(200),
        }
    }
}

/// One operation with one element type and operator: one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// What is measured.
    pub operation: Operation,
    /// The element type.
    pub dtype: DType,
    /// The operator, for operations that reduce.
    pub redop: Option<ReduceOp>,
}

impl Suite {
    /// Whether a job of `ranks` ranks can measure all of this.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] that says what does not fit.
    pub fn validate(&self, ranks: u32) -> Result<()> {
        self.sizes.validate()?;
        for (what, empty) in [
            ("operation", self.operations.is_empty()),
            ("element type", self.dtypes.is_empty()),
            ("reduction operator", self.redops.is_empty()),
        ] {
            if empty {
                let message = format!("there is nothing to measure without any {what}");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        for operation in &self.operations {
            if ranks < operation.least_ranks() {
                let message = format!(
                    "{operation} needs at least {} ranks",
                    operation.least_ranks()
                );
                return Err(Error::new(ErrorKind::InvalidArgument, message).with("ranks", ranks));
            }
        }
        for dtype in &self.dtypes {
            if !dtype.is_reducible() {
                let message = "the benchmark measures element types that can be reduced; use one \
                               of f32, f64, f16, bf16, i8, u8, i32, u32, i64, u64";
                return Err(Error::new(ErrorKind::InvalidArgument, message).with("dtype", dtype));
            }
        }
        Ok(())
    }

    /// The tables, in order.
    #[must_use]
    pub fn series(&self) -> Vec<Series> {
        let mut all = Vec::new();
        for &operation in &self.operations {
            if operation == Operation::Init {
                all.push(Series {
                    operation,
                    dtype: init::dtype(),
                    redop: Some(init::OP),
                });
                continue;
            }
            let redops: Vec<_> = match operation.reduces() {
                true => self.redops.iter().copied().map(Some).collect(),
                false => vec![None],
            };
            for &dtype in &self.dtypes {
                all.extend(redops.iter().map(|&redop| Series {
                    operation,
                    dtype,
                    redop,
                }));
            }
        }
        all
    }

    /// The lines of a table, each with its cases.
    pub(crate) fn cases(&self, series: Series) -> Vec<Vec<Case>> {
        if series.operation == Operation::Init {
            return vec![vec![Case {
                count: 2,
                in_place: true,
            }]];
        }
        let places: &[bool] = match self.places {
            _ if !series.operation.is_collective() => &[false],
            Places::Both => &[false, true],
            Places::OutOfPlace => &[false],
            Places::InPlace => &[true],
        };
        let counts = self.sizes.counts(series.dtype.size_bytes());
        let line = |count| {
            places
                .iter()
                .map(|&in_place| Case { count, in_place })
                .collect()
        };
        counts.into_iter().map(line).collect()
    }

    /// How many sizes in how many places are measured, each for [`Suite::time`].
    #[must_use]
    pub fn measurement_count(&self) -> usize {
        let series = self.series().into_iter();
        series
            .flat_map(|series| self.cases(series))
            .map(|line| line.len())
            .sum()
    }

    /// The memory for the buffers of one rank.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        self.sizes.max.0.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_covers_every_operation_up_to_64_mib() {
        let suite = Suite::default();
        suite.validate(2).unwrap();
        let operations: Vec<_> = suite
            .series()
            .iter()
            .map(|series| series.operation)
            .collect();
        assert_eq!(operations, Operation::ALL);
        let lines = suite.cases(suite.series()[0]);
        assert_eq!(lines.len(), 24);
        assert_eq!(
            lines[0],
            [
                Case {
                    count: 2,
                    in_place: false
                },
                Case {
                    count: 2,
                    in_place: true
                }
            ]
        );
        assert_eq!(lines[23][0].count, 16 << 20);
    }

    #[test]
    fn measurements_are_counted_over_sizes_and_places() {
        let operations = vec![Operation::AllReduce, Operation::Pingpong, Operation::Init];
        let suite = Suite {
            operations,
            ..Suite::default()
        };
        assert_eq!(suite.measurement_count(), 24 * 2 + 24 + 1);
    }

    #[test]
    fn operators_multiply_only_what_reduces() {
        let suite = Suite {
            operations: vec![Operation::AllReduce, Operation::Broadcast],
            dtypes: vec![DType::F32, DType::I8],
            redops: ReduceOp::ALL.to_vec(),
            ..Suite::default()
        };
        assert_eq!(suite.series().len(), 2 * 5 + 2);
    }

    #[test]
    fn messages_have_one_place() {
        let suite = Suite {
            places: Places::InPlace,
            ..Suite::default()
        };
        for series in suite.series() {
            let cases = &suite.cases(series)[0];
            assert_eq!(cases.len(), 1);
            let expected = series.operation.is_collective() || series.operation == Operation::Init;
            assert_eq!(cases[0].in_place, expected, "{series:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let suite = Suite::default();
        let error = suite.validate(1).unwrap_err().to_string();
        assert!(error.contains("pingpong needs at least 2 ranks"), "{error}");
        let suite = Suite {
            dtypes: vec![DType::Bool],
            ..suite
        };
        assert!(
            suite
                .validate(2)
                .unwrap_err()
                .to_string()
                .contains("dtype=bool")
        );
        let suite = Suite {
            dtypes: vec![],
            ..suite
        };
        assert!(
            suite
                .validate(2)
                .unwrap_err()
                .to_string()
                .contains("element type")
        );
    }

    #[test]
    fn a_suite_survives_the_way_to_the_workers() {
        let suite = Suite::default();
        let json = serde_json::to_string(&suite).unwrap();
        assert_eq!(serde_json::from_str::<Suite>(&json).unwrap(), suite);
    }
}
