//! trace.dat through the program trace-cmd: its format is trace-cmd's own business, and no
//! library that a static program could use reads it.

use std::path::Path;
use std::process::Command;

use super::ReadError;

/// What `trace-cmd report` makes of the file.
pub fn text_of(path: &Path) -> Result<String, ReadError> {
    let failed = |why: String| ReadError::TraceDat {
        path: path.to_owned(),
        why,
    };
    // -t: nanoseconds.
    let output = Command::new("trace-cmd")
        .args(["report", "-t", "-i"])
        .arg(path)
        .output()
        .map_err(|error| failed(format!("trace-cmd: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(said.trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
