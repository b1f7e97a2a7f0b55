//! Files that a program writes must be durable before an epoch refers to them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::procfs;
use crate::ptrace::{Pid, sys};
use crate::state::{Backing, FileKind, Tree};

/// Threads that sync files at a time: each flushes the disk's cache, and the kernel makes one flush of those
/// that wait meanwhile.
const SYNCERS_MAX: usize = 16;
/// For fewer files another thread is not worth its start.
const FILES_OF_SYNCER: usize = 4;

/// Files that an epoch refers to, and that must be durable before it is committed.
#[derive(Debug, Default)]
pub struct Referred {
    /// Processes that have files open or mapped for writing.
    pub pids: Vec<Pid>,
    /// Paths of files that they had open or mapped for writing when they were stopped, or that they have
    /// written and closed since those were last durable.
    pub paths: Vec<String>,
    /// Directories of data (`--data`).
    pub data: Vec<PathBuf>,
}

/// Makes files durable, with their times of change and their names: a restore compares them. Returns the
/// paths of those that could not be synced. That is logged: their contents after a power loss are what
/// they are.
pub fn sync(referred: &Referred) -> HashSet<String> {
    let open = links(&referred.pids, |_| true);
    let mut done: HashSet<Identity> = open.iter().map(|link| link.file).collect();
    for (at, error) in each(&open, |link| link.open()?.sync_all()) {
        // It is tried again by its path: perhaps the program runs on and has closed it.
        done.remove(&open[at].file);
        if error.kind() != io::ErrorKind::NotFound {
            complain(&open[at].path, &error);
        }
    }
    let is_new = |path: &&String| identity(path).is_some_and(|file| done.insert(file));
    let closed: Vec<&String> = referred.paths.iter().filter(is_new).collect();
    let mut failed = HashSet::new();
    for (at, error) in each(&closed, |path| at_once(path)?.sync_all()) {
        // One that was removed since has nothing to be compared with.
        if error.kind() != io::ErrorKind::NotFound {
            complain(closed[at], &error);
            failed.insert(closed[at].clone());
        }
    }
    let parents = referred
        .paths
        .iter()
        .filter_map(|path| Path::new(path).parent());
    let parents: Vec<&Path> = parents.collect::<HashSet<_>>().into_iter().collect();
    for (at, error) in each(&parents, |parent| File::open(parent)?.sync_all()) {
        if error.kind() != io::ErrorKind::NotFound {
            complain(&parents[at].to_string_lossy(), &error);
        }
    }
    for directory in &referred.data {
        // Names, lengths and times of all that is below it.
        let synced = File::open(directory).and_then(|file| Ok(rustix::fs::syncfs(file)?));
        if let Err(error) = synced {
            complain(&directory.to_string_lossy(), &error);
        }
    }
    failed
}

/// Opens a file, and does not wait for the holder of a lease on it.
fn at_once(path: &str) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn complain(path: &str, error: &io::Error) {
    // A message queue, say, is never on a medium: the kernel answers EINVAL.
    if error.raw_os_error() != Some(libc::EINVAL) {
        tracing::warn!(path, "cannot be synced: {error}");
    }
}

/// Paths of files that a tree has open or mapped for writing.
pub fn written_to(tree: &Tree) -> Vec<String> {
    let open = tree.files.iter().filter_map(|file| match file.kind {
        FileKind::Image(image) => {
            let writes = file.flags as i32 & libc::O_ACCMODE != libc::O_RDONLY;
            writes.then_some(image)
        }
        _ => None,
    });
    let images: HashSet<u32> = open.chain(mapped_for_writing(tree)).collect();
    let path = |image: u32| tree.images[image as usize].path.clone();
    images.into_iter().map(path).collect()
}

/// Files of a tree's that are mapped, and that the program may store into.
fn mapped_for_writing(tree: &Tree) -> impl Iterator<Item = u32> + '_ {
    let mappings = tree.processes.iter().flat_map(|process| &process.mappings);
    mappings
        .filter(|mapping| mapping.shared)
        .filter_map(|mapping| match mapping.backing {
            // One that is protected now may be dirty, and stored into later without a fault.
            Backing::Image { image, writable } => writable.then_some(image),
            _ => None,
        })
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
    let images: HashSet<u32> = mapped_for_writing(tree).collect();
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

/// Device and inode.
type Identity = (u64, u64);

fn identity(path: &str) -> Option<Identity> {
    let metadata = fs::metadata(path).ok()?;
    metadata
        .is_file()
        .then_some((metadata.dev(), metadata.ino()))
}

/// A file by a link of a process that has it open or mapped.
struct Link {
    pid: Pid,
    path: String,
    file: Identity,
}

/// Links to the files that processes have open or mapped for writing, one for each file that `wanted`
/// accepts.
fn links(pids: &[Pid], mut wanted: impl FnMut(Identity) -> bool) -> Vec<Link> {
    let mut known = HashSet::new();
    let mut found = Vec::new();
    for &pid in pids {
        for path in open_for_writing(pid).into_iter().chain(mapped(pid)) {
            let Some(file) = identity(&path) else {
                continue;
            };
            if known.insert(file) && wanted(file) {
                found.push(Link { pid, path, file });
            }
        }
    }
    found
}

/// Does something with each, several at a time; what failed, by number.
fn each<T: Sync>(all: &[T], work: impl Fn(&T) -> io::Result<()> + Sync) -> Vec<(usize, io::Error)> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut failed = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(at) else {
                return failed;
            };
            failed.extend(work(one).err().map(|error| (at, error)));
        }
    };
    let others = SYNCERS_MAX
        .min(all.len().div_ceil(FILES_OF_SYNCER))
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

/// Writes out the data of each file once that `wanted` accepts; what failed.
fn sync_those(pids: &[Pid], wanted: impl FnMut(Identity) -> bool) -> Vec<(String, io::Error)> {
    let links = links(pids, wanted);
    let failed = each(&links, |link| link.open()?.sync_data());
    let named = |(at, error): (usize, io::Error)| (links[at].path.clone(), error);
    failed.into_iter().map(named).collect()
}

impl Link {
    /// To open a file anew would break a lease that the program has of it.
    fn open(&self) -> io::Result<File> {
        let (pid, path) = (self.pid, &self.path);
        let number = path.strip_prefix(&format!("/proc/{pid}/fd/"));
        let number = number.and_then(|number| number.parse::<i32>().ok());
        let Some(number) = number else {
            return File::open(path);
        };
        let info = procfs::text(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
        match info.contains(": LEASE ") {
            true => sys::take_fd(pid, number).map(File::from),
            false => File::open(path),
        }
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
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

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
            .map(AsRawFd::as_raw_fd)
            .chain(kept.iter().map(AsRawFd::as_raw_fd))
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
    /// A file of the kernel's cannot be synced, which shows that it was tried.
    #[test]
    fn files_that_are_closed_are_synced_by_their_paths_and_others_are_no_fault() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        fs::write(at("closed"), "x").unwrap();
        let referred = Referred {
            paths: vec![at("closed"), at("removed"), "/proc/self/comm".to_owned()],
            data: vec![directory.path().to_owned(), at("gone").into()],
            ..Referred::default()
        };
        let failed = sync(&referred);
        assert_eq!(failed, HashSet::from(["/proc/self/comm".to_owned()]));
    }

    /// This process holds the lease, and would answer only after the sync.
    #[test]
    fn the_holder_of_a_lease_on_a_closed_file_is_not_waited_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        crate::persist::hold_lease(file.as_file());
        let referred = Referred {
            paths: vec![path.clone()],
            ..Referred::default()
        };
        assert_eq!(sync(&referred), HashSet::from([path]));
    }
}
