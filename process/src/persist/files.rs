//! Files that a program writes must be durable before an epoch refers to them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::procfs;
use crate::ptrace::{Pid, sys};
use crate::state::{Backing, Tree};

/// Threads that sync files at a time: each flushes the disk's cache, and the kernel makes one flush of those
/// that wait meanwhile.
const SYNCERS_MAX: usize = 16;
/// For fewer files another thread is not worth its start.
const FILES_OF_SYNCER: usize = 4;

/// Syncs the data of every regular file that these processes have open or mapped for writing.
/// What cannot be synced is logged: its contents after power loss are what they are.
pub fn sync(pids: &[Pid]) {
    for (path, error) in sync_those(pids, |_| true) {
        // A message queue, say, is never on a medium: the kernel answers EINVAL.
        if error.raw_os_error() != Some(libc::EINVAL) {
            tracing::warn!(path, "cannot be synced: {error}");
        }
    }
}

/// The same for files that are mapped for writing only, of a program that runs on: little is left
/// for [`settle`] then.
pub fn sync_mapped(pids: &[Pid]) {
    let links = pids.iter().flat_map(|pid| mapped(*pid));
    let mapped: HashSet<_> = links.filter_map(|link| identity(&link)).collect();
    sync_those(pids, |file| mapped.contains(&file));
}

/// Writes out what a stopped tree has stored into mapped files, and whether there are such files. The
/// kernel changes a file's time at the first store to a page that is clean: a store after this is
/// noticed, and a store to a page that is still dirty would not be.
///
/// # Errors
/// The path of a file that cannot be written out.
pub fn settle(tree: &mut Tree, pids: &[Pid]) -> Result<bool, (String, io::Error)> {
    let mappings = tree.processes.iter().flat_map(|process| &process.mappings);
    let images: HashSet<u32> = mappings
        .filter(|mapping| mapping.shared)
        .filter_map(|mapping| match mapping.backing {
            // One that is protected now may be dirty, and stored into later without a fault.
            Backing::Image { image, writable } => writable.then_some(image),
            _ => None,
        })
        .collect();
    if images.is_empty() {
        return Ok(false);
    }
    let path_of = |image: &u32| tree.images[*image as usize].path.clone();
    let mut left: HashMap<_, _> = images
        .iter()
        .map(path_of)
        .filter_map(|path| Some((identity(&path)?, path)))
        .collect();
    let inside: HashSet<_> = left.keys().copied().collect();
    let failed = sync_those(pids, |file| {
        inside.contains(&file) && left.remove(&file).is_some()
    });
    let (_, rest): (Vec<_>, Vec<_>) = left.into_iter().unzip();
    let rest = rest.into_iter().filter_map(|path| {
        let synced = File::open(&path).and_then(|file| file.sync_data());
        synced.err().map(|error| (path, error))
    });
    if let Some(failed) = failed.into_iter().chain(rest).next() {
        return Err(failed);
    }
    // A file system in user space or on a network gives a file its time when it is written out.
    for image in images {
        let image = &mut tree.images[image as usize];
        if let Ok(metadata) = fs::metadata(&image.path) {
            image.modified_ns = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
        }
    }
    Ok(true)
}

/// The newest time of change of a tree's files, nanoseconds since 1970: a change within the same tick
/// of the clock would have the same time.
pub fn newest_ns(tree: &Tree) -> i64 {
    let images = tree.images.iter().chain(&tree.written);
    images.map(|image| image.modified_ns).max().unwrap_or(0)
}

fn identity(path: &str) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    metadata
        .is_file()
        .then_some((metadata.dev(), metadata.ino()))
}

/// Syncs each file once that `wanted` accepts by device and inode; what failed.
fn sync_those(
    pids: &[Pid],
    mut wanted: impl FnMut((u64, u64)) -> bool,
) -> Vec<(String, io::Error)> {
    let mut done = HashSet::new();
    let mut files = Vec::new();
    for pid in pids {
        for path in open_for_writing(*pid).into_iter().chain(mapped(*pid)) {
            let Some(file) = identity(&path) else {
                continue;
            };
            if done.insert(file) && wanted(file) {
                files.push((*pid, path));
            }
        }
    }
    let next = AtomicUsize::new(0);
    let some = || {
        let mut failed = Vec::new();
        while let Some((pid, path)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let synced = open(*pid, path).and_then(|file| file.sync_data());
            failed.extend(synced.err().map(|error| (path.clone(), error)));
        }
        failed
    };
    let others = SYNCERS_MAX
        .min(files.len().div_ceil(FILES_OF_SYNCER))
        .saturating_sub(1);
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..others).map(|_| scope.spawn(some)).collect();
        let mut failed = some();
        for other in others {
            failed.extend(other.join().unwrap_or_default());
        }
        failed
    })
}

/// To open a file anew would break a lease that the program has of it.
fn open(pid: Pid, link: &str) -> io::Result<File> {
    let number = link.strip_prefix(&format!("/proc/{pid}/fd/"));
    let number = number.and_then(|number| number.parse::<i32>().ok());
    let Some(number) = number else {
        return File::open(link);
    };
    let info = procfs::text(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
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
    let Ok(text) = procfs::text(format!("/proc/{pid}/fdinfo/{number}")) else {
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

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, OwnedFd};

    use super::*;

    /// Message queues are files that cannot be synced: each failure is one of them.
    #[test]
    fn each_file_is_synced_once_however_many_threads_do_it() {
        const QUEUES: usize = 40;
        let own = std::process::id();
        let queues = (0..QUEUES).map(|at| {
            let name = std::ffi::CString::new(format!("/dormouse-sync-{own}-{at}")).unwrap();
            // SAFETY: all bytes of this C structure may be zero.
            let mut attributes: libc::mq_attr = unsafe { std::mem::zeroed() };
            (attributes.mq_maxmsg, attributes.mq_msgsize) = (1, 1);
            // SAFETY: name and attributes live; the descriptor is new and ours.
            unsafe {
                let flags = libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC;
                let fd = libc::mq_open(name.as_ptr(), flags, 0o600, &raw mut attributes);
                let error = io::Error::last_os_error();
                libc::mq_unlink(name.as_ptr());
                assert!(fd >= 0, "{error}");
                OwnedFd::from_raw_fd(fd)
            }
        });
        let queues: Vec<OwnedFd> = queues.collect();
        let file = tempfile::tempfile().unwrap();
        let kept = [file.try_clone().unwrap(), file];
        let wanted: HashSet<_> = queues
            .iter()
            .map(std::os::fd::AsRawFd::as_raw_fd)
            .chain(kept.iter().map(std::os::fd::AsRawFd::as_raw_fd))
            .map(|fd| identity(&format!("/proc/self/fd/{fd}")).unwrap())
            .collect();
        assert_eq!(wanted.len(), QUEUES + 1);
        let mut asked = 0;
        let failed = sync_those(&[own as Pid], |file| {
            let wants = wanted.contains(&file);
            asked += usize::from(wants);
            wants
        });
        assert_eq!(asked, QUEUES + 1, "each once");
        let paths: HashSet<_> = failed.iter().map(|(path, _)| path).collect();
        assert_eq!((failed.len(), paths.len()), (QUEUES, QUEUES));
        let invalid = |(_, error): &(String, io::Error)| error.raw_os_error() == Some(libc::EINVAL);
        assert!(failed.iter().all(invalid), "{failed:?}");
    }
}
