//! The lock of an open store: one writer, or any number of readers.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use super::error::{StoreError, io_error};
use crate::procfs::{self, Ending};

/// How long a writer waits for readers of a store.
const READERS_WAIT: Duration = Duration::from_secs(5);
/// How long anyone waits for a writer that was killed: it gives its memory back before its lock.
const KILLED_WAIT: Duration = Duration::from_secs(20);

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For reading only; excludes writers.
    Read,
    /// To write, and only if it exists.
    Write,
    /// To write; made when missing.
    Create,
}

/// The process that has locked a file.
pub(super) struct Holder {
    /// For a message.
    pub name: String,
    /// Whether it may write.
    pub writes: bool,
    /// It is ending, or has ended and left its descriptors to a child that ends after it.
    pub ends: bool,
}

/// The process that has locked a file, as far as the kernel reports it, for a message.
pub fn lock_holder(file: &File) -> Option<String> {
    holder(file).map(|holder| holder.name)
}

/// The process that has locked a file, as far as the kernel reports it.
pub(super) fn holder(file: &File) -> Option<Holder> {
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    let wanted = format!(
        "{:02x}:{:02x}:{}",
        libc::major(device),
        libc::minor(device),
        metadata.ino()
    );
    let locks = procfs::text("/proc/locks").ok()?;
    let line = locks
        .lines()
        .find(|line| line.contains("FLOCK") && line.split_whitespace().any(|w| w == wanted))?;
    let pid: i32 = line.split_whitespace().nth(4)?.parse().ok()?;
    let command = procfs::text(format!("/proc/{pid}/comm")).unwrap_or_default();
    let is_there = std::fs::exists(format!("/proc/{pid}")).unwrap_or(true);
    Some(Holder {
        name: format!("process {pid} ({})", command.trim()),
        writes: line.contains("WRITE"),
        ends: !is_there || procfs::ending(pid) != Ending::No,
    })
}

/// Whether a process has this store open to write: a tracker that runs, starts or restores.
pub fn has_writer(path: &Path) -> bool {
    let holder = File::open(path).ok().and_then(|file| holder(&file));
    holder.is_some_and(|holder| holder.writes)
}

pub(super) fn lock(file: &File, path: &Path, access: Access) -> Result<(), StoreError> {
    let operation = match access {
        Access::Read => FlockOperation::NonBlockingLockShared,
        Access::Write | Access::Create => FlockOperation::NonBlockingLockExclusive,
    };
    let started = Instant::now();
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(io_error(path, "lock it", error.into())),
        }
        // Readers (`status`, `list`) finish soon, and must not make a start fail. Nor must a tracker
        // that was killed a moment ago.
        let holder = holder(file);
        let wait = match &holder {
            Some(holder) if holder.ends => KILLED_WAIT,
            Some(holder) if holder.writes => Duration::ZERO,
            _ => READERS_WAIT,
        };
        if started.elapsed() > wait {
            let name = holder.map(|holder| holder.name);
            return Err(StoreError::InUse {
                path: path.to_owned(),
                holder: name.unwrap_or_else(|| "another process".to_owned()),
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
