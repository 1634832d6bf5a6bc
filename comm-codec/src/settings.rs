//! What is compressed, and how: [`CompressionSettings`].
//!
//! # Contract
//!
//! * Names and defaults are those of RLinf's configuration: `codec` has to be given, `min_bytes` is
//!   16384, `excluded_dtypes` is `[f32]`, the `acceleration` of lz4 and the `level` of zstd are 1,
//!   zstd's `max_inflight` is 4, the buffer pool's limit is 2 GiB.
//! * Everything is checked in [`CompressionBuilder::build`]: what is wrong, and a setting that the
//!   chosen codec does not have, is an error that names it. Whether the codec is compiled in is
//!   found by [`Registry`](crate::Registry).

use comm_core::{DType, Error, ErrorKind, Result};

use crate::pool::DEFAULT_POOL_BYTES;

/// Smaller tensors go as they are, unless told otherwise.
pub const DEFAULT_MIN_BYTES: usize = 16 * 1024;

/// The acceleration of lz4 unless told otherwise.
pub const DEFAULT_ACCELERATION: u32 = 1;

/// The level of zstd unless told otherwise.
pub const DEFAULT_LEVEL: i32 = 1;

/// How many contexts zstd has unless told otherwise.
pub const DEFAULT_MAX_INFLIGHT: usize = 4;

/// A codec and its own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecChoice {
    /// LZ4.
    Lz4 {
        /// 1 or more; more than 1 needs the Cargo feature `lz4-c`.
        acceleration: u32,
    },
    /// Zstandard.
    Zstd {
        /// 1 to 22, or negative.
        level: i32,
        /// How many calls may compress or decompress at once.
        max_inflight: usize,
    },
    /// A codec that the program registers, by its name.
    Custom(String),
}

impl CodecChoice {
    /// The name of the codec.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Lz4 { .. } => "lz4",
            Self::Zstd { .. } => "zstd",
            Self::Custom(name) => name,
        }
    }
}

/// What is compressed, and how; checked. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionSettings {
    codec: CodecChoice,
    min_bytes: usize,
    excluded_dtypes: Vec<DType>,
    pool_bytes: usize,
}

impl CompressionSettings {
    /// A builder in which only the codec is missing.
    pub fn builder() -> CompressionBuilder {
        CompressionBuilder::default()
    }

    /// The codec.
    #[must_use]
    pub const fn codec(&self) -> &CodecChoice {
        &self.codec
    }

    /// The size from which on tensors are compressed.
    #[must_use]
    pub const fn min_bytes(&self) -> usize {
        self.min_bytes
    }

    /// Element types that go as they are.
    #[must_use]
    pub fn excluded_dtypes(&self) -> &[DType] {
        &self.excluded_dtypes
    }

    /// What the pool of buffers for compressed bytes may hold.
    #[must_use]
    pub const fn pool_bytes(&self) -> usize {
        self.pool_bytes
    }

    /// Whether a tensor of this type and size is worth a try.
    #[must_use]
    pub fn is_eligible(&self, dtype: DType, bytes: usize) -> bool {
        bytes >= self.min_bytes && !self.excluded_dtypes.contains(&dtype)
    }
}

/// Collects settings and checks them.
///
/// ```
/// use comm_codec::CompressionSettings;
/// use comm_core::DType;
///
/// let settings = CompressionSettings::builder()
///     .codec("zstd")
///     .level(3)
///     .min_bytes(1 << 20)
///     .excluded_dtypes([DType::F32, DType::F64])
///     .build()?;
/// assert!(settings.is_eligible(DType::Bf16, 2 << 20));
///
/// let error = CompressionSettings::builder().codec("zstd").acceleration(2).build().unwrap_err();
/// assert!(error.to_string().contains("acceleration"));
/// # Ok::<(), comm_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing before build()"]
pub struct CompressionBuilder {
    codec: Option<String>,
    min_bytes: Option<usize>,
    excluded_dtypes: Option<Vec<DType>>,
    acceleration: Option<u32>,
    level: Option<i32>,
    max_inflight: Option<usize>,
    pool_bytes: Option<usize>,
}

impl CompressionBuilder {
    /// Sets the codec: `lz4`, `zstd`, or the name of one that the program registers.
    pub fn codec(mut self, name: impl Into<String>) -> Self {
        self.codec = Some(name.into());
        self
    }

    /// Sets the size from which on tensors are compressed, in bytes.
    pub const fn min_bytes(mut self, bytes: usize) -> Self {
        self.min_bytes = Some(bytes);
        self
    }

    /// Sets the element types that go as they are; none of them twice.
    pub fn excluded_dtypes(mut self, dtypes: impl IntoIterator<Item = DType>) -> Self {
        self.excluded_dtypes = Some(dtypes.into_iter().collect());
        self
    }

    /// Sets how much lz4 hurries; needs the Cargo feature `lz4-c` beyond 1.
    pub const fn acceleration(mut self, acceleration: u32) -> Self {
        self.acceleration = Some(acceleration);
        self
    }

    /// Sets how hard zstd tries.
    pub const fn level(mut self, level: i32) -> Self {
        self.level = Some(level);
        self
    }

    /// Sets how many calls of zstd may be under way at once.
    pub const fn max_inflight(mut self, calls: usize) -> Self {
        self.max_inflight = Some(calls);
        self
    }

    /// Sets what the pool of buffers for compressed bytes may hold.
    pub const fn pool_bytes(mut self, bytes: usize) -> Self {
        self.pool_bytes = Some(bytes);
        self
    }

    /// The settings, if they make sense.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] that names the setting.
    pub fn build(self) -> Result<CompressionSettings> {
        let codec = self.choice()?;
        let excluded = self.excluded_dtypes.unwrap_or_else(|| vec![DType::F32]);
        for (place, dtype) in excluded.iter().enumerate() {
            if excluded[..place].contains(dtype) {
                return Err(wrong(format!("excluded_dtypes names {dtype} twice")));
            }
        }
        Ok(CompressionSettings {
            codec,
            min_bytes: at_least_one("min_bytes", self.min_bytes.unwrap_or(DEFAULT_MIN_BYTES))?,
            excluded_dtypes: excluded,
            pool_bytes: at_least_one("pool_bytes", self.pool_bytes.unwrap_or(DEFAULT_POOL_BYTES))?,
        })
    }

    fn choice(&self) -> Result<CodecChoice> {
        let Some(name) = &self.codec else {
            return Err(wrong(
                "a codec must be specified for compression, such as lz4 or zstd".to_owned(),
            ));
        };
        let set = [
            ("acceleration", "lz4", self.acceleration.is_some()),
            ("level", "zstd", self.level.is_some()),
            ("max_inflight", "zstd", self.max_inflight.is_some()),
        ];
        for (setting, owner, is_set) in set {
            if is_set && owner != name {
                let message = format!("{setting} is a setting of {owner}; the codec is {name}");
                return Err(wrong(message));
            }
        }
        Ok(match name.as_str() {
            "lz4" => CodecChoice::Lz4 {
                acceleration: at_least_one(
                    "acceleration",
                    self.acceleration.unwrap_or(DEFAULT_ACCELERATION),
                )?,
            },
            "zstd" => CodecChoice::Zstd {
                level: match self.level.unwrap_or(DEFAULT_LEVEL) {
                    0 => return Err(wrong("zstd has no level 0".to_owned())),
                    level => level,
                },
                max_inflight: at_least_one(
                    "max_inflight",
                    self.max_inflight.unwrap_or(DEFAULT_MAX_INFLIGHT),
                )?,
            },
            "" => return Err(wrong("the name of the codec is empty".to_owned())),
            _ => CodecChoice::Custom(name.clone()),
        })
    }
}

fn at_least_one<T: PartialEq + Default>(name: &str, value: T) -> Result<T> {
    if value == T::default() {
        return Err(wrong(format!("{name} must be at least 1")));
    }
    Ok(value)
}

#[cold]
fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfiguration, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lz4() -> CompressionBuilder {
        CompressionSettings::builder().codec("lz4")
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let settings = lz4().build().unwrap();
        assert_eq!(settings.codec(), &CodecChoice::Lz4 { acceleration: 1 });
        assert_eq!(settings.min_bytes(), 16384);
        assert_eq!(settings.excluded_dtypes(), [DType::F32]);
        assert_eq!(settings.pool_bytes(), 2_147_483_648);
        let zstd = CompressionSettings::builder()
            .codec("zstd")
            .build()
            .unwrap();
        let (level, max_inflight) = (1, 4);
        let choice = CodecChoice::Zstd {
            level,
            max_inflight,
        };
        assert_eq!(zstd.codec(), &choice);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let zstd = || CompressionSettings::builder().codec("zstd");
        let twice = [DType::U8, DType::F32, DType::U8];
        for (builder, name) in [
            (CompressionSettings::builder(), "codec must be specified"),
            (CompressionSettings::builder().codec(""), "empty"),
            (lz4().min_bytes(0), "min_bytes"),
            (lz4().pool_bytes(0), "pool_bytes"),
            (lz4().acceleration(0), "acceleration"),
            (lz4().excluded_dtypes(twice), "u8 twice"),
            (lz4().level(1), "level"),
            (lz4().max_inflight(1), "max_inflight"),
            (zstd().acceleration(1), "acceleration"),
            (zstd().level(0), "level 0"),
            (zstd().max_inflight(0), "max_inflight"),
            (lz4().codec("mine").level(1), "the codec is mine"),
        ] {
            let error = builder.build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.to_string().contains(name), "{name}: {error}");
        }
    }

    #[test]
    fn eligible_is_what_is_large_and_not_excluded() {
        let settings = lz4().build().unwrap();
        assert!(settings.is_eligible(DType::I64, 16384));
        assert!(!settings.is_eligible(DType::I64, 16383));
        assert!(!settings.is_eligible(DType::F32, 1 << 20));
        let all = lz4().excluded_dtypes([]).build().unwrap();
        assert!(all.is_eligible(DType::F32, 16384));
    }
}
