//! Text and JSON on standard output; the program ends quietly when the reader has gone away.

use std::io::{self, Write};

use serde::Serialize;

/// Why nothing was shown.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Standard output is closed, full or broken.
    #[error("cannot write to standard output: {0}")]
    Write(#[from] io::Error),
    /// A value has no JSON, for instance a map whose keys are no text.
    #[error("cannot write this as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Writes text to standard output. If the reader has gone away (`dormouse … | head`), the
/// program ends with exit code 0.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub fn text(text: &str) -> Result<(), OutputError> {
    match write(&mut io::stdout().lock(), text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

/// Writes one JSON object on one line.
///
/// # Errors
/// As [`text`], and a value that has no JSON.
pub fn json(value: &impl Serialize) -> Result<(), OutputError> {
    text(&line(value)?)
}

fn write(output: &mut impl Write, text: &str) -> io::Result<()> {
    output.write_all(text.as_bytes())?;
    output.flush()
}

fn line(value: &impl Serialize) -> Result<String, OutputError> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn an_object_is_one_line() {
        let value = serde_json::json!({"text": "two\nlines"});
        assert_eq!(line(&value).unwrap(), "{\"text\":\"two\\nlines\"}\n");
        let no_text = HashMap::from([(vec![1], 2)]);
        let said = line(&no_text).unwrap_err().to_string();
        assert!(said.starts_with("cannot write this as JSON"), "{said}");
    }

    #[test]
    fn a_failed_write_is_reported() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let error = OutputError::from(write(&mut full.unwrap(), "text").unwrap_err());
        assert!(
            error
                .to_string()
                .starts_with("cannot write to standard output")
        );
    }
}
