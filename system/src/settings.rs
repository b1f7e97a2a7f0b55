//! Settings of `/proc` and `/sys` that are changed for a while and then put back.

use std::path::Path;

use crate::file::FileError;
use crate::root::write_attribute;
use crate::undo::Undo;

/// What a setting offers and what it has: `s2idle [deep]` has `deep`; a value without brackets is
/// returned as it is.
pub fn chosen(text: &str) -> &str {
    let text = text.trim();
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(text, |(value, _)| value)
}

/// The value that a setting has: of several in brackets, the chosen one.
///
/// # Errors
/// It is missing or cannot be read.
pub fn value(path: &Path) -> Result<String, FileError> {
    let text = std::fs::read_to_string(path).map_err(FileError::new(path, "read"))?;
    Ok(chosen(&text).to_owned())
}

/// Settings that were changed. They are put back in reverse order by [`Settings::put_back`], or
/// else when this is dropped.
#[derive(Default)]
pub struct Settings {
    undo: Undo<'static>,
}

impl Settings {
    /// Writes a setting and notes its former value; leaves it alone where it has the value.
    ///
    /// # Errors
    /// The setting is missing, or the kernel refuses the value.
    pub fn write(&mut self, path: &Path, new: &str) -> Result<(), FileError> {
        let before = value(path)?;
        if before == new {
            return Ok(());
        }
        // Noted before it is written: a write that fails half-way is put back, too.
        self.write_later(path, &before);
        write_attribute(path, new).map_err(FileError::new(path, "written"))
    }

    /// Writes this value at the end.
    pub fn write_later(&mut self, path: &Path, text: &str) {
        let text = text.to_owned();
        self.push(path, move |path| write_attribute(path, &text));
    }

    /// Removes an empty directory at the end.
    pub fn remove_later(&mut self, path: &Path) {
        self.push(path, |path| std::fs::remove_dir(path));
    }

    /// Unmounts at the end.
    pub fn unmount_later(&mut self, path: &Path) {
        let flags = rustix::mount::UnmountFlags::empty();
        self.push(path, move |path| Ok(rustix::mount::unmount(path, flags)?));
    }

    fn push(&mut self, path: &Path, step: impl FnOnce(&Path) -> std::io::Result<()> + 'static) {
        let name = path.display().to_string();
        let path = path.to_owned();
        self.undo.push(name, move || {
            step(&path).map_err(|error| format!("not put back: {error}"))
        });
    }

    /// Puts everything back. Returns what could not be, in words.
    pub fn put_back(&mut self) -> Vec<String> {
        self.undo.run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_chosen_one_of_several_values_is_in_brackets() {
        for (text, value) in [
            ("s2idle [deep]\n", "deep"),
            ("enabled\n", "enabled"),
            ("[a", "[a"),
        ] {
            assert_eq!(chosen(text), value);
        }
    }

    #[test]
    fn changes_are_put_back_in_reverse_order_also_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("setting");
        fs::write(&path, "s2idle [deep]\n").unwrap();
        {
            let mut settings = Settings::default();
            settings.write(&path, "s2idle").unwrap();
            settings.write(&path, "other").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "other");
            let none = folder.path().join("none");
            assert!(settings.write(&none, "1").is_err() && !none.exists());
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "deep");
    }

    #[test]
    fn what_cannot_be_put_back_is_reported_and_does_not_stop_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("instance");
        fs::create_dir(&directory).unwrap();
        let mut settings = Settings::default();
        settings.remove_later(&directory);
        settings.write_later(&folder.path().join("no/such"), "1");
        let problems = settings.put_back();
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].contains("no/such: not put back"),
            "{problems:?}"
        );
        assert!(!directory.exists());
    }
}
