//! Runs tpm2-tools: the TPM's own commands, without a TPM library in the wake's static binary.

use std::io::Write;
use std::process::{Command, Stdio};

use super::KeyError;

/// The tools and the TPM that they talk to.
#[derive(Clone, Debug)]
pub(crate) struct Tpm2 {
    tcti: Option<String>,
}

impl Tpm2 {
    pub(crate) fn new(tcti: Option<String>) -> Self {
        Self { tcti }
    }

    /// Runs one of them; `input` is what it may read.
    pub(crate) fn run(&self, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, KeyError> {
        let failed = |reason: String| KeyError::Command {
            program: format!("tpm2 {}", arguments[0]),
            reason,
        };
        let mut command = Command::new("tpm2");
        command.args(arguments);
        if let Some(tcti) = &self.tcti {
            command.args(["-T", tcti]);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("{error}; it comes with the package tpm2-tools")))?;
        // A command that reads nothing may be gone already; its exit status tells.
        let _ = child.stdin.take().expect("piped").write_all(input);
        let output = child
            .wait_with_output()
            .map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = said.lines().filter(|line| line.contains("ERROR")).collect();
        Err(failed(match errors.as_slice() {
            [] => said.trim().to_owned(),
            lines => lines.join("; "),
        }))
    }

    /// A TPM without a resource manager has room for three objects only, and keeps those of the
    /// commands before. With one (`/dev/tpmrm0`) there is nothing to remove.
    pub(crate) fn flush(&self) {
        let _ = self.run(&["flushcontext", "-t"], &[]);
    }
}
