//! Settings that were changed, and how to put each back, in reverse order.

use std::fs;
use std::path::{Path, PathBuf};

use super::{RecordError, failed};

enum Step {
    Write(PathBuf, String),
    RemoveDirectory(PathBuf),
    Unmount(PathBuf),
}

/// What is to be put back. Dropped without [`Restore::put_back`], it does so all the same.
#[derive(Default)]
pub struct Restore {
    steps: Vec<Step>,
}

impl Restore {
    /// Writes a setting and notes what it was.
    pub fn write(&mut self, path: &Path, value: &str) -> Result<(), RecordError> {
        let before = fs::read_to_string(path).map_err(failed(path, "read"))?;
        self.change(path, before.trim(), value)
    }

    /// The same for a setting that shows its choice in brackets: `s2idle [deep]`.
    pub fn choose(&mut self, path: &Path, value: &str) -> Result<(), RecordError> {
        let before = fs::read_to_string(path).map_err(failed(path, "read"))?;
        let chosen = chosen(&before).to_owned();
        self.change(path, &chosen, value)
    }

    fn change(&mut self, path: &Path, before: &str, value: &str) -> Result<(), RecordError> {
        if before == value {
            return Ok(());
        }
        // Noted before it is written: a write that fails half-way is put back, too.
        self.when_done(path, before);
        fs::write(path, value).map_err(failed(path, "written"))
    }

    /// Writes this at the end.
    pub fn when_done(&mut self, path: &Path, value: &str) {
        self.steps
            .push(Step::Write(path.to_owned(), value.to_owned()));
    }

    /// Removes a directory at the end.
    pub fn remove_when_done(&mut self, path: &Path) {
        self.steps.push(Step::RemoveDirectory(path.to_owned()));
    }

    /// Unmounts at the end.
    pub fn unmount_when_done(&mut self, path: &Path) {
        self.steps.push(Step::Unmount(path.to_owned()));
    }

    /// Puts everything back; what could not be, in words.
    pub fn put_back(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        while let Some(step) = self.steps.pop() {
            let (path, result) = match &step {
                Step::Write(path, value) => (path, fs::write(path, value)),
                Step::RemoveDirectory(path) => (path, fs::remove_dir(path)),
                Step::Unmount(path) => {
                    let flags = rustix::mount::UnmountFlags::empty();
                    (
                        path,
                        rustix::mount::unmount(path, flags).map_err(Into::into),
                    )
                }
            };
            if let Err(error) = result {
                problems.push(format!("{}: not put back: {error}", path.display()));
            }
        }
        problems
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        for problem in self.put_back() {
            tracing::warn!("{problem}");
        }
    }
}

/// `deep` of `s2idle [deep]`; a value without brackets as it is.
pub fn chosen(text: &str) -> &str {
    let text = text.trim();
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text, |(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_put_back_last_first_also_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("setting");
        fs::write(&path, "s2idle [deep]\n").unwrap();
        {
            let mut restore = Restore::default();
            restore.choose(&path, "s2idle").unwrap();
            restore.write(&path, "other").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "other");
            assert!(restore.write(&folder.path().join("none"), "1").is_err());
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "deep");
        let mut restore = Restore::default();
        restore.when_done(&folder.path().join("no/such"), "1");
        assert_eq!(restore.put_back().len(), 1);
    }
}
