//! What a persisted container needs of the node: the static command, rights, a directory for its
//! store.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::spec::{HostStore, NEEDED, Node};

/// Type of the ELF program header that names a dynamic loader.
const PT_INTERP: u32 = 3;

/// Why this node cannot persist containers.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The command is missing or cannot be used.
    #[error(
        "{path}, which a persisted container is started with: {why} (`command` in \
         /etc/dormouse/oci.toml names the static dormouse command)"
    )]
    Command {
        /// Where it should be.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The runtime itself lacks a right.
    #[error(
        "a persisted container's tracker needs {0} ({1}), and this runtime has not got it to give"
    )]
    Right(&'static str, &'static str),
    /// The store's directory cannot be made.
    #[error("{path}: cannot make the directory of the store: {source}")]
    Store {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Whether the node has what a persisted container needs.
///
/// # Errors
/// What it lacks.
pub fn check(node: &Node) -> Result<(), NodeError> {
    let path = node.command.clone();
    match is_static(&path) {
        Ok(true) => {}
        Ok(false) => {
            let why = "it needs libraries, which the container has not got".to_owned();
            return Err(NodeError::Command { path, why });
        }
        Err(error) => {
            let why = error.to_string();
            return Err(NodeError::Command { path, why });
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = dormouse_process::procfs::field(&status, "CapBnd")
        .and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or(!0);
    for (name, reason) in NEEDED {
        let number = dormouse_process::tracker::launch::number_of(name);
        if number.is_some_and(|number| mask & 1 << number == 0) {
            return Err(NodeError::Right(name, reason));
        }
    }
    Ok(())
}

/// Whether an executable needs no loader: a 64-bit ELF file without `PT_INTERP`.
fn is_static(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut header = [0; 64];
    file.read_exact(&mut header)?;
    if &header[..5] != b"\x7fELF\x02" {
        return Err(io::Error::other("it is no 64-bit ELF file"));
    }
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    let half = |at: usize| u16::from_le_bytes(header[at..at + 2].try_into().expect("2 bytes"));
    let (start, entry_bytes, entries) = (word(32), half(54), half(56));
    file.seek(SeekFrom::Start(start))?;
    let mut table = vec![0; usize::from(entry_bytes) * usize::from(entries)];
    file.read_exact(&mut table)?;
    let kinds = table
        .chunks_exact(usize::from(entry_bytes).max(4))
        .map(|entry| u32::from_le_bytes(entry[..4].try_into().expect("4 bytes")));
    Ok(!kinds.into_iter().any(|kind| kind == PT_INTERP))
}

/// Makes the directory of a store for the container's root user alone.
///
/// # Errors
/// It cannot be made.
pub fn make_store(store: &HostStore) -> Result<(), NodeError> {
    let made = (|| {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&store.path)?;
        if std::fs::metadata(&store.path)?.uid() != store.owner {
            std::os::unix::fs::chown(&store.path, Some(store.owner), None)?;
        }
        Ok(())
    })();
    made.map_err(|source| NodeError::Store {
        path: store.path.clone(),
        source,
    })
}

/// Replaces a file as a whole; its owner and mode stay.
///
/// # Errors
/// It cannot be replaced.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let before = std::fs::metadata(path)?;
    let temporary = path.with_extension(format!("dormouse-{}", std::process::id()));
    let done = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(before.mode() & 0o7777)
            .open(&temporary)?;
        file.write_all(bytes)?;
        std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()))?;
        std::fs::rename(&temporary, path)
    })();
    if done.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    done
}

/// A user's home directory by the container's own list of users. Symbolic links are not followed:
/// they would lead to the node's files.
pub fn home(bundle: &Path, config: &str, user: u32) -> Option<String> {
    let config: Value = serde_json::from_str(config).ok()?;
    let root = bundle.join(config["root"]["path"].as_str()?);
    let etc = root.join("etc");
    if !std::fs::symlink_metadata(&etc).ok()?.is_dir() {
        return None;
    }
    let mut text = String::new();
    OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(etc.join("passwd"))
        .ok()?
        .read_to_string(&mut text)
        .ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let number = fields.nth(2)?.parse::<u32>().ok()?;
        (number == user).then(|| fields.nth(2).map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_needs_libraries_is_refused() {
        assert!(!is_static(Path::new("/bin/sh")).expect("an ELF file"));
        let own = std::env::current_exe().expect("this test");
        assert!(
            is_static(&own).expect("an ELF file"),
            "tests are linked as the command is"
        );
        assert!(is_static(Path::new("/etc/passwd")).is_err());
    }

    #[test]
    fn a_home_directory_is_looked_up_in_the_container_and_never_on_the_node() {
        let bundle = tempfile::tempdir().expect("a directory");
        let etc = bundle.path().join("rootfs/etc");
        std::fs::create_dir_all(&etc).expect("made");
        let config = "{\"root\":{\"path\":\"rootfs\"}}";
        let line = "root:x:0:0:root:/root:/bin/sh\nredis:x:999:999::/data:/bin/false\n";
        std::fs::write(etc.join("passwd"), line).expect("written");
        assert_eq!(home(bundle.path(), config, 999).as_deref(), Some("/data"));
        assert_eq!(home(bundle.path(), config, 1), None);
        std::fs::remove_file(etc.join("passwd")).expect("removed");
        std::os::unix::fs::symlink("/etc/passwd", etc.join("passwd")).expect("made");
        assert_eq!(home(bundle.path(), config, 0), None);
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config.json");
        assert!(replace(&path, b"new").is_err(), "there is none");
        std::fs::write(&path, "old").expect("written");
        replace(&path, b"new").expect("replaced");
        assert_eq!(std::fs::read(&path).expect("read"), b"new");
        assert_eq!(
            std::fs::read_dir(directory.path()).expect("listed").count(),
            1
        );
    }
}
