//! Replaces a file so that a reader sees the old or the new contents and never a part.
//!
//! ```text
//!  write PATH.new ─▶ fsync ─▶ rename over PATH ─▶ fsync of the directory
//!                    └────── Durability::Disk only ──────┘
//! ```
//!
//! The temporary name is fixed, not random, so that a crash leaves one file at the most, and the
//! next write replaces it. The caller makes sure that there is one writer, with a lock if need be.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::FileError;

/// What must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The file is whole for every reader. After a power failure it may be the old one. For `/run`
    /// and for status files.
    Readers,
    /// The new file is on the disk when the function returns. For what undoes a change.
    Disk,
}

/// Replaces a file; creates its directory where that is missing.
///
/// # Errors
/// The file system refuses. The old file is then still whole.
pub fn replace(path: &Path, contents: &[u8], durability: Durability) -> Result<(), FileError> {
    let failed = FileError::new(path, "written");
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(&failed)?;
    let new = temporary(path);
    write_new(&new, contents, durability)
        .and_then(|()| fs::rename(&new, path))
        .map_err(&failed)?;
    if durability == Durability::Disk {
        // The new name, too, must be on the disk.
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(&failed)?;
    }
    Ok(())
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn write_new(new: &Path, contents: &[u8], durability: Durability) -> io::Result<()> {
    let mut file = File::create(new)?;
    file.write_all(contents)?;
    match durability {
        Durability::Disk => file.sync_all(),
        Durability::Readers => Ok(()),
    }
}

/// Replaces a file by one line of JSON.
///
/// # Errors
/// As [`replace`], and a value that has no JSON.
pub fn replace_json(
    path: &Path,
    value: &impl Serialize,
    durability: Durability,
) -> Result<(), FileError> {
    let text = serde_json::to_string(value)
        .map_err(|error| FileError::new(path, "written")(error.into()))?;
    replace(path, (text + "\n").as_bytes(), durability)
}

/// Reads a file of JSON; none if there is no such file.
///
/// # Errors
/// It cannot be read, is larger than `max_bytes`, or does not hold such a value
/// ([`io::ErrorKind::InvalidData`]).
pub fn read_json<T: DeserializeOwned>(path: &Path, max_bytes: u64) -> Result<Option<T>, FileError> {
    let failed = FileError::new(path, "read");
    let invalid = |what: String| failed(io::Error::new(io::ErrorKind::InvalidData, what));
    let bytes = match fs::metadata(path) {
        Ok(facts) if facts.len() > max_bytes => {
            let what = format!("{} bytes, more than the {max_bytes} expected", facts.len());
            return Err(invalid(what));
        }
        Ok(_) => fs::read(path).map_err(&failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| invalid(format!("damaged: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::scratch;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
        let (_directory, path) = scratch("a/state.json");
        for durability in [Durability::Disk, Durability::Readers] {
            replace_json(&path, &vec![1, 2], durability).unwrap();
            replace_json(&path, &vec![3], durability).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "[3]\n");
            let names = fs::read_dir(path.parent().unwrap()).unwrap().count();
            assert_eq!(names, 1, "{durability:?}");
        }
        assert_eq!(read_json(&path, 100).unwrap(), Some(vec![3]));
    }

    #[test]
    fn a_failed_write_keeps_the_old_file() {
        let (directory, path) = scratch("state");
        replace(&path, b"old", Durability::Disk).unwrap();
        // A directory stands where the new file would be written.
        fs::create_dir(directory.path().join("state.new")).unwrap();
        let error = replace(&path, b"new", Durability::Disk).unwrap_err();
        assert!(
            error.to_string().contains("state: cannot be written"),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn what_is_missing_damaged_or_too_large_is_told_apart() {
        let (_directory, path) = scratch("state");
        assert_eq!(read_json::<u32>(&path, 10).unwrap(), None);
        fs::write(&path, "{").unwrap();
        let error = read_json::<u32>(&path, 10).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::InvalidData);
        fs::write(&path, "12345678901").unwrap();
        let error = read_json::<u64>(&path, 10).unwrap_err();
        assert!(error.to_string().contains("11 bytes"), "{error}");
    }
}
