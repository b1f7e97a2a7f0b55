//! Enforcement: a CPU limit becomes `cpu.max`, and the original is restored afterwards.
//!
//! ```text
//!  limit ──quota──▶ quota, period ──ledger──▶ original and new value ──cgroup──▶ cpu.max
//!                                   (on disk before the change)
//!  exit, or a later start: ledger ──▶ original cpu.max, unless another program has changed it
//! ```

pub(crate) mod bpf_statistics;
pub mod bulk;
pub mod cgroup;
pub(crate) mod ext;
pub mod knob;
pub mod ledger;
pub mod meter;
pub(crate) mod quota;

use std::path::PathBuf;

/// Why a cgroup cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// No hierarchy with the cpu controller.
    #[error(
        "no cgroup hierarchy here has the cpu controller: mount cgroup2, or boot with \
         systemd.unified_cgroup_hierarchy=1"
    )]
    NoHierarchy,
    /// A hierarchy that does not add up the CPU time of the cgroups below one.
    #[error(
        "users = \"unit\" needs the CPU time of a cgroup and all below it, which {0} does not show: use \
         cgroup version 2, mount cpu and cpuacct together, or set users = \"cgroup\""
    )]
    NoUnits(PathBuf),
    /// A file of a cgroup.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// A file of a cgroup that cannot be parsed.
    #[error("{path}: {text:?} cannot be parsed")]
    Text {
        /// The file.
        path: PathBuf,
        /// The contents.
        text: String,
    },
    /// The ledger.
    #[error("{path}: {why}")]
    Ledger {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The scheduler.
    #[error(transparent)]
    Ext(#[from] ext::ExtError),
}

impl EnforceError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }

    /// Whether the cgroup is gone.
    pub fn is_gone(&self) -> bool {
        // Open files of a removed cgroup return ENODEV.
        matches!(self, Self::File { error, .. } if error.kind() == std::io::ErrorKind::NotFound
            || error.raw_os_error() == Some(19))
    }
}
