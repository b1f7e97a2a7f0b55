//! Exit codes, and the one place where an error is printed: what, where, what next.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Error, Result};
use dormouse_lab::LabError;

/// Something failed.
const FAILED: u8 = 1;
/// This machine lacks something; `dormouse doctor` says what.
pub const LACKING: u8 = 3;
/// Verification failed: data differ.
pub const DIFFERS: u8 = 4;

/// Prints the error, if it is one, and chooses its exit code.
pub fn code_of(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        // Nobody may be listening; that must not hide the exit code.
        let _ = writeln!(std::io::stderr(), "dormouse: {error:#}");
        ExitCode::from(number_of(&error))
    })
}

fn number_of(error: &Error) -> u8 {
    error
        .downcast_ref::<LabError>()
        .map_or(FAILED, LabError::exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn errors_of_the_lab_keep_their_exit_codes() {
        let missing = LabError::MissingTool {
            program: "qemu".to_owned(),
        };
        assert_eq!(number_of(&Error::from(missing)), LACKING);
        let usage = LabError::Usage("no".to_owned());
        assert_eq!(number_of(&Error::from(usage).context("while booting")), 2);
        assert_eq!(number_of(&anyhow!("anything")), FAILED);
    }
}
