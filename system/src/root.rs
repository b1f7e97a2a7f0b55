//! The files of a machine (`/proc`, `/sys`, cgroups, `/run`) below one root, so that a test can
//! provide a whole machine in a temporary directory.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What a made-up machine does after a file was written; gets the path and the text.
pub type Reaction = Box<dyn Fn(&Root, &str, &str) -> io::Result<()> + Send + Sync>;

/// A machine's files. Paths are relative to the root; a leading `/` is ignored, so
/// `sys/power/state` and `/sys/power/state` name the same file.
pub struct Root {
    path: PathBuf,
    reaction: Option<Reaction>,
}

impl Root {
    /// The machine that this program runs on.
    pub fn host() -> Root {
        Root::at("/")
    }

    /// A machine whose files are below `path`.
    pub fn at(path: impl Into<PathBuf>) -> Root {
        Root {
            path: path.into(),
            reaction: None,
        }
    }

    /// A machine below `path` that answers writes: `reaction` runs after the text is in the file.
    pub fn reacting(path: impl Into<PathBuf>, reaction: Reaction) -> Root {
        Root {
            path: path.into(),
            reaction: Some(reaction),
        }
    }

    /// The absolute path of a file, for messages and for opening.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.path.join(relative.trim_start_matches('/'))
    }

    /// Whether there is such a file or directory.
    pub fn exists(&self, relative: &str) -> bool {
        self.path(relative).exists()
    }

    /// The file's text without white space at its end.
    ///
    /// # Errors
    /// What the file system reports. Bytes that are not UTF-8 are replaced, not refused.
    pub fn read(&self, relative: &str) -> io::Result<String> {
        let bytes = fs::read(self.path(relative))?;
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        text.truncate(text.trim_end().len());
        Ok(text)
    }

    /// Writes a whole attribute in one `write(2)`, as sysfs requires. Never creates a file.
    ///
    /// # Errors
    /// There is no such attribute, or the kernel refuses the text.
    pub fn write(&self, relative: &str, text: &str) -> io::Result<()> {
        write_attribute(&self.path(relative), text)?;
        match &self.reaction {
            Some(reaction) => reaction(self, relative, text),
            None => Ok(()),
        }
    }

    /// Creates a file with its parent directories, for tests that provide a machine.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn create(&self, relative: &str, text: &str) -> io::Result<()> {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(path, text)
    }

    /// The names in a directory, sorted; none if there is no such directory.
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

    /// The names of the subdirectories, sorted; symbolic links are not followed.
    pub fn list_directories(&self, relative: &str) -> Vec<String> {
        let is_directory = |name: &String| {
            fs::symlink_metadata(self.path(relative).join(name)).is_ok_and(|facts| facts.is_dir())
        };
        self.list(relative)
            .into_iter()
            .filter(is_directory)
            .collect()
    }

    /// The last component of a symbolic link's target.
    pub fn link_name(&self, relative: &str) -> Option<String> {
        let target = fs::read_link(self.path(relative)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Root({})", self.path.display())
    }
}

/// Writes a whole attribute of procfs, sysfs or a cgroup in one `write(2)`. Unlike `fs::write`, it
/// never creates a file: where the attribute is gone, that is an error.
///
/// # Errors
/// There is no such attribute, or the kernel refuses the text or a part of it.
pub fn write_attribute(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    if file.write(text.as_bytes())? == text.len() {
        return Ok(());
    }
    let what = "the kernel took only a part of the text";
    Err(io::Error::new(io::ErrorKind::WriteZero, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        (directory, root)
    }

    #[test]
    fn a_missing_attribute_is_never_created() {
        let (_directory, root) = empty();
        assert!(root.write("sys", "1").is_err());
        assert!(!root.exists("sys"));
    }

    #[test]
    fn a_shorter_value_replaces_a_longer_one_whole() {
        let (_directory, root) = empty();
        root.create("sys/state", "online_movable\n").unwrap();
        assert_eq!(root.read("/sys/state").unwrap(), "online_movable");
        root.write("/sys/state", "offline").unwrap();
        assert_eq!(root.read("sys/state").unwrap(), "offline");
    }

    #[test]
    fn directories_are_listed_apart_from_files_and_links() {
        let (_directory, root) = empty();
        root.create("sys/b/file", "").unwrap();
        root.create("sys/a", "").unwrap();
        std::os::unix::fs::symlink("b", root.path("sys/c")).unwrap();
        assert_eq!(root.list("sys"), ["a", "b", "c"]);
        assert_eq!(root.list_directories("sys"), ["b"]);
        assert_eq!(root.link_name("sys/c").as_deref(), Some("b"));
        assert_eq!(root.list("nothing"), [] as [&str; 0]);
    }
}
