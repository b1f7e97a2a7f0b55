//! The lock of an open store: one writer, or any number of readers.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use super::error::{StoreError, io_error};

/// How long a writer waits for readers of a store.
const READERS_WAIT: Duration = Duration::from_secs(5);

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
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let line = locks
        .lines()
        .find(|line| line.contains("FLOCK") && line.split_whitespace().any(|w| w == wanted))?;
    let pid: i32 = line.split_whitespace().nth(4)?.parse().ok()?;
    let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Holder {
        name: format!("process {pid} ({})", command.trim()),
        writes: line.contains("WRITE"),
    })
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
        // Readers (`status`, `list`) finish soon, and must not make a start fail.
        let holder = holder(file);
        let writes = holder.as_ref().is_some_and(|holder| holder.writes);
        if writes || started.elapsed() > READERS_WAIT {
            let name = holder.map(|holder| holder.name);
            return Err(StoreError::InUse {
                path: path.to_owned(),
                holder: name.unwrap_or_else(|| "another process".to_owned()),
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
