//! The layer rule: which crate of the workspace may depend on which.
//!
//! Every crate may use the vocabulary in comm-core, except the pure tool that is xtask. Transports
//! and codecs use nothing else, so they can be replaced one by one; the runtime knows transports
//! only as trait objects. A crate that is not in the table is an error: adding one is a decision.

use super::Finding;
use crate::workspace::{Dependency, Kind, Metadata};

/// Each crate with the crates of this workspace that it may depend on.
const LAYERS: &[(&str, &[&str])] = &[
    ("comm-core", &[]),
    ("comm-graph", &["comm-core"]),
    ("comm-codec", &["comm-core"]),
    ("comm-transport-p2p", &["comm-core"]),
    ("comm-transport-shm", &["comm-core"]),
    ("comm-transport-net", &["comm-core"]),
    ("comm-kernels", &["comm-core"]),
    ("comm-runtime", &["comm-core", "comm-graph", "comm-kernels"]),
    ("comm-group", &["comm-core", "comm-codec", "comm-runtime"]),
    ("comm-device-cuda", &["comm-core", "comm-runtime"]),
    ("comm-testkit", &["comm-core", "comm-runtime"]),
    (
        "comm-api",
        &[
            "comm-core",
            "comm-graph",
            "comm-codec",
            "comm-transport-p2p",
            "comm-transport-shm",
            "comm-transport-net",
            "comm-runtime",
            "comm-group",
            "comm-device-cuda",
        ],
    ),
    ("comm-bench", &["comm-core", "comm-api"]),
    (
        "comm-cli",
        // The example is measured beside the library's own transports.
        &[
            "comm-core",
            "comm-graph",
            "comm-api",
            "comm-bench",
            "transport-uds",
        ],
    ),
    // An example of a transport outside of this workspace, so it sees what such a one sees.
    ("transport-uds", &["comm-core"]),
    ("xtask", &[]),
];

/// Tests of any crate may use the conformance suites and mocks.
const FOR_TESTS: &str = "comm-testkit";

/// Crates that tests of one crate may use besides: what only both together show.
const ALSO_FOR_TESTS: &[(&str, &str)] = &[
    // A network edge with slots in memory that a device has pinned.
    ("comm-device-cuda", "comm-transport-net"),
];

/// Packages from outside that only these crates may use, outside of tests.
const CONFINED: &[(&str, &[&str], &str)] = &[
    (
        "tokio",
        &["comm-runtime"],
        "only the control thread runs an async runtime",
    ),
    (
        "cudarc",
        &["comm-device-cuda"],
        "everything else sees devices through `comm_core::Device`",
    ),
];

/// Checks the dependencies of every member.
pub(crate) fn check(metadata: &Metadata) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == package.name) else {
            findings.push(Finding::in_package(
                &package.name,
                "is not in the layer table; decide what it may depend on and add it to \
                 xtask/src/tidy/layers.rs",
            ));
            continue;
        };
        for dependency in &package.dependencies {
            if let Some(message) = objection(&package.name, allowed, dependency) {
                findings.push(Finding::in_package(&package.name, message));
            }
        }
    }
    findings
}

/// What is wrong with `package` depending on `dependency`.
fn objection(package: &str, allowed: &[&str], dependency: &Dependency) -> Option<String> {
    let name = dependency.name.as_str();
    if dependency.path.is_some() {
        let may_test_with =
            name == FOR_TESTS || name == package || ALSO_FOR_TESTS.contains(&(package, name));
        let for_tests = dependency.kind == Kind::Dev && may_test_with;
        if allowed.contains(&name) || for_tests {
            return None;
        }
        let list = if allowed.is_empty() {
            "nothing".to_owned()
        } else {
            allowed.join(", ")
        };
        return Some(format!(
            "must not depend on {name}: of this workspace it may see {list}"
        ));
    }
    CONFINED
        .iter()
        .find(|(confined, users, _)| {
            *confined == name && !users.contains(&package) && dependency.kind != Kind::Dev
        })
        .map(|(_, users, reason)| {
            format!(
                "must not depend on {name}, which belongs to {}: {reason}",
                users.join(", ")
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace of one package with one dependency, as cargo describes it.
    fn findings(package: &str, dependency: &str, kind: &str, path: &str) -> Vec<Finding> {
        let json = format!(
            r#"{{"packages":[{{"name":"{package}","targets":[],
                "features":{{}},"dependencies":[
                {{"name":"{dependency}","req":"^0.1","kind":{kind},"path":{path}}}]}}]}}"#
        );
        check(&Metadata::parse(&json).unwrap())
    }

    const BESIDE: &str = r#""/w/beside""#;

    #[test]
    fn a_crate_may_use_the_layers_below_it() {
        assert_eq!(findings("comm-runtime", "comm-graph", "null", BESIDE), []);
        assert_eq!(
            findings("comm-transport-shm", "comm-core", "null", BESIDE),
            []
        );
    }

    #[test]
    fn transports_never_see_each_other_nor_the_runtime() {
        for other in ["comm-transport-shm", "comm-graph", "comm-runtime"] {
            let findings = findings("comm-transport-net", other, "null", BESIDE);
            assert_eq!(findings.len(), 1);
            assert!(findings[0].message.contains(other), "{findings:?}");
        }
    }

    #[test]
    fn the_runtime_names_no_transport_not_even_in_tests() {
        assert_eq!(
            findings("comm-runtime", "comm-transport-shm", r#""dev""#, BESIDE).len(),
            1
        );
    }

    #[test]
    fn only_tests_may_use_the_testkit() {
        assert_eq!(
            findings("comm-transport-shm", "comm-testkit", r#""dev""#, BESIDE),
            []
        );
        assert_eq!(
            findings("comm-transport-shm", "comm-testkit", r#""build""#, BESIDE).len(),
            1
        );
        assert_eq!(
            findings("comm-transport-shm", "comm-testkit", "null", BESIDE).len(),
            1
        );
    }

    #[test]
    fn an_unknown_crate_is_an_error() {
        let findings = findings("comm-surprise", "libc", "null", "null");
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("layer table"), "{findings:?}");
    }

    #[test]
    fn confined_packages_stay_where_they_belong() {
        assert_eq!(findings("comm-runtime", "tokio", "null", "null"), []);
        assert_eq!(findings("comm-api", "tokio", "null", "null").len(), 1);
        assert_eq!(findings("comm-api", "tokio", r#""dev""#, "null"), []);
    }
}
