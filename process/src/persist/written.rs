//! Files that the program has written and closed: a database may have none open at an epoch.
//!
//! An epoch names them, each with its length and time of change. If one of them is not as it was
//! then, the program's memory is older than its file, and a restore is refused by name. The kernel
//! reports them (fanotify) for the file systems on which the program has its current directory or
//! an open file. What was written by a process that had ended before the report was read is not
//! attributed to the program, and files in memory (tmpfs) are not durable in the first place.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::files::open_for_writing;
use super::handles::Systems;
use crate::procfs;
use crate::ptrace::Pid;
use crate::state::Image;

/// More are not remembered: a program that writes so many files one after the other is no database.
const FILES_MAX: usize = 4096;
/// Longest chain of parents that is followed.
const DEPTH_MAX: usize = 64;
const EVENT_BYTES: usize = size_of::<libc::fanotify_event_metadata>();
const BUFFER_BYTES: usize = 32 << 10;
/// File systems in memory, or of the kernel's own: `f_type`.
const VOLATILE: [i64; 4] = [0x0102_1994, 0x8584_58f6, 0x9fa0, 0x6265_6572];

/// The files, and where they are looked for.
#[derive(Debug)]
pub struct Written {
    /// Reports by handle, which opens nothing of other programs'; and by descriptor, for file systems that
    /// have no handles.
    reports: [Option<File>; 2],
    systems: Systems,
    watched: HashSet<u64>,
    files: BTreeSet<String>,
    full: bool,
    /// Of files that are durable: their length and time of change.
    durable: HashMap<String, (u64, i64)>,
}

impl Written {
    /// Nothing is watched yet. Without CAP_SYS_ADMIN nothing will be.
    pub fn new() -> Self {
        let by_handle = libc::FAN_REPORT_FID | libc::FAN_REPORT_DFID_NAME;
        let reports = [by_handle, 0].map(|flags| {
            let flags = flags | libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
            // Not to wait for the holder of a lease.
            let event_flags =
                libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC | libc::O_NONBLOCK;
            // SAFETY: no memory involved; the descriptor is new and ours.
            unsafe {
                let fd = libc::fanotify_init(flags, event_flags as u32);
                (fd >= 0).then(|| File::from(OwnedFd::from_raw_fd(fd)))
            }
        });
        if reports.iter().all(Option::is_none) {
            let error = std::io::Error::last_os_error();
            tracing::debug!("files that the program writes and closes are not watched: {error}");
        }
        Self {
            reports,
            systems: Systems::default(),
            watched: HashSet::new(),
            files: BTreeSet::new(),
            full: false,
            durable: HashMap::new(),
        }
    }

    /// Files of which an earlier epoch knew.
    pub fn remember(&mut self, files: &[Image]) {
        self.files
            .extend(files.iter().map(|image| image.path.clone()));
    }

    /// Watches the file systems on which these processes are and write.
    pub fn watch(&mut self, pids: &[Pid]) {
        if self.reports.iter().all(Option::is_none) {
            return;
        }
        for pid in pids {
            let directory = [format!("/proc/{pid}/cwd")];
            for link in directory.into_iter().chain(open_for_writing(*pid)) {
                let Ok(metadata) = fs::metadata(&link) else {
                    continue;
                };
                let on_disk = metadata.is_dir() || metadata.is_file();
                if !on_disk || !self.watched.insert(metadata.dev()) {
                    continue;
                }
                let system = rustix::fs::statfs(&link);
                if system.map_or(true, |system| VOLATILE.contains(&system.f_type)) {
                    continue;
                }
                let [by_handle, by_descriptor] = &self.reports;
                let watched = self
                    .systems
                    .add(&link)
                    .and_then(|()| mark(by_handle.as_ref(), &link))
                    .or_else(|_| mark(by_descriptor.as_ref(), &link));
                if let Err(error) = watched {
                    tracing::debug!("the file system of {link} cannot be watched: {error}");
                }
            }
        }
    }

    /// Takes the kernel's reports of files that were written and closed by the program: by the
    /// descendants of the tracker, or those of these processes.
    ///
    /// To be called often: the kernel reports files of all programs, and has room for a limited number
    /// of reports.
    pub fn take(&mut self, program: &[Pid]) {
        let mut buffer = vec![0u8; BUFFER_BYTES];
        let mut known = Descent::new(program);
        for which in 0..self.reports.len() {
            while let Some(bytes) = self.read(which, &mut buffer) {
                let mut events = &buffer[..bytes];
                while let Some((event, information, rest)) = next_event(events) {
                    self.take_one(&event, information, &mut known);
                    events = rest;
                }
            }
        }
    }

    fn take_one(
        &mut self,
        event: &libc::fanotify_event_metadata,
        information: &[u8],
        known: &mut Descent<'_>,
    ) {
        // SAFETY: the kernel opened it for us.
        let file = (event.fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(event.fd) });
        if event.mask & libc::FAN_Q_OVERFLOW != 0 {
            tracing::warn!("some files that the program has written were not reported");
        } else if known.is_of_program(event.pid, parent) {
            let path = match &file {
                Some(file) => fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok(),
                None => self.systems.path(information),
            };
            if let Some(path) = path {
                self.add(&path);
            }
        }
    }

    fn read(&mut self, which: usize, buffer: &mut [u8]) -> Option<usize> {
        let read = self.reports[which].as_mut()?.read(buffer);
        read.ok().filter(|bytes| *bytes > 0)
    }

    fn add(&mut self, path: &Path) {
        let path = path.to_string_lossy().into_owned();
        if path.ends_with(" (deleted)") || !path.starts_with('/') {
            return;
        }
        if self.files.len() >= FILES_MAX && !self.files.contains(&path) {
            self.files.retain(|path| fs::exists(path).unwrap_or(false));
        }
        if self.files.len() < FILES_MAX {
            self.files.insert(path);
        } else if !std::mem::replace(&mut self.full, true) {
            tracing::warn!(
                "the program has written more than {FILES_MAX} files; changes of further ones \
                 will not be noticed by a restore"
            );
        }
    }

    /// The files as they are now, without those that `known` describes already.
    pub fn images(&mut self, known: &[Image]) -> Vec<Image> {
        let mut images = Vec::new();
        self.files.retain(|path| {
            // One that the program has removed is no part of its state.
            let Ok(metadata) = fs::symlink_metadata(path) else {
                return false;
            };
            if metadata.is_file() && !known.iter().any(|image| image.path == *path) {
                images.push(Image {
                    path: path.clone(),
                    bytes: metadata.len(),
                    modified_ns: metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec(),
                    mode: metadata.mode(),
                    device: metadata.rdev(),
                });
            }
            true
        });
        images
    }

    /// Those of these files that have changed since they were durable.
    pub fn not_durable(&self, images: &[Image]) -> Vec<Image> {
        let changed = |image: &&Image| {
            self.durable.get(&image.path) != Some(&(image.bytes, image.modified_ns))
        };
        images.iter().filter(changed).cloned().collect()
    }

    /// These files are durable as they are described.
    pub fn are_durable(&mut self, images: impl IntoIterator<Item = Image>) {
        self.durable.retain(|path, _| self.files.contains(path));
        let described = |image: Image| (image.path, (image.bytes, image.modified_ns));
        self.durable.extend(images.into_iter().map(described));
    }
}

/// Has the kernel report files of a link's file system that were written and closed.
fn mark(reports: Option<&File>, link: &str) -> io::Result<()> {
    let reports = reports.ok_or(io::ErrorKind::Unsupported)?;
    let path = std::ffi::CString::new(link)?;
    // SAFETY: the path lives.
    let marked = unsafe {
        let how = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        let (fd, what) = (reports.as_raw_fd(), libc::FAN_CLOSE_WRITE);
        libc::fanotify_mark(fd, how, what, libc::AT_FDCWD, path.as_ptr())
    };
    match marked {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The first of some events, the further information of it, and the other events.
fn next_event(events: &[u8]) -> Option<(libc::fanotify_event_metadata, &[u8], &[u8])> {
    let start = events.get(..EVENT_BYTES)?;
    // SAFETY: as many bytes as it has; any are a value of it.
    let event = unsafe {
        start
            .as_ptr()
            .cast::<libc::fanotify_event_metadata>()
            .read_unaligned()
    };
    let (own, rest) = events.split_at_checked(event.event_len as usize)?;
    Some((event, own.get(usize::from(event.metadata_len)..)?, rest))
}

/// Which processes are the program's: its own, and descendants of one of them or of the tracker. Each
/// is looked up once for many reports.
struct Descent<'program> {
    program: &'program [Pid],
    tracker: Pid,
    known: HashMap<Pid, bool>,
}

impl<'program> Descent<'program> {
    fn new(program: &'program [Pid]) -> Self {
        Self {
            program,
            tracker: std::process::id() as Pid,
            known: HashMap::new(),
        }
    }

    fn is_of_program(&mut self, pid: Pid, parent: impl Fn(Pid) -> Option<Pid>) -> bool {
        if pid == self.tracker {
            return false;
        }
        let mut chain = Vec::new();
        let mut at = pid;
        let is_own = loop {
            if at == self.tracker || self.program.contains(&at) {
                break true;
            }
            if let Some(&known) = self.known.get(&at) {
                break known;
            }
            chain.push(at);
            match parent(at) {
                Some(parent) if parent > 1 && chain.len() < DEPTH_MAX => at = parent,
                Some(parent) => break parent == self.tracker,
                // Its children have another parent now.
                None => {
                    self.known.insert(at, false);
                    return false;
                }
            }
        };
        self.known
            .extend(chain.into_iter().map(|pid| (pid, is_own)));
        is_own
    }
}

/// The parent of a process; `None`: it has ended.
fn parent(pid: Pid) -> Option<Pid> {
    procfs::stat(pid, pid).ok().map(|stat| stat.parent)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A child that writes files, closes them, and stays.
    fn writer(directory: &Path) -> Child {
        let script =
            "echo text > written; echo more > new; mv new renamed; echo ready; exec sleep 1000";
        let mut child = Command::new("sh");
        let child = child.args(["-c", script]).current_dir(directory);
        child.stdout(Stdio::piped()).spawn().expect("sh starts")
    }

    /// A directory on a disk whose files are watched; `None`: this machine cannot do that.
    fn watched() -> Option<(tempfile::TempDir, Written)> {
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let mut written = Written::new();
        let mut here = Command::new("sleep");
        let here = here.arg("1000").current_dir(directory.path()).spawn();
        let mut here = here.expect("sleep starts");
        written.watch(&[here.id() as Pid]);
        let (_, _) = (here.kill(), here.wait());
        let system = rustix::fs::statfs(directory.path()).expect("known");
        if written.reports.iter().all(Option::is_none) || VOLATILE.contains(&system.f_type) {
            eprintln!("skipped: needs CAP_SYS_ADMIN and a file system on disk");
            return None;
        }
        Some((directory, written))
    }

    #[test]
    fn a_process_is_looked_up_once_however_many_files_it_writes() {
        let tracker = std::process::id() as Pid;
        let (shell, other, ended) = (1_000_001, 1_000_002, 1_000_003);
        let asked = std::cell::Cell::new(0);
        let parent = |pid: Pid| {
            asked.set(asked.get() + 1);
            match pid {
                1_000_001 => Some(7),
                1_000_002 => Some(1_000_001),
                1_000_004 => Some(tracker),
                1_000_005 => Some(1_000_004),
                7 => Some(1),
                _ => None,
            }
        };
        let program = [8];
        let mut descent = Descent::new(&program);
        for _ in 0..1000 {
            let mut is = |pid| descent.is_of_program(pid, parent);
            assert!(!is(other) && !is(shell) && !is(ended) && !is(tracker));
            assert!(is(8) && is(1_000_005) && is(1_000_004));
        }
        assert_eq!(asked.get(), 6);
        // A circle ends.
        assert!(!descent.is_of_program(9, |pid| Some(pid + 1)));
    }

    #[test]
    fn a_lease_of_another_program_is_not_broken() {
        let Some((directory, mut written)) = watched() else {
            return;
        };
        let path = directory.path().join("leased");
        fs::write(&path, "text").expect("written");
        let file = File::open(&path).expect("it is there");
        crate::persist::hold_lease(&file);
        written.take(&[]);
        // SAFETY: no memory involved.
        let holds = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) };
        assert_eq!(holds, libc::F_WRLCK);
    }

    #[test]
    fn files_that_the_program_wrote_and_closed_are_known_by_their_present_names_and_others_are_not()
    {
        finds_what_was_written();
    }

    #[test]
    fn without_the_right_to_open_handles_they_are_known_all_the_same() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let of_a_thread = std::thread::spawn(|| {
            let mut own = capabilities(None).expect("known");
            own.effective.remove(CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, own).expect("taken away");
            finds_what_was_written();
        });
        of_a_thread.join().expect("it finds them");
    }

    fn finds_what_was_written() {
        let Some((directory, mut written)) = watched() else {
            return;
        };
        fs::write(directory.path().join("ours"), "text").expect("written");
        let mut child = writer(directory.path());
        let mut ready = [0u8; 6];
        let mut output = child.stdout.take().expect("a pipe");
        output.read_exact(&mut ready).expect("it says so");
        written.take(&[]);
        // Children of other tests are this process', too.
        let here = directory.path().display().to_string();
        let mut images_but = |known: &[Image]| {
            let mut images = written.images(known);
            images.retain(|image| image.path.starts_with(&here));
            images
        };
        let images = images_but(&[]);
        let (_, _) = (child.kill(), child.wait());
        let path = directory.path().join("written").display().to_string();
        let renamed = directory.path().join("renamed").display().to_string();
        let found: Vec<_> = images
            .iter()
            .map(|image| (&image.path, image.bytes))
            .collect();
        assert_eq!(found, [(&renamed, 5), (&path, 5)], "{images:?}");
        assert!(images_but(&images).is_empty(), "it is known");
        for gone in [&path, &renamed] {
            fs::remove_file(gone).expect("removed");
        }
        assert!(images_but(&[]).is_empty(), "they are no more");
    }
}
