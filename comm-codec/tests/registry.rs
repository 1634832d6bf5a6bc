//! Codecs by name and number, of this build and of the program's own.

use std::sync::Arc;

use comm_codec::{CompressionSettings, Registry, wire_id};
use comm_core::{Codec, Compressed, ErrorKind, Result};

/// Has a name and a number, and is never called.
#[derive(Debug)]
struct Named(&'static str, u8);

impl Codec for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn wire_id(&self) -> u8 {
        self.1
    }

    fn compress_bound(&self, _: usize) -> Option<usize> {
        None
    }

    fn compress_into(&self, _: &[u8], _: &mut [u8]) -> Result<Compressed> {
        Ok(Compressed::DoesNotFit)
    }

    fn decompress_into(&self, _: &[u8], _: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

/// The codecs of all features: name, number, whether this build has it, what brings it.
const CODECS: [(&str, u8, bool, &str); 2] = [
    (
        "lz4",
        wire_id::LZ4,
        cfg!(any(feature = "lz4", feature = "lz4-c")),
        "`lz4` or `lz4-c`",
    ),
    ("zstd", wire_id::ZSTD, cfg!(feature = "zstd"), "`zstd`"),
];

#[test]
fn codecs_of_this_build_are_found_and_others_name_their_feature() {
    let registry = Registry::builtin();
    for (name, id, is_compiled_in, features) in CODECS {
        let settings = CompressionSettings::builder().codec(name).build().unwrap();
        if is_compiled_in {
            assert_eq!(registry.named(name).unwrap().wire_id(), id);
            assert_eq!(registry.with_wire_id(id).unwrap().name(), name);
            let configured = Registry::configured(&settings).unwrap();
            assert_eq!(configured.named(name).unwrap().wire_id(), id);
        } else {
            for error in [
                registry.named(name).unwrap_err(),
                registry.with_wire_id(id).unwrap_err(),
                Registry::configured(&settings).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                let text = error.to_string();
                assert!(text.contains(name) && text.contains(features), "{text}");
            }
        }
    }
}

#[test]
fn wire_ids_never_change() {
    assert_eq!((wire_id::LZ4, wire_id::ZSTD), (1, 2));
    assert_eq!(wire_id::FIRST_CUSTOM, 128);
}

#[test]
fn own_codecs_are_registered_beside_those_of_the_build() {
    let mut registry = Registry::builtin();
    let before = registry.names().count();
    registry.register(Arc::new(Named("delta", 128))).unwrap();
    assert_eq!(registry.named("delta").unwrap().wire_id(), 128);
    assert_eq!(registry.with_wire_id(128).unwrap().name(), "delta");
    assert_eq!(registry.names().count(), before + 1);
    let error = registry.named("other").unwrap_err();
    assert!(error.to_string().contains("delta"), "{error}");
    assert!(registry.with_wire_id(0).is_err());
}

#[test]
fn names_and_numbers_that_are_taken_or_reserved_are_refused() {
    let mut registry = Registry::builtin();
    registry.register(Arc::new(Named("delta", 200))).unwrap();
    for (codec, text) in [
        (Named("delta", 201), "of this name"),
        (Named("other", 200), "of this wire id"),
        (Named("lz4", 202), "the library"),
        (Named("zstd", 202), "the library"),
        (Named("other", 1), "below 128"),
        (Named("other", 0), "below 128"),
        (Named("", 202), "lower case"),
        (Named("Other", 202), "lower case"),
    ] {
        let error = registry.register(Arc::new(codec)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(registry.with_wire_id(201).is_err(), "nothing was added");
}

#[test]
fn settings_of_the_chosen_codec_take_effect() {
    let builder = || CompressionSettings::builder();
    let accelerated = builder().codec("lz4").acceleration(8).build().unwrap();
    let configured = Registry::configured(&accelerated);
    match (cfg!(feature = "lz4-c"), configured) {
        (true, configured) => {
            let text = format!("{:?}", configured.unwrap().named("lz4").unwrap());
            assert!(text.contains("acceleration: 8"), "{text}");
        }
        (false, configured) => {
            let error = configured.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("lz4-c"), "{error}");
        }
    }
    let level = builder().codec("zstd").level(99).build().unwrap();
    let error = Registry::configured(&level).unwrap_err();
    let kind = if cfg!(feature = "zstd") {
        ErrorKind::InvalidConfiguration
    } else {
        ErrorKind::Unavailable
    };
    assert_eq!(error.kind(), kind, "{error}");
    let custom = builder().codec("mine").build().unwrap();
    assert!(
        Registry::configured(&custom)
            .unwrap()
            .named("mine")
            .is_err()
    );
}
