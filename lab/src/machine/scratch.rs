//! A second disk of a machine: empty, or with a copy of a folder of this machine's.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::Machine;
use crate::build::command::find_program;
use crate::error::{Doing, LabError};

const BLOCK_BYTES: u64 = 4096;

impl Machine {
    /// Makes the scratch disk, a file system of so many bytes that holds a copy of the folder, if one is given.
    ///
    /// # Errors
    /// mke2fs is missing or fails: the folder cannot be read, or is larger than the disk.
    pub fn make_scratch_disk(&self, bytes: u64, contents: Option<&Path>) -> Result<(), LabError> {
        let path = self.scratch_disk();
        // mke2fs takes a file that is there as it is.
        let _ = fs::remove_file(&path);
        let mut command = Command::new(find_program("mke2fs", "e2fsprogs")?);
        command
            .args([
                "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-J", "size=8",
            ])
            // No lazy initialisation: the kernel would write to the fresh disk in the background.
            .args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        if let Some(folder) = contents {
            command.arg("-d").arg(folder);
        }
        let output = command
            .arg(&path)
            .arg((bytes / BLOCK_BYTES).to_string())
            .output()
            .doing("run mke2fs")?;
        if output.status.success() {
            return Ok(());
        }
        // It would be taken for a whole one.
        let _ = fs::remove_file(&path);
        Err(LabError::Unexpected(format!(
            "mke2fs failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )))
    }
}
