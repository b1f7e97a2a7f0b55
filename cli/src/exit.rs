//! Exit codes, and the one place where an error is printed: what, where, what next.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Error, Result};
use dormouse_lab::LabError;
use dormouse_system::exit::FAILED;
pub use dormouse_system::exit::{DIFFERS, LACKING};

/// Prints the error, if it is one, and chooses its exit code.
pub fn code_of(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        // Standard error may be closed; that must not hide the exit code.
        let _ = writeln!(std::io::stderr(), "dormouse: {}", message_of(&error));
        ExitCode::from(number_of(&error))
    })
}

/// The error and its causes; a cause that the message already quotes is not said twice.
fn message_of(error: &Error) -> String {
    let mut message = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !message.contains(&cause) {
            message.push_str(": ");
            message.push_str(&cause);
        }
    }
    message
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

    #[test]
    fn a_cause_is_said_once() {
        let quoted = anyhow!("no such file").context("cannot open x: no such file; make it");
        assert_eq!(message_of(&quoted), "cannot open x: no such file; make it");
        let plain = anyhow!("no such file").context("cannot open x");
        assert_eq!(message_of(&plain), "cannot open x: no such file");
    }
}
