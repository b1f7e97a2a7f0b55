//! The files of the machine (/proc, /sys, cgroups, /run) below one root, so that tests can give
//! this crate a whole machine in a temporary directory.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What a fake machine does when a file is written; gets the relative path and the text.
pub type Reaction = Box<dyn Fn(&Tree, &str, &str) -> io::Result<()> + Send + Sync>;

/// All paths are relative to the root: `sys/power/state`.
pub struct Tree {
    root: PathBuf,
    reaction: Option<Reaction>,
}

impl Tree {
    /// This machine.
    pub fn real() -> Tree {
        Tree::at("/")
    }

    /// A machine below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Tree {
        Tree {
            root: root.into(),
            reaction: None,
        }
    }

    /// A machine below `root` that answers writes: after the text is in the file, `reaction` runs.
    pub fn reacting(root: impl Into<PathBuf>, reaction: Reaction) -> Tree {
        Tree {
            root: root.into(),
            reaction: Some(reaction),
        }
    }

    /// The absolute path, for messages and for opening.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// Whether there is such a file or directory.
    pub fn exists(&self, relative: &str) -> bool {
        self.path(relative).exists()
    }

    /// The file's text without white space at its end.
    ///
    /// # Errors
    /// What the file system reports; text that is not UTF-8 is replaced, not refused.
    pub fn read(&self, relative: &str) -> io::Result<String> {
        let bytes = fs::read(self.path(relative))?;
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        text.truncate(text.trim_end().len());
        Ok(text)
    }

    /// Writes a whole attribute in one `write(2)`, as sysfs wants it. Never creates a file: an
    /// attribute that is not there is an error.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn write(&self, relative: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.path(relative))?;
        let written = file.write(text.as_bytes())?;
        if written != text.len() {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                "the kernel took only a part",
            ));
        }
        match &self.reaction {
            Some(reaction) => reaction(self, relative, text),
            None => Ok(()),
        }
    }

    /// The names in a directory, sorted; none where there is no such directory.
    pub fn list(&self, relative: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(relative)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(Result::ok)
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The names of the sub-directories, sorted; symbolic links are not followed.
    pub fn list_directories(&self, relative: &str) -> Vec<String> {
        let is_directory = |name: &String| {
            fs::symlink_metadata(self.path(relative).join(name)).is_ok_and(|m| m.is_dir())
        };
        self.list(relative)
            .into_iter()
            .filter(is_directory)
            .collect()
    }

    /// The last component of what a symbolic link points to.
    pub fn link_name(&self, relative: &str) -> Option<String> {
        let target = fs::read_link(self.path(relative)).ok()?;
        Some(
            Path::new(&target)
                .file_name()?
                .to_string_lossy()
                .into_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_attribute_is_never_created() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::at(directory.path());
        assert!(tree.write("sys", "1").is_err());
        assert!(!tree.exists("sys"));
    }

    #[test]
    fn a_shorter_value_replaces_a_longer_one_whole() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("state"), "online_movable\n").unwrap();
        let tree = Tree::at(directory.path());
        assert_eq!(tree.read("state").unwrap(), "online_movable");
        tree.write("state", "offline").unwrap();
        assert_eq!(tree.read("state").unwrap(), "offline");
    }
}
