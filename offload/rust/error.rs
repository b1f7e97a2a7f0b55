//! Why the executor could not be built or run, and which exit code says so.

use std::io;
use std::path::PathBuf;

/// What went wrong around the executor; what went wrong in the guest is an
/// [`crate::machine::outcome::Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// The options do not fit together.
    #[error("{0}")]
    Usage(String),
    /// A program is not installed.
    #[error("{program} cannot be run ({source}): run scripts/setup.sh")]
    MissingTool {
        /// The program.
        program: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The executor or the guest programs could not be built.
    #[error("offload/build.sh failed:\n{message}")]
    Build {
        /// Whether a tool is missing.
        lacking: bool,
        /// The message of the build.
        message: String,
    },
    /// The project's sources are not there.
    #[error("the executor's sources (offload/isa/a32.def) are not above this folder nor in {}: run dormouse inside its clone", .0.display())]
    NoSources(PathBuf),
    /// The guest's file cannot be run.
    #[error("{}: {reason}", path.display())]
    BadElf {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The emulated big machine does not do what it must.
    #[error("the emulated big machine {0}")]
    BigMachine(String),
    /// The emulator did not say what it must.
    #[error("the emulated Cortex-M3 {0}")]
    Machine(String),
}

impl OffloadError {
    /// The documented exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            OffloadError::Usage(_) => 2,
            OffloadError::MissingTool { .. } | OffloadError::Build { lacking: true, .. } => 3,
            _ => 1,
        }
    }
}

/// For `map_err`: what was being done to which file.
pub(crate) fn io(
    action: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> OffloadError {
    let path = path.into();
    move |source| OffloadError::Io {
        action,
        path,
        source,
    }
}
