//! `cargo xtask features`: comm-api and comm-codec work with each feature alone, with none and with
//! all.
//!
//! A feature may only add something, so every subset has to compile and pass its tests; features
//! alone find a missing `dep:` or `cfg`, all together finds two that exclude each other. With one
//! feature the tests of [`WITH_ONE`] run, which call everything over every transport that is there, and
//! with a codec alone, which leaves nothing to call, those of [`WITH_A_CODEC`]; with all features all
//! tests run, and so they do for comm-codec, whose tests take little. The tests of the default features
//! are those of `cargo xtask test`; documentation tests belong there too, since the guide's programs need
//! a transport. At the end processes of different builds meet.

mod mixed;

use anyhow::Result;

use crate::process::{self, Cargo};
use crate::workspace::{Metadata, Package};

const PACKAGE: &str = "comm-api";

const CODECS: &str = "comm-codec";

/// The tests that run with each feature alone.
const WITH_ONE: [&str; 7] = [
    "collectives",
    "compression",
    "failures",
    "features",
    "frames",
    "groups",
    "messages",
];

/// The tests that run with a codec and no transport.
const WITH_A_CODEC: [&str; 2] = ["compression", "features"];

/// Runs `cargo test` for each selection; stops at the first that does not compile or fails.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::load()?;
    let codecs = metadata.package(CODECS)?;
    run_selections(codecs, |_| vec!["--lib", "--tests"])?;
    run_selections(metadata.package(PACKAGE)?, |feature| {
        let is_codec = feature.is_some_and(|feature| codecs.features.contains_key(feature));
        let tests: &[&str] = if is_codec { &WITH_A_CODEC } else { &WITH_ONE };
        let tests = tests.iter().flat_map(|name| ["--test", name]);
        std::iter::once("--lib").chain(tests).collect()
    })?;
    mixed::run()
}

/// Runs its `targets` with no feature and with each alone, and all tests with all features.
fn run_selections(
    package: &Package,
    targets: impl Fn(Option<&str>) -> Vec<&'static str>,
) -> Result<()> {
    for feature in selections(package) {
        test(package)
            .args(targets(feature))
            .arg("--no-default-features")
            .args(
                feature
                    .map(|feature| ["--features", feature])
                    .iter()
                    .flatten(),
            )
            .run()?;
    }
    if !all_are_default(package) {
        test(package)
            .args(["--lib", "--tests", "--all-features"])
            .run()?;
    }
    Ok(())
}

fn test(package: &Package) -> Cargo {
    process::cargo("test").args(["--package", &package.name])
}

/// No feature, and each alone.
fn selections(package: &Package) -> Vec<Option<&str>> {
    let features = package.features.keys().map(String::as_str);
    let alone = features.filter(|feature| *feature != "default").map(Some);
    std::iter::once(None).chain(alone).collect()
}

/// Whether the default features turn all others on, so that `cargo xtask test` tests all together.
fn all_are_default(package: &Package) -> bool {
    let mut on: Vec<&str> = vec!["default"];
    let mut next = 0;
    while let Some(feature) = on.get(next).copied() {
        next += 1;
        for brought in package.features.get(feature).into_iter().flatten() {
            if package.features.contains_key(brought) && !on.contains(&brought.as_str()) {
                on.push(brought);
            }
        }
    }
    on.len() == package.features.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(features: &str) -> Package {
        let json = format!(
            r#"{{"packages":[{{"name":"a","targets":[],"dependencies":[],"features":{features}}}]}}"#
        );
        Metadata::parse(&json).unwrap().packages.remove(0)
    }

    #[test]
    fn no_feature_and_each_alone_are_selected() {
        let package = package(r#"{"default":["a"],"a":["b"],"b":["dep:c"]}"#);
        assert_eq!(selections(&package), [None, Some("a"), Some("b")]);
    }

    #[test]
    fn all_together_are_tested_apart_unless_they_are_the_default() {
        let all = package(r#"{"default":["a"],"a":["b","dep:c","c/b"],"b":[]}"#);
        assert!(all_are_default(&all));
        assert!(!all_are_default(&package(
            r#"{"default":["a"],"a":[],"b":[]}"#
        )));
    }
}
