//! One measured row and its JSON form.

use comm_api::{DType, ReduceOp};
use serde::{Deserialize, Serialize};

use crate::operation::Operation;
use crate::statistics::TimeUs;

/// One operation at one size: a line of the table, an object in the JSON file.
///
/// Bandwidths are in GB/s, that is 10^9 *bytes* per second, as in nccl-tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Row {
    /// What was measured.
    pub op: Operation,
    /// The transports that carried it, such as `shm` or `net+shm`.
    pub transport: String,
    /// The number of ranks.
    pub ranks: u32,
    /// The size of one rank's buffer; of the larger one where input and output differ.
    pub bytes: u64,
    /// The element type.
    #[serde(with = "by_name")]
    pub dtype: DType,
    /// The reduction operator; `null` for operations that do not reduce.
    #[serde(with = "by_name::option")]
    pub redop: Option<ReduceOp>,
    /// Whether input and output were one buffer.
    pub in_place: bool,
    /// The time of one call.
    pub time_us: TimeUs,
    /// Size divided by the median time; 0 for `init`.
    pub algbw_gbps: f64,
    /// What the slowest link carried, see [`Operation::bus_factor`].
    pub busbw_gbps: f64,
    /// Wrong elements of all ranks; `null` if the results were not checked.
    pub wrong: Option<u64>,
    /// The algorithm that the library chose.
    pub algorithm: String,
    /// The number of channels over which it spread the work.
    pub channels: usize,
}

impl Row {
    /// Both bandwidths for an operation of `bytes` bytes that takes `us` microseconds.
    pub(crate) fn bandwidths(op: Operation, ranks: u32, bytes: u64, us: f64) -> (f64, f64) {
        if us <= 0.0 || op == Operation::Init {
            return (0.0, 0.0);
        }
        let rounded = |gbps: f64| (gbps * 1e4).round() / 1e4;
        let algbw = bytes as f64 / us / 1e3;
        (rounded(algbw), rounded(algbw * op.bus_factor(ranks)))
    }
}

/// Writes values by their printed names.
mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }

    pub(super) mod option {
        use super::{Deserialize, Deserializer, Display, Error, FromStr, Serializer};

        pub(in super::super) fn serialize<T: Display, S: Serializer>(
            value: &Option<T>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match value {
                Some(value) => serializer.collect_str(value),
                None => serializer.serialize_none(),
            }
        }

        pub(in super::super) fn deserialize<'de, T, D>(
            deserializer: D,
        ) -> Result<Option<T>, D::Error>
        where
            T: FromStr<Err: Display>,
            D: Deserializer<'de>,
        {
            let name = Option::<String>::deserialize(deserializer)?;
            name.map(|name| name.parse().map_err(D::Error::custom))
                .transpose()
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(in_place: bool) -> Row {
        Row {
            op: Operation::AllReduce,
            transport: "shm".to_owned(),
            ranks: 4,
            bytes: 1 << 20,
            dtype: DType::Bf16,
            redop: Some(ReduceOp::Avg),
            in_place,
            time_us: TimeUs {
                p50: 250.0,
                p99: 312.5,
                min: 240.25,
            },
            algbw_gbps: 4.1943,
            busbw_gbps: 6.2915,
            wrong: Some(0),
            algorithm: "ring".to_owned(),
            channels: 2,
        }
    }

    #[test]
    fn the_json_object_has_these_fields_and_no_others() {
        let json = serde_json::to_string(&row(false)).unwrap();
        let wanted = concat!(
            r#"{"op":"all_reduce","transport":"shm","ranks":4,"bytes":1048576,"dtype":"bf16","#,
            r#""redop":"avg","in_place":false,"time_us":{"p50":250.0,"p99":312.5,"min":240.25},"#,
            r#""algbw_gbps":4.1943,"busbw_gbps":6.2915,"wrong":0,"algorithm":"ring","channels":2}"#,
        );
        assert_eq!(json, wanted);
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row(false));
    }

    #[test]
    fn what_does_not_apply_is_null() {
        let unchecked = Row {
            op: Operation::Broadcast,
            redop: None,
            wrong: None,
            ..row(true)
        };
        let json = serde_json::to_string(&unchecked).unwrap();
        assert!(
            json.contains(r#""redop":null"#) && json.contains(r#""wrong":null"#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), unchecked);
    }

    #[test]
    fn bandwidths_are_in_gigabytes_per_second() {
        assert_eq!(
            Row::bandwidths(Operation::Pingpong, 2, 1_000_000, 100.0),
            (10.0, 10.0)
        );
        assert_eq!(
            Row::bandwidths(Operation::AllReduce, 4, 1_000_000, 100.0),
            (10.0, 15.0)
        );
        assert_eq!(Row::bandwidths(Operation::Init, 2, 8, 100.0), (0.0, 0.0));
        assert_eq!(Row::bandwidths(Operation::Pingpong, 2, 8, 0.0), (0.0, 0.0));
    }
}
