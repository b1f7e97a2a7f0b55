//! Packages of the distribution: those of a kernel, where they come from, how they are unpacked.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::command::{find_program, run};
use super::context::Context;
use super::{BuildError, Flavour};
use crate::apt::{Apt, AptError, ArchiveFile};
use crate::cache::Cache;

/// The kernel of one flavour, its headers and what those need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelPackages {
    pub flavour: Flavour,
    /// What `uname -r` says when it runs.
    pub release: String,
    pub files: Vec<ArchiveFile>,
    /// Where they come from; none: from this machine's own sources.
    #[serde(default)]
    pub origin: Option<Suites>,
}

/// Suites of Debian's archive that belong together, with package lists of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Suites {
    /// Names the folder of their package lists.
    pub name: String,
    /// Addresses of archives, from this machine's configuration, and suites.
    pub sources: Vec<(String, String)>,
    /// The suite whose versions are taken before those of the others.
    pub preferred: Option<String>,
}

impl Suites {
    pub fn apt(&self, cache: &Cache) -> Result<Apt, AptError> {
        let state = cache.state_folder(&format!("apt/stock-{}", self.name));
        Apt::debian_suites(&state, &self.sources, self.preferred.as_deref())
    }
}

/// apt with the machine's own sources, with the package lists that the plan came from.
pub(crate) fn apt(context: &Context<'_>) -> Result<Apt, AptError> {
    Apt::machine(&context.cache.state_folder("apt/machine"))
}

/// Unpacks a binary package without running anything of it.
pub(crate) fn unpack(package: &Path, root: &Path, log: &Path) -> Result<(), BuildError> {
    let mut command = Command::new(find_program("dpkg-deb", "dpkg")?);
    command.arg("--extract").arg(package).arg(root);
    run(&mut command, "unpacking a package", log)
}
