//! Files that a program writes must be durable before an epoch refers to them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use crate::procfs;
use crate::ptrace::{Pid, sys};

/// Syncs the data of every regular file that these processes have open or mapped for writing.
/// What cannot be synced is logged: its contents after power loss are what they are.
pub fn sync(pids: &[Pid]) {
    let mut done = HashSet::new();
    for pid in pids {
        for path in open_for_writing(*pid).into_iter().chain(mapped(*pid)) {
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            if !metadata.is_file() || !done.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            let synced = open(*pid, &path).and_then(|file| file.sync_data());
            // A message queue, say, is never on a medium: the kernel answers EINVAL.
            if let Err(error) = synced
                && error.raw_os_error() != Some(libc::EINVAL)
            {
                tracing::warn!(pid, path, "cannot be synced: {error}");
            }
        }
    }
}

/// To open a file anew would break a lease that the program has of it.
fn open(pid: Pid, link: &str) -> std::io::Result<File> {
    let number = link.strip_prefix(&format!("/proc/{pid}/fd/"));
    let number = number.and_then(|number| number.parse::<i32>().ok());
    let Some(number) = number else {
        return File::open(link);
    };
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
    match info.contains(": LEASE ") {
        true => sys::take_fd(pid, number).map(File::from),
        false => File::open(link),
    }
}

/// Links to the descriptors that a process has open for writing.
pub fn open_for_writing(pid: Pid) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    let numbers = entries.into_iter().flatten().flatten();
    numbers
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|number| writes(pid, number))
        .map(|number| format!("/proc/{pid}/fd/{number}"))
        .collect()
}

fn writes(pid: Pid, number: &str) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")) else {
        return false;
    };
    let flags = procfs::field(&text, "flags");
    let flags = flags.and_then(|flags| i32::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

fn mapped(pid: Pid) -> Vec<String> {
    let maps = procfs::maps(pid).unwrap_or_default();
    maps.into_iter()
        .filter(|line| line.shared && line.inode != 0 && line.protection & libc::PROT_WRITE != 0)
        .map(|line| format!("/proc/{pid}/map_files/{:x}-{:x}", line.start, line.end))
        .collect()
}
