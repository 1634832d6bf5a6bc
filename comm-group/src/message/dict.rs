//! [`TensorDict`]: named tensors in the order in which they were put in.

use std::fmt;

use comm_core::Tensor;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Named tensors, in order; a message of kind [`Dict`](super::MessageKind::Dict).
///
/// Meant for the tens of entries of an observation or the thousands of a state dict that is walked
/// from front to back: looking a name up compares it with every other one.
///
/// ```
/// use comm_core::{DType, Tensor};
/// use comm_group::TensorDict;
///
/// let mut observation = TensorDict::new();
/// observation.insert("state", Tensor::zeros(DType::F32, &[7])?);
/// observation.insert("image", Tensor::zeros(DType::U8, &[3, 8, 8])?);
/// let names: Vec<_> = observation.iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["state", "image"]);
/// assert_eq!(observation["image"].shape(), [3, 8, 8]);
/// # Ok::<(), comm_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TensorDict {
    entries: Vec<(String, Tensor)>,
}

impl TensorDict {
    /// A dictionary without entries.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
        }
    }

    /// Puts a tensor at the end, or in the place of the one of that name, which is returned.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) -> Option<Tensor> {
        let name = name.into();
        match self.entries.iter_mut().find(|(other, _)| *other == name) {
            Some((_, known)) => Some(std::mem::replace(known, tensor)),
            None => {
                self.entries.push((name, tensor));
                None
            }
        }
    }

    /// The tensor of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let entry = self.entries.iter().find(|(other, _)| other == name);
        entry.map(|(_, tensor)| tensor)
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.into_iter()
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// # Panics
///
/// If there is no tensor of this name; [`TensorDict::get`] does not panic.
impl std::ops::Index<&str> for TensorDict {
    type Output = Tensor;

    fn index(&self, name: &str) -> &Tensor {
        match self.get(name) {
            Some(tensor) => tensor,
            None => panic!("there is no tensor '{name}' in the dictionary"),
        }
    }
}

impl<N: Into<String>> FromIterator<(N, Tensor)> for TensorDict {
    /// Takes the entries as they are; of equal names the last tensor counts.
    fn from_iter<I: IntoIterator<Item = (N, Tensor)>>(entries: I) -> Self {
        let mut dict = Self::new();
        dict.extend(entries);
        dict
    }
}

impl<N: Into<String>> Extend<(N, Tensor)> for TensorDict {
    /// Puts each tensor in like [`TensorDict::insert`].
    fn extend<I: IntoIterator<Item = (N, Tensor)>>(&mut self, entries: I) {
        for (name, tensor) in entries {
            self.insert(name, tensor);
        }
    }
}

impl<'a> IntoIterator for &'a TensorDict {
    type Item = (&'a str, &'a Tensor);
    type IntoIter = std::iter::Map<
        std::slice::Iter<'a, (String, Tensor)>,
        fn(&'a (String, Tensor)) -> (&'a str, &'a Tensor),
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.entries
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
    }
}

impl IntoIterator for TensorDict {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl Serialize for TensorDict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for TensorDict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = TensorDict;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dictionary of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TensorDict, A::Error> {
                // Names are unique in what this crate sends; looking for equal ones in what a
                // stranger sends would take quadratic time.
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(TensorDict { entries })
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use comm_core::DType;

    use super::*;

    fn of(len: usize) -> Tensor {
        Tensor::zeros(DType::U8, &[len]).unwrap()
    }

    #[test]
    fn a_dictionary_grows_in_order_and_equal_names_keep_their_place() {
        let mut dict: TensorDict = [("a", of(1)), ("b", of(2))].into_iter().collect();
        dict.extend([("c", of(3)), ("a", of(4))]);
        let mut sizes = Vec::new();
        for (name, tensor) in &dict {
            sizes.push((name, tensor.len_bytes()));
        }
        assert_eq!(sizes, [("a", 4), ("b", 2), ("c", 3)]);
        assert!(dict.contains("c") && !dict.contains("d"));
    }
}
