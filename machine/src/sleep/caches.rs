//! Writes dirty pages out and drops what can be read again, so that it is neither migrated nor
//! saved. Compaction is left out on purpose: saved and free pages are tracked page by page, so
//! contiguous ones gain nothing that would pay for moving them.

use dormouse_system::Root;

use crate::error::SleepError;

const DROP_CACHES: &str = "proc/sys/vm/drop_caches";

/// Writes all dirty pages and inodes to their disks.
pub fn sync() {
    rustix::fs::sync();
}

/// Drops clean page cache, dentries and inodes.
///
/// # Errors
/// The kernel refuses the write.
pub fn drop_clean(root: &Root) -> Result<(), SleepError> {
    root.write(DROP_CACHES, "3").map_err(SleepError::write(
        "drop clean page cache",
        root.path(DROP_CACHES),
        "run this as root, outside of a container",
    ))
}
