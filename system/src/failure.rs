//! The end of a command that fails: what the user reads, and the exit code.
//!
//! # Example
//!
//! ```
//! use dormouse_system::exit;
//! use dormouse_system::failure::{CommandError, Failure};
//!
//! #[derive(Debug, thiserror::Error)]
//! #[error("this kernel has no pagemap")]
//! struct NoPagemap;
//!
//! impl CommandError for NoPagemap {
//!     fn exit_code(&self) -> u8 {
//!         exit::LACKING
//!     }
//! }
//!
//! fn verb() -> Result<u8, Failure> {
//!     Err(NoPagemap)?
//! }
//!
//! assert_eq!(Failure::end(verb()), exit::LACKING);
//! ```

use std::fmt::Display;
use std::io::Write;

use crate::exit::{FAILED, LACKING, USAGE};
use crate::output::OutputError;

/// An error with which a command may end.
pub trait CommandError: Display {
    /// One of [`crate::exit`].
    fn exit_code(&self) -> u8 {
        FAILED
    }
}

impl CommandError for OutputError {}

/// An error of a command, as the user sees it.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    exit_code: u8,
    message: String,
}

impl<E: CommandError> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure {
            exit_code: error.exit_code(),
            message: error.to_string(),
        }
    }
}

impl Failure {
    /// Something failed.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure {
            exit_code: FAILED,
            message: message.into(),
        }
    }

    /// The command was used wrongly.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure {
            exit_code: USAGE,
            message: message.into(),
        }
    }

    /// This machine lacks something.
    pub fn lacking(message: impl Into<String>) -> Failure {
        Failure {
            exit_code: LACKING,
            message: message.into(),
        }
    }

    /// The exit code of a command; says on standard error why it failed.
    pub fn end(result: Result<u8, Failure>) -> u8 {
        result.unwrap_or_else(|Failure { exit_code, message }| {
            // Standard error may be closed; that must not hide the exit code.
            for line in message.lines() {
                let _ = writeln!(std::io::stderr(), "dormouse: {line}");
            }
            exit_code
        })
    }
}
