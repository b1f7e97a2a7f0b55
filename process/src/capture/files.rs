//! Open descriptors: which open file description each refers to, and what that is.
//!
//! Two descriptors may share one description (`dup`, `fork`): then they share its offset and
//! flags. Candidates look alike in `fdinfo`; `kcmp` decides.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use super::fdinfo::{epoll_items, flock_of, hex, timer};
use super::objects::is_at;
use super::{Builder, Error};
use crate::procfs;
use crate::ptrace::Pid;
use crate::state::{
    Descriptor, File, FileKind, InotifyWatch, ObjectKind, Pipe, Process, RecordLock,
};

const KCMP_FILE: libc::c_long = 0;
const DELETED: &str = " (deleted)";

/// Descriptions that were met already.
#[derive(Default)]
pub(super) struct Descriptions {
    /// By what they look like: process, descriptor, index.
    known: HashMap<Looks, Vec<(Pid, RawFd, u32)>>,
    /// Of the tracker's first three descriptors: device, inode.
    inherited: Option<Vec<(RawFd, u64, u64)>>,
}

/// Different looks: surely different descriptions.
#[derive(PartialEq, Eq, Hash)]
struct Looks {
    device: u64,
    inode: u64,
    link: String,
    info: String,
}

/// A descriptor that is being looked at.
struct Open<'looking> {
    number: RawFd,
    link: &'looking str,
    info: &'looking str,
    metadata: &'looking Metadata,
    flags: u32,
}

impl Builder<'_> {
    /// Describes all descriptors of the current process.
    pub(super) fn descriptors(&mut self, process: &mut Process) -> Result<(), Error> {
        let pid = self.pid;
        let directory = format!("/proc/{pid}/fd");
        let mut numbers: Vec<RawFd> = fs::read_dir(&directory)
            .map_err(self.failed("list its descriptors"))?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        for number in numbers {
            let link_path = format!("{directory}/{number}");
            let failed = || format!("look at its descriptor {number}");
            let link = fs::read_link(&link_path).map_err(self.failed(failed()))?;
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}"))
                .map_err(self.failed(failed()))?;
            let metadata = fs::metadata(&link_path).map_err(self.failed(failed()))?;
            let flags = procfs::field(&info, "flags")
                .and_then(|flags| u32::from_str_radix(flags, 8).ok())
                .unwrap_or(0);
            let open = Open {
                number,
                link: &link.to_string_lossy(),
                info: &info,
                metadata: &metadata,
                flags: flags & !(libc::O_CLOEXEC as u32),
            };
            self.locks(&open, process);
            let Some(file) = self.description(&open)? else {
                continue;
            };
            process.descriptors.push(Descriptor {
                number,
                close_on_exec: flags & libc::O_CLOEXEC as u32 != 0,
                file,
            });
        }
        Ok(())
    }

    /// The description behind a descriptor, entered when it is met first.
    fn description(&mut self, open: &Open<'_>) -> Result<Option<u32>, Error> {
        let stable: Vec<&str> = open
            .info
            .lines()
            .filter(|line| !line.starts_with("flags:") && !line.starts_with("lock:"))
            .collect();
        let looks = Looks {
            device: open.metadata.dev(),
            inode: open.metadata.ino(),
            link: open.link.to_owned(),
            info: format!("{:o} {}", open.flags, stable.join("\n")),
        };
        for &(pid, number, index) in self.descriptions.known.get(&looks).into_iter().flatten() {
            if same_description((pid, number), (self.pid, open.number)) {
                return Ok(Some(index));
            }
        }
        let kind = match self.inherited(open) {
            Some(number) => Some(FileKind::Inherited(number)),
            None => self.kind(open)?,
        };
        let Some(kind) = kind else { return Ok(None) };
        let position = procfs::field(open.info, "pos")
            .and_then(|pos| pos.parse().ok())
            .unwrap_or(0);
        let owner = self.owner(open, &kind);
        let index = self.tree.files.len() as u32;
        self.tree.files.push(File {
            kind,
            flags: open.flags,
            position,
            owner,
            lock: flock_of(open.info),
        });
        self.descriptions
            .known
            .entry(looks)
            .or_default()
            .push((self.pid, open.number, index));
        Ok(Some(index))
    }

    /// Whether it is a descriptor that the tracker handed down: 0, 1 or 2.
    fn inherited(&mut self, open: &Open<'_>) -> Option<RawFd> {
        let own = self.descriptions.inherited.get_or_insert_with(|| {
            (0..=2)
                .filter_map(|number| {
                    let metadata = fs::metadata(format!("/proc/self/fd/{number}")).ok()?;
                    Some((number, metadata.dev(), metadata.ino()))
                })
                .collect()
        });
        let tracker = std::process::id() as Pid;
        own.iter()
            .filter(|(_, device, inode)| {
                (*device, *inode) == (open.metadata.dev(), open.metadata.ino())
            })
            .find(|(number, ..)| same_description((tracker, *number), (self.pid, open.number)))
            .map(|&(number, ..)| number)
    }

    fn kind(&mut self, open: &Open<'_>) -> Result<Option<FileKind>, Error> {
        let fd = format!("fd {}", open.number);
        if let Some(kind) = open.link.strip_prefix("anon_inode:") {
            return self.anonymous(open, kind);
        }
        if open.link.starts_with("pidfd:") {
            return Ok(self.pidfd(open));
        }
        let file_type = open.metadata.file_type();
        if file_type.is_socket() {
            return self.socket(open.number, open.metadata.ino());
        }
        if file_type.is_fifo() {
            return self.pipe(open).map(Some);
        }
        let path = open.link.strip_suffix(DELETED).unwrap_or(open.link);
        if path.starts_with("/proc/") {
            return Ok(Some(FileKind::Proc(path.to_owned())));
        }
        if file_type.is_char_device() || file_type.is_block_device() {
            if let Some(why) = Self::device_refusal(open.metadata, path) {
                self.refuse(format!("{fd} is {why}"));
                return Ok(None);
            }
            return Ok(Some(FileKind::Image(self.image(path, open.metadata))));
        }
        if file_type.is_dir() {
            if !is_at(path, open.metadata) {
                self.refuse(format!("{fd} is the directory {path}, which was removed"));
                return Ok(None);
            }
            return Ok(Some(FileKind::Image(self.image(path, open.metadata))));
        }
        if !file_type.is_file() {
            self.refuse(format!("{fd} is {}, a file of an unknown type", open.link));
            return Ok(None);
        }
        let link = format!("/proc/{}/fd/{}", self.pid, open.number);
        if let Some(name) = path.strip_prefix("/memfd:") {
            let kind = ObjectKind::Memfd {
                name: name.to_owned(),
                seals: 0,
            };
            return self
                .object(&link, open.metadata, kind)
                .map(|index| Some(FileKind::Object(index)));
        }
        if open.flags & libc::O_PATH as u32 == 0 && !is_at(path, open.metadata) {
            let index = self.unlinked(&link, open.metadata, path)?;
            return Ok(Some(FileKind::Object(index)));
        }
        Ok(Some(FileKind::Image(self.image(path, open.metadata))))
    }

    fn anonymous(&mut self, open: &Open<'_>, kind: &str) -> Result<Option<FileKind>, Error> {
        let info = open.info;
        Ok(match kind {
            "[eventfd]" => Some(FileKind::Event {
                count: hex(info, "eventfd-count"),
                semaphore: procfs::field(info, "eventfd-semaphore") == Some("1"),
            }),
            "[eventpoll]" => Some(FileKind::Epoll(epoll_items(info))),
            "[signalfd]" => Some(FileKind::Signal {
                mask: hex(info, "sigmask"),
            }),
            "[timerfd]" => Some(timer(info)),
            "inotify" | "[inotify]" => self.inotify(open)?,
            "[pidfd]" => self.pidfd(open),
            _ => {
                self.refuse(format!(
                    "fd {} is {}",
                    open.number,
                    super::memory::plain_kind(kind)
                ));
                None
            }
        })
    }

    fn pidfd(&mut self, open: &Open<'_>) -> Option<FileKind> {
        let pid = procfs::field(open.info, "Pid")
            .and_then(|pid| pid.parse().ok())
            .unwrap_or(-1);
        if pid <= 0 {
            self.refuse(format!(
                "fd {} is the pidfd of a process that has ended",
                open.number
            ));
            return None;
        }
        Some(FileKind::Pid(pid))
    }

    fn inotify(&mut self, open: &Open<'_>) -> Result<Option<FileKind>, Error> {
        let mut watches = Vec::new();
        for line in open
            .info
            .lines()
            .filter(|line| line.starts_with("inotify "))
        {
            let field = |name: &str| {
                line.split(' ')
                    .find_map(|word| word.strip_prefix(name)?.strip_prefix(':'))
            };
            let number = field("wd").and_then(|wd| i32::from_str_radix(wd, 16).ok());
            let mask = field("mask").and_then(|mask| u32::from_str_radix(mask, 16).ok());
            match (number, mask, watched_path(&field)) {
                (Some(number), Some(mask), Ok(path)) => {
                    watches.push(InotifyWatch { number, path, mask });
                }
                (_, _, Err(error)) => {
                    self.refuse(format!(
                        "fd {}: what its inotify instance watches cannot be found ({error})",
                        open.number
                    ));
                    return Ok(None);
                }
                _ => {
                    self.refuse(format!(
                        "fd {}: its inotify instance is not understood",
                        open.number
                    ));
                    return Ok(None);
                }
            }
        }
        watches.sort_by_key(|watch| watch.number);
        let failed = "look at its inotify instance";
        let own = duplicate(self.pid, open.number).map_err(self.failed(failed))?;
        let mut waiting = 0i32;
        // SAFETY: the number lives.
        if unsafe { libc::ioctl(own.as_raw_fd(), libc::FIONREAD, &raw mut waiting) } != 0 {
            return Err(self.failed(failed)(io::Error::last_os_error()));
        }
        Ok(Some(FileKind::Inotify {
            watches,
            unread: waiting > 0,
        }))
    }

    fn pipe(&mut self, open: &Open<'_>) -> Result<FileKind, Error> {
        let inode = open.metadata.ino();
        if let Some(&index) = self.pipe_index.get(&inode) {
            return Ok(FileKind::Pipe(index));
        }
        let failed = || format!("read the pipe behind its descriptor {}", open.number);
        let (content, capacity) =
            pipe_content(self.pid, open.number).map_err(self.failed(failed()))?;
        let path = (!open.link.starts_with("pipe:")).then(|| open.link.to_owned());
        if path.as_ref().is_some_and(|path| path.ends_with(DELETED)) {
            self.refuse(format!(
                "fd {} is a named pipe that was removed",
                open.number
            ));
        }
        let index = self.tree.pipes.len() as u32;
        self.tree.pipes.push(Pipe {
            content,
            capacity,
            path,
        });
        self.pipe_index.insert(inode, index);
        Ok(FileKind::Pipe(index))
    }

    fn owner(&mut self, open: &Open<'_>, kind: &FileKind) -> (i32, i32, i32) {
        #[repr(C)]
        struct OwnerEx {
            kind: i32,
            pid: i32,
        }
        const F_GETOWN_EX: i32 = 16;
        const F_GETSIG: i32 = 11;
        // Without O_ASYNC only a socket signals its owner: of urgent data.
        let may_have = match kind {
            FileKind::Socket(_) => true,
            FileKind::Pipe(_) | FileKind::Image(_) | FileKind::Inotify { .. } => {
                open.flags & libc::O_ASYNC as u32 != 0
            }
            _ => false,
        };
        if !may_have {
            return (0, 0, 0);
        }
        let Ok(duplicate) = duplicate(self.pid, open.number) else {
            return (0, 0, 0);
        };
        let mut owner = OwnerEx { kind: 0, pid: 0 };
        // SAFETY: the structure lives.
        let signal = unsafe {
            libc::fcntl(duplicate.as_raw_fd(), F_GETOWN_EX, &raw mut owner);
            libc::fcntl(duplicate.as_raw_fd(), F_GETSIG)
        };
        (owner.kind, owner.pid, signal.max(0))
    }

    /// Record locks of the process, and locks that we do not know how to take again.
    fn locks(&mut self, open: &Open<'_>, process: &mut Process) {
        for line in open.info.lines().filter(|line| line.starts_with("lock:")) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            // lock: 1: POSIX ADVISORY WRITE 1234 fe:00:4711 0 EOF
            let [_, _, kind, _, mode, _, _, start, end] = words[..] else {
                continue;
            };
            match kind {
                "POSIX" => {
                    let start: u64 = start.parse().unwrap_or(0);
                    let bytes = end
                        .parse::<u64>()
                        .map_or(0, |end| end.saturating_sub(start) + 1);
                    let lock = RecordLock {
                        descriptor: open.number,
                        exclusive: mode == "WRITE",
                        start,
                        bytes,
                    };
                    process.locks.push(lock);
                }
                "FLOCK" => {}
                "OFDLCK" => {
                    self.refuse(format!(
                        "fd {} has an open file description lock",
                        open.number
                    ));
                }
                _ => self.refuse(format!("fd {} has a {kind} lock", open.number)),
            }
        }
    }

    /// Epoll items name descriptors. One that was closed while a duplicate kept it alive is known
    /// to the kernel only.
    pub(super) fn finish_epolls(&mut self) {
        let mut refusals = Vec::new();
        for process in &self.tree.processes {
            for descriptor in &process.descriptors {
                let FileKind::Epoll(items) = &self.tree.files[descriptor.file as usize].kind else {
                    continue;
                };
                let stray = items.iter().find(|item| {
                    process
                        .descriptors
                        .binary_search_by_key(&item.descriptor, |d| d.number)
                        .is_err()
                });
                // An epoll instance that a parent made and a child inherited holds the parent's.
                let elsewhere = |file: u32| {
                    self.tree.processes.iter().any(|other| {
                        other.pid != process.pid && other.descriptors.iter().any(|d| d.file == file)
                    })
                };
                if let Some(item) = stray
                    && !elsewhere(descriptor.file)
                {
                    refusals.push((
                        process.pid,
                        format!(
                            "fd {} is an epoll instance that waits for fd {}, which is closed",
                            descriptor.number, item.descriptor
                        ),
                    ));
                }
            }
        }
        for (pid, what) in refusals {
            self.pid = pid;
            self.program = procfs::stat(pid, pid).map_or_else(|_| String::new(), |stat| stat.name);
            self.refuse(what);
        }
    }
}

/// Our own descriptor of the description behind a descriptor of another process.
pub(super) fn duplicate(pid: Pid, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory involved; the descriptors are new and ours.
    unsafe {
        let pidfd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if pidfd < 0 {
            return Err(io::Error::last_os_error());
        }
        let pidfd = OwnedFd::from_raw_fd(pidfd as RawFd);
        let fd = libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

fn same_description(one: (Pid, RawFd), other: (Pid, RawFd)) -> bool {
    // SAFETY: no memory involved.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            libc::c_long::from(one.0),
            libc::c_long::from(other.0),
            KCMP_FILE,
            libc::c_long::from(one.1),
            libc::c_long::from(other.1),
        )
    };
    order == 0
}

/// Copies what is in a pipe without taking it out.
fn pipe_content(pid: Pid, number: RawFd) -> io::Result<(Vec<u8>, u32)> {
    let reader = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(format!("/proc/{pid}/fd/{number}"))?;
    let capacity = rustix::pipe::fcntl_getpipe_size(&reader)?;
    let mut waiting = 0i32;
    // SAFETY: the number lives.
    if unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut waiting) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut content = Vec::new();
    if waiting > 0 {
        let (copy, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // As many slots as the original has: each write of the program may hold one.
        rustix::pipe::fcntl_setpipe_size(&into, capacity)?;
        // SAFETY: no memory involved.
        let copied = unsafe {
            libc::tee(
                reader.as_raw_fd(),
                into.as_raw_fd(),
                waiting as usize,
                libc::SPLICE_F_NONBLOCK,
            )
        };
        if copied < 0 {
            return Err(io::Error::last_os_error());
        }
        drop(into);
        fs::File::from(copy).read_to_end(&mut content)?;
        if content.len() != waiting as usize {
            return Err(io::Error::other("its content could not be copied whole"));
        }
    }
    Ok((content, capacity as u32))
}

/// The path behind the file handle that an inotify mark holds.
fn watched_path<'line>(field: &impl Fn(&str) -> Option<&'line str>) -> io::Result<String> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let number = |name| {
        field(name)
            .and_then(|text| u64::from_str_radix(text, 16).ok())
            .ok_or_else(invalid)
    };
    let device = number("sdev")?;
    let handle = field("f_handle").ok_or_else(invalid)?;
    let bytes: Vec<u8> = (0..handle.len() / 2)
        .filter_map(|at| u8::from_str_radix(&handle[at * 2..at * 2 + 2], 16).ok())
        .collect();
    // struct file_handle: length, type, bytes.
    let mut raw = (number("fhandle-bytes")? as u32).to_ne_bytes().to_vec();
    raw.extend_from_slice(&(number("fhandle-type")? as i32).to_ne_bytes());
    raw.extend_from_slice(&bytes);
    raw.resize(8 + 128, 0);
    let mount = mount_point((device >> 20) as u32, (device & 0xf_ffff) as u32)?;
    let mount = fs::File::open(mount)?;
    // SAFETY: the handle lives and is as long as it says; the descriptor is new and ours.
    let file = unsafe {
        let fd = libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            raw.as_mut_ptr(),
            libc::O_PATH | libc::O_CLOEXEC,
        );
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd as RawFd)
    };
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let path = path.to_string_lossy().into_owned();
    if path.ends_with(DELETED) {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    Ok(path)
}

fn mount_point(major: u32, minor: u32) -> io::Result<String> {
    let device = format!("{major}:{minor}");
    fs::read_to_string("/proc/self/mountinfo")?
        .lines()
        .find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.get(2) == Some(&device.as_str())).then(|| words.get(4).map(|&w| w.to_owned()))?
        })
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
