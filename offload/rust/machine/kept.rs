//! The small core's memory that is kept from one job to the next, where each job runs in an emulator of its own:
//! the executor's struct with the index of its code cache, the cache, and the target tables
//! (`target/boards/mps2-an385.h` has the addresses, `target/main.c` the names).

use std::cell::Cell;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::error::{OffloadError, io};
use crate::machine::loader;

const PARTS: [(&str, u32); 4] = [
    ("executor.bin", 0x203a_0000),
    ("cache.bin", 0x2020_0000),
    ("table.bin", 0x8000),
    ("other-table.bin", 0x2000_0000),
];

/// What the last job left, if it left something.
#[derive(Debug)]
pub struct Kept {
    folder: TempDir,
    lends: Cell<bool>,
}

impl Kept {
    /// Nothing.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn new() -> Result<Kept, OffloadError> {
        let folder = tempfile::tempdir().map_err(io("create", "a folder for the code cache"))?;
        Ok(Kept {
            folder,
            lends: Cell::new(false),
        })
    }

    /// Whether the next jobs begin with it as it is now, and what they leave is not taken.
    pub fn lend(&self, lends: bool) {
        self.lends.set(lends);
    }

    /// The emulator's options with which its memory has that.
    pub(super) fn words(&self) -> Vec<String> {
        let files = PARTS.map(|(name, address)| (self.folder.path().join(name), address));
        if !files.iter().all(|(file, _)| file.is_file()) {
            return Vec::new();
        }
        let words = files.iter();
        words
            .flat_map(|(file, address)| loader(file, *address))
            .collect()
    }

    /// Takes what a job has left in its folder, instead of what the last one had left: that is used up.
    ///
    /// # Errors
    /// A file cannot be moved or removed.
    pub(super) fn take(&self, from: &Path) -> Result<(), OffloadError> {
        if self.lends.get() {
            return Ok(());
        }
        for (name, _) in PARTS {
            let (left, kept) = (from.join(name), self.folder.path().join(name));
            if left.is_file() {
                fs::rename(&left, &kept).map_err(io("move", &left))?;
            } else if kept.is_file() {
                fs::remove_file(&kept).map_err(io("remove", &kept))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_leaves_nothing_or_not_all_leaves_nothing_to_the_next() {
        let (kept, run) = (Kept::new().unwrap(), tempfile::tempdir().unwrap());
        assert!(kept.words().is_empty());
        for (name, _) in PARTS {
            fs::write(run.path().join(name), "1").unwrap();
        }
        kept.take(run.path()).unwrap();
        assert_eq!(kept.words().len(), 2 * PARTS.len());
        kept.lend(true);
        kept.take(run.path()).unwrap();
        assert_eq!(kept.words().len(), 2 * PARTS.len());
        kept.lend(false);
        fs::write(run.path().join(PARTS[0].0), "1").unwrap();
        kept.take(run.path()).unwrap();
        assert!(kept.words().is_empty());
    }
}
