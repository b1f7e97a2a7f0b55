//! Why a build stopped: what, where and what to do next.

use std::path::PathBuf;

use thiserror::Error;

use crate::apt::AptError;
use crate::cache::CacheError;

/// Why the machine's parts could not be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The sources of this project are needed and not where they were when it was built.
    #[error(
        "the project's sources are not at {0}: run from a clone, or set DORMOUSE_SOURCE to one"
    )]
    NoSources(PathBuf),
    /// A program is not installed.
    #[error("{program} is not installed (package {package}): run scripts/setup.sh")]
    MissingTool {
        /// The program.
        program: String,
        /// The package that has it.
        package: &'static str,
    },
    /// The package archive did not give what is needed.
    #[error(transparent)]
    Apt(#[from] AptError),
    /// The cache could not be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A program of the build failed.
    #[error("{what} failed: {program} ended with {status}; the whole log is {log}\n{tail}", log = .log.display())]
    Command {
        /// What was being built.
        what: String,
        /// The program.
        program: String,
        /// How the program ended.
        status: String,
        /// The log file.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A file could not be read or written.
    #[error("{action} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A package or a build script gave something else than was expected.
    #[error("{0}")]
    Unexpected(String),
}

impl BuildError {
    /// Whether the machine lacks something that set-up can provide (exit code 3).
    pub fn is_lacking(&self) -> bool {
        matches!(
            self,
            BuildError::MissingTool { .. } | BuildError::Apt(AptError::NoArchive { .. })
        )
    }

    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> BuildError {
        let path = path.into();
        move |source| BuildError::Io {
            action,
            path,
            source,
        }
    }
}
