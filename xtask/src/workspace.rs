//! What `cargo metadata` says about this workspace.
//!
//! Only the fields that a command reads are parsed. Dependencies outside the workspace are listed
//! by name but never resolved (`--no-deps`), so this needs neither a network nor a built library.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process;

/// The packages of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    /// Members, in the order in which cargo lists them.
    pub(crate) packages: Vec<Package>,
}

/// One member of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// The name on the package's first manifest line.
    pub(crate) name: String,
    /// What the manifest asks for, of every kind.
    pub(crate) dependencies: Vec<Dependency>,
    /// Library, binaries, examples, tests and benches.
    pub(crate) targets: Vec<Target>,
    /// Feature names with what each enables.
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

/// One line of a `[dependencies]` table.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    /// The package's real name, also when it is renamed.
    pub(crate) name: String,
    /// The version requirement; `*` when the manifest gives none.
    pub(crate) req: String,
    /// Normal, development or build.
    #[serde(default, deserialize_with = "kind_or_normal")]
    pub(crate) kind: Kind,
    /// Set for dependencies that lie beside the package.
    pub(crate) path: Option<PathBuf>,
}

/// Which table a dependency stands in.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// `[dependencies]`
    #[default]
    Normal,
    /// `[dev-dependencies]`
    Dev,
    /// `[build-dependencies]`
    Build,
}

/// Cargo writes `null` for a normal dependency.
fn kind_or_normal<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// One thing that cargo compiles.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    /// The name given to `--lib`, `--bin`, `--example`, ...
    pub(crate) name: String,
    /// `lib`, `bin`, `example`, `test`, `bench`, `proc-macro`, `custom-build`.
    pub(crate) kind: Vec<String>,
    /// The crate root.
    pub(crate) src_path: PathBuf,
}

impl Metadata {
    /// Asks cargo about the workspace that this program belongs to.
    pub(crate) fn load() -> Result<Self> {
        let text = process::cargo("metadata")
            .args(["--no-deps", "--format-version", "1"])
            .capture()
            .context("cannot read the workspace")?;
        Self::parse(&text)
    }

    /// Reads the JSON that `cargo metadata --no-deps --format-version 1` prints.
    pub(crate) fn parse(json: &str) -> Result<Self> {
        serde_json::from_str(json).context("cargo metadata printed something unexpected")
    }

    /// The member called `name`, or an error that says that it is not there yet.
    pub(crate) fn package(&self, name: &str) -> Result<&Package> {
        match self.packages.iter().find(|package| package.name == name) {
            Some(package) => Ok(package),
            None => bail!(
                "this workspace has no package `{name}` yet; its members are: {}",
                self.packages
                    .iter()
                    .map(|p| p.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        }
    }
}

/// The root of the workspace that this program was built from.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}
