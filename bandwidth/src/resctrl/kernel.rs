//! What is asked of the kernel through resctrl, apart from reading files.

use std::fs;
use std::io;
use std::path::Path;

/// The kernel, or a fake for tests.
pub trait Kernel: Send {
    /// Creates a MON group, which gets an RMID.
    ///
    /// # Errors
    /// `ENOSPC`: all RMIDs are in use; `EBUSY`: those of removed groups are still in limbo.
    fn create(&self, group: &Path) -> io::Result<()>;

    /// Removes a group; its tasks return to its CTRL_MON group, and its RMID is free for reuse.
    ///
    /// # Errors
    /// It is no empty folder of resctrl.
    fn remove(&self, group: &Path) -> io::Result<()>;

    /// Moves a thread into a group.
    ///
    /// # Errors
    /// `EINVAL`: it belongs to another CTRL_MON group; `ESRCH`: it has ended.
    fn assign(&self, group: &Path, thread: i32) -> io::Result<()>;

    /// The threads of a process; none if it has ended.
    fn threads(&self, process: i32) -> Vec<i32>;
}

/// This machine's kernel.
#[derive(Clone, Copy, Debug)]
pub struct Linux;

impl Kernel for Linux {
    fn create(&self, group: &Path) -> io::Result<()> {
        fs::create_dir(group)
    }

    fn remove(&self, group: &Path) -> io::Result<()> {
        fs::remove_dir(group)
    }

    fn assign(&self, group: &Path, thread: i32) -> io::Result<()> {
        fs::write(group.join("tasks"), format!("{thread}\n"))
    }

    fn threads(&self, process: i32) -> Vec<i32> {
        let entries = fs::read_dir(format!("/proc/{process}/task"));
        let name = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(name)
            .collect()
    }
}
