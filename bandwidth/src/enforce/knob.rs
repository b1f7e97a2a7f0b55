//! A knob of the kernel: a file with a value that stays until it is written again.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::EnforceError;

/// A knob, and what makes the kernel take its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// The file.
    pub path: PathBuf,
    /// The `state` file of the kdamond that must take over the value, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kdamond: Option<PathBuf>,
}

impl Knob {
    /// The value in force.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn value(&self) -> Result<String, EnforceError> {
        let text = fs::read_to_string(&self.path).map_err(EnforceError::file(&self.path))?;
        Ok(text.trim().to_owned())
    }

    /// Writes a value. A kdamond that runs takes it over at once, one that does not when it starts.
    ///
    /// # Errors
    /// The kernel refuses it, or the file is gone.
    pub fn write(&self, value: &str) -> Result<(), EnforceError> {
        write(&self.path, value)?;
        let Some(state) = &self.kdamond else {
            return Ok(());
        };
        match fs::read_to_string(state).is_ok_and(|text| text.trim() == "on") {
            true => write(state, "commit"),
            false => Ok(()),
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), EnforceError> {
    // Not `fs::write`, which would create a file where the knob has gone.
    let mut file = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .map_err(EnforceError::file(path))?;
    file.write_all(format!("{text}\n").as_bytes())
        .map_err(EnforceError::file(path))
}
