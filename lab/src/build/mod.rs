//! Turns distribution packages and this project's sources into a bootable emulated machine.

mod error;
mod progress;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use error::BuildError;
pub use progress::{BuildEvent, BuildProgress, Quiet, Step, StepReport};

/// Which of the distribution's 6.12 kernels the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// The small kernel for virtual machines.
    #[default]
    Cloud,
    /// The kernel for any machine.
    Generic,
}

impl Flavour {
    /// Both, for options that list them.
    pub const ALL: [Flavour; 2] = [Flavour::Cloud, Flavour::Generic];

    pub fn name(self) -> &'static str {
        match self {
            Flavour::Cloud => "cloud",
            Flavour::Generic => "generic",
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Flavour {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Flavour::ALL
            .into_iter()
            .find(|flavour| flavour.name() == text)
            .ok_or_else(|| format!("{text:?} is no kernel flavour: cloud or generic"))
    }
}

/// What to build, and how.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    pub flavour: Flavour,
    /// Compilers at a time.
    pub jobs: usize,
    /// Never touch the network; what is not cached is an error.
    pub offline: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions {
            flavour: Flavour::default(),
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            offline: false,
        }
    }
}

/// The parts of an emulated machine; all paths are in the cache and must not be written to.
#[derive(Debug, Clone, Serialize)]
pub struct Artefacts {
    pub flavour: Flavour,
    /// Flash image for `-bios`: coreboot, boot loader, kernel and initrd, complete.
    pub firmware_rom: PathBuf,
    /// For `-kernel` under the emulator's own firmware.
    pub kernel: PathBuf,
    /// For `-initrd` under the emulator's own firmware.
    pub initrd: PathBuf,
    /// Raw ext4 image, the read-only base of the root disk.
    pub rootfs: PathBuf,
    /// Raw ext4 image, read-only: `dormouse`, `dormouse.ko`, the dax modules.
    pub payload: PathBuf,
    /// Our kernel module.
    pub module: PathBuf,
    /// For example `6.12.1+deb12-cloud-amd64`.
    pub kernel_release: String,
    /// The command line in the flash image; use the same with `-kernel`.
    pub cmdline: String,
    /// What was cached, what was built, and how long each took.
    pub steps: Vec<StepReport>,
}

/// Builds what is not in the cache yet and returns where everything is.
///
/// # Errors
/// See [`BuildError`]; nothing half-built is ever taken for complete.
pub fn build(
    options: &BuildOptions,
    progress: &dyn BuildProgress,
) -> Result<Artefacts, BuildError> {
    let _ = (options, progress);
    Err(BuildError::Unexpected("not built yet".into()))
}
