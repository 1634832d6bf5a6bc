//! Who a worker is: [`WorkerAddress`], a group name and a path of ranks.
//!
//! # Contract
//!
//! * Printed and parsed as `group:r0:r1:...`; the two are inverse. Names are not empty and hold no
//!   `:` and no control character; the path may be empty.
//! * Addresses are ordered by name, then by ranks as numbers, so `w:2` comes before `w:10`; this is
//!   the *canonical order* in which every member sees a group.
//! * Serialised as the printed text.

use std::fmt;
use std::str::FromStr;

use comm_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The longest path; addresses are short names, not data.
const MAX_DEPTH: usize = 16;
/// The longest name of a group, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The address of a worker; see the [module](self).
///
/// ```
/// use comm_group::WorkerAddress;
///
/// let rollout = WorkerAddress::new("rollout", 10)?;
/// assert_eq!(rollout.to_string(), "rollout:10");
/// assert_eq!(rollout.child(3)?.to_string(), "rollout:10:3");
/// assert!("rollout:2".parse::<WorkerAddress>()? < rollout);
/// # Ok::<(), comm_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerAddress {
    group: String,
    path: RankPath,
}

/// The ranks of an address below its group, outermost first.
///
/// Made from one rank or a list of them, so that calls take `3` as well as `[3, 0]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RankPath(Vec<u32>);

impl RankPath {
    /// The ranks, outermost first.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        &self.0
    }
}

impl From<u32> for RankPath {
    fn from(rank: u32) -> Self {
        Self(vec![rank])
    }
}

impl From<&[u32]> for RankPath {
    fn from(ranks: &[u32]) -> Self {
        Self(ranks.to_vec())
    }
}

impl<const N: usize> From<[u32; N]> for RankPath {
    fn from(ranks: [u32; N]) -> Self {
        Self(ranks.to_vec())
    }
}

impl From<Vec<u32>> for RankPath {
    fn from(ranks: Vec<u32>) -> Self {
        Self(ranks)
    }
}

impl WorkerAddress {
    /// The worker at `path` of the group of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the name is empty, too long or holds a `:` or a control
    /// character, or the path is longer than 16 ranks.
    pub fn new(group: impl Into<String>, path: impl Into<RankPath>) -> Result<Self> {
        let (group, path) = (group.into(), path.into());
        check_name(&group)?;
        if path.0.len() > MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a worker address has at most {MAX_DEPTH} ranks"),
            )
            .with("ranks", path.0.len()));
        }
        Ok(Self { group, path })
    }

    /// The group of this name as a whole, the parent of its workers.
    ///
    /// # Errors
    ///
    /// As for [`WorkerAddress::new`].
    pub fn root(group: impl Into<String>) -> Result<Self> {
        Self::new(group, RankPath::default())
    }

    /// The worker `rank` below this one.
    ///
    /// # Errors
    ///
    /// As for [`WorkerAddress::new`], if the path becomes too long.
    pub fn child(&self, rank: u32) -> Result<Self> {
        let mut path = self.path.clone();
        path.0.push(rank);
        Self::new(self.group.clone(), path)
    }

    /// The address above this one; `None` for a group as a whole.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (_, above) = self.path.0.split_last()?;
        Some(Self {
            group: self.group.clone(),
            path: above.into(),
        })
    }

    /// The name of the group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The ranks, outermost first.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        &self.path.0
    }
}

/// Whether `name` can be printed in an address and read back.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] as for [`WorkerAddress::new`].
fn check_name(name: &str) -> Result<()> {
    let message = if name.is_empty() {
        "a worker group needs a name"
    } else if name.contains(':') {
        "':' separates ranks in a worker address and cannot be part of a group's name"
    } else if name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        "the name of a worker group has at most 256 bytes and no control characters"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidArgument, message).with("name", format!("{name:?}")))
}

impl fmt::Display for WorkerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.group)?;
        self.path.0.iter().try_for_each(|rank| write!(f, ":{rank}"))
    }
}

impl fmt::Debug for WorkerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerAddress({self})")
    }
}

impl FromStr for WorkerAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(':');
        let group = parts.next().unwrap_or_default();
        let path: Vec<u32> = parts
            .map(|rank| match rank.parse() {
                // The printed form of a number is the only one, so that equal addresses have equal
                // texts.
                Ok(number) if u32::to_string(&number) == rank => Ok(number),
                _ => Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "a worker address is a group's name and ranks, such as rollout:3 or env:0:1",
                )
                .with("address", format!("{text:?}"))),
            })
            .collect::<Result<_>>()?;
        Self::new(group, path)
    }
}

impl Serialize for WorkerAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WorkerAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn order_is_by_name_then_by_number() {
        let sorted =
            ["a", "a:2", "a:2:0", "a:10", "b:0"].map(|text| text.parse::<WorkerAddress>().unwrap());
        let mut shuffled = sorted.clone();
        shuffled.reverse();
        shuffled.sort();
        assert_eq!(shuffled, sorted);
    }

    #[test]
    fn what_cannot_be_printed_and_read_back_is_refused() {
        for text in [
            "",
            ":1",
            "w:",
            "w:-1",
            "w:01",
            "w:+1",
            "w: 1",
            "w:4294967296",
            "a\nb:1",
        ] {
            let error = text.parse::<WorkerAddress>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text:?}");
        }
        assert!(WorkerAddress::new("a:b", 1).is_err());
        assert!(WorkerAddress::new("a", vec![0; 17]).is_err());
    }

    #[test]
    fn children_and_parents_are_inverse() {
        let worker = WorkerAddress::new("env", [4, 1]).unwrap();
        assert_eq!(worker.child(7).unwrap().parent().unwrap(), worker);
        assert_eq!(worker.child(7).unwrap().ranks(), [4, 1, 7]);
        let root = WorkerAddress::root("env").unwrap();
        assert_eq!((root.parent(), root.to_string().as_str()), (None, "env"));
    }

    proptest! {
        #[test]
        fn printing_and_parsing_and_serde_are_inverse(
            name in "[^:\\p{C}]{1,20}",
            path in proptest::collection::vec(any::<u32>(), 0..5),
        ) {
            let address = WorkerAddress::new(name, path).unwrap();
            prop_assert_eq!(&address.to_string().parse::<WorkerAddress>().unwrap(), &address);
            let json = serde_json::to_string(&address).unwrap();
            prop_assert_eq!(serde_json::from_str::<WorkerAddress>(&json).unwrap(), address);
        }
    }
}
