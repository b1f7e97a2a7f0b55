//! What verbs print.

use std::io::{self, Write};

use serde::Serialize;

use super::CliError;

/// Writes text to standard output; a reader who has gone away ends the program.
pub fn text(text: &str) -> Result<(), CliError> {
    let written = io::stdout()
        .write_all(text.as_bytes())
        .and_then(|()| io::stdout().flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result
            .map_err(|error| CliError::Failed(format!("cannot write to standard output: {error}"))),
    }
}

/// Writes one JSON object on one line.
pub fn json(value: &impl Serialize) -> Result<(), CliError> {
    let line = serde_json::to_string(value);
    let line = line.map_err(|error| CliError::Failed(error.to_string()))?;
    text(&format!("{line}\n"))
}
