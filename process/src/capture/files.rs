//! Open descriptors, the open file description behind each, and its kind.
//!
//! Two descriptors may share one description (`dup`, `fork`); then they share its offset and
//! flags. Candidates are equal in `fdinfo`; `kcmp` decides.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::fdinfo::{description_locks, epoll_items, flock_of, hex, lease_of, range, timer};
use super::objects::{
    DELETED, is_at, is_lossy, is_posix_memory, memfd, posix_memory, without_mark,
};
use super::{Builder, Error};
use crate::procfs;
use crate::ptrace::Pid;
use crate::state::{Descriptor, File, FileKind, Lease, Process, RecordLock};
use crate::uring;

const KCMP_FILE: libc::c_long = 0;
/// Major numbers of the slave sides of pseudo-terminals.
const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;
/// The first process is always there.
pub(super) const INIT: Pid = 1;

/// Lines of `fdinfo` that differ between descriptors of one description, or from one reading to the next:
/// the time that a timer has left goes on while its program stands.
const UNSTABLE: [&str; 4] = ["flags:", "lock:", "it_value:", "ticks:"];

/// Descriptions that were met already.
#[derive(Default)]
pub(super) struct Descriptions {
    /// By fingerprint: process, descriptor, index.
    known: HashMap<Fingerprint, Vec<(Pid, RawFd, u32)>>,
    /// Of the tracker's first three descriptors: device, inode.
    inherited: Option<Vec<(RawFd, u64, u64)>>,
}

/// Descriptions with different fingerprints are different.
#[derive(PartialEq, Eq, Hash)]
struct Fingerprint {
    device: u64,
    inode: u64,
    link: String,
    info: String,
}

/// What /proc has about a descriptor.
pub(super) struct Opened {
    number: RawFd,
    link: String,
    info: String,
    metadata: Metadata,
    flags: u32,
}

impl Opened {
    pub(super) fn open(&self) -> Open<'_> {
        Open {
            number: self.number,
            link: &self.link,
            info: &self.info,
            metadata: &self.metadata,
            flags: self.flags & !(libc::O_CLOEXEC as u32),
        }
    }
}

/// A descriptor that is being described.
pub(super) struct Open<'reading> {
    pub number: RawFd,
    pub link: &'reading str,
    pub info: &'reading str,
    pub metadata: &'reading Metadata,
    pub flags: u32,
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
            let opened = self.read_descriptor(pid, number)?;
            let open = opened.open();
            self.locks(&open, process);
            let Some(file) = self.description(&open)? else {
                continue;
            };
            process.descriptors.push(Descriptor {
                number,
                close_on_exec: opened.flags & libc::O_CLOEXEC as u32 != 0,
                file,
            });
        }
        Ok(())
    }

    /// What /proc has about a descriptor of a process, which may be the tracker.
    pub(super) fn read_descriptor(&self, pid: Pid, number: RawFd) -> Result<Opened, Error> {
        let failed = || self.failed(format!("read its descriptor {number}"));
        let path = format!("/proc/{pid}/fd/{number}");
        let link = fs::read_link(&path).map_err(failed())?;
        let info = procfs::text(format!("/proc/{pid}/fdinfo/{number}")).map_err(failed())?;
        let metadata = fs::metadata(&path).map_err(failed())?;
        let flags = procfs::field(&info, "flags")
            .and_then(|flags| u32::from_str_radix(flags, 8).ok())
            .unwrap_or(0);
        Ok(Opened {
            number,
            link: link.to_string_lossy().into_owned(),
            info,
            metadata,
            flags,
        })
    }

    /// The description behind a descriptor, entered when it is met first.
    pub(super) fn description(&mut self, open: &Open<'_>) -> Result<Option<u32>, Error> {
        // What is shown of a ring changes; its inode is its own.
        let info = match open.link {
            uring::LINK => "",
            _ => open.info,
        };
        let stable: Vec<&str> = info
            .lines()
            .filter(|line| !UNSTABLE.iter().any(|key| line.starts_with(key)))
            .collect();
        let fingerprint = Fingerprint {
            device: open.metadata.dev(),
            inode: open.metadata.ino(),
            link: open.link.to_owned(),
            info: format!("{:o} {}", open.flags, stable.join("\n")),
        };
        for &(pid, number, index) in self
            .descriptions
            .known
            .get(&fingerprint)
            .into_iter()
            .flatten()
        {
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
        let lease = self.lease(open, &kind);
        let lock = flock_of(open.info);
        let records = description_locks(open.info);
        // Such a file is opened by each process for itself.
        if matches!(
            kind,
            FileKind::Proc(_) | FileKind::Pid(_) | FileKind::DeadPid(_)
        ) && (lock.is_some() || !records.is_empty())
        {
            self.refuse(format!(
                "fd {} ({}) has a lock, which cannot be taken again",
                open.number, open.link
            ));
            return Ok(None);
        }
        let owner = self.owner(open, &kind, lease.is_some());
        let index = self.tree.files.len() as u32;
        self.tree.files.push(File {
            kind,
            flags: open.flags,
            position,
            owner,
            lock,
            records,
            lease,
        });
        self.descriptions
            .known
            .entry(fingerprint)
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
        let own_link = format!("/proc/{}/fd/{}", self.pid, open.number);
        let is_path_only = open.flags & libc::O_PATH as u32 != 0;
        // The name of a file without one is not looked for.
        let named = !open.metadata.is_file() || open.metadata.nlink() > 0;
        if named && open.link.starts_with('/') && is_lossy(open.link) {
            self.refuse(format!("{fd} is {}, a name that is not UTF-8", open.link));
            return Ok(None);
        }
        if let Some(kind) = open.link.strip_prefix("anon_inode:") {
            return self.anonymous(open, kind);
        }
        if open.link.starts_with("pidfd:") {
            return Ok(self.pidfd(open));
        }
        let file_type = open.metadata.file_type();
        if file_type.is_socket() && is_path_only {
            let path = open.link;
            self.refuse(format!(
                "{fd} is {path}, the file of a unix socket, by O_PATH"
            ));
            return Ok(None);
        }
        if file_type.is_socket() {
            return self.socket(open.number, open.metadata.ino());
        }
        if file_type.is_fifo() && is_path_only {
            let path = without_mark(open.link, open.metadata);
            if !is_at(path, open.metadata) && !self.ghost(&own_link, path, open.metadata) {
                self.refuse(format!("{fd} is the pipe {path}, which was removed"));
                return Ok(None);
            }
            return Ok(Some(FileKind::Image(self.image(path, open.metadata))));
        }
        if file_type.is_fifo() {
            return self.pipe(open).map(Some);
        }
        if self.is_posix_queue(open) {
            return self.posix_queue(open);
        }
        let path = without_mark(open.link, open.metadata);
        if let Some(within) = path.strip_prefix("/proc/") {
            let number = within.split('/').next().unwrap_or("");
            let thread = procfs::owner_of_path(path);
            let of_main = |(pid, tid): (Pid, Option<Pid>)| tid.is_none_or(|tid| tid == pid);
            if !thread.is_none_or(of_main) && !open.link.ends_with(DELETED) {
                self.refuse(format!(
                    "{fd} is {path}, a file of a thread other than the main thread"
                ));
                return Ok(None);
            }
            // A number may be another process' by then.
            if let Ok(pid) = number.parse::<Pid>()
                && pid != INIT
                && !self.pids.contains(&pid)
            {
                if !self.is_dead(pid) {
                    self.refuse(format!(
                        "{fd} is a file of process {pid}, which is not of the tree"
                    ));
                    return Ok(None);
                }
                if within.split('/').nth(1) == Some("task") {
                    self.refuse(format!(
                        "{fd} is a file of a thread of {pid}, which has ended"
                    ));
                    return Ok(None);
                }
                return Ok(Some(FileKind::Proc(path.to_owned())));
            }
            if path != open.link {
                self.refuse(format!("{fd} is {path}, which is gone"));
                return Ok(None);
            }
            return Ok(Some(FileKind::Proc(path.to_owned())));
        }
        if file_type.is_char_device() && open.metadata.rdev() == libc::makedev(5, 2) {
            return self.master(open.number, path);
        }
        if file_type.is_char_device()
            && open.metadata.rdev() == libc::makedev(5, 0)
            && self.is_in_own_session()
        {
            return Ok(Some(FileKind::Proc(path.to_owned())));
        }
        if file_type.is_char_device() || file_type.is_block_device() {
            if let Some(why) = Self::device_refusal(open.metadata, path) {
                self.refuse(format!("{fd} is {why}"));
                return Ok(None);
            }
            let there = is_at(path, open.metadata);
            // The kernel alone makes files of pseudo-terminals, as long as there is a master side.
            let made_by_kernel = PSEUDO_TERMINALS.contains(&libc::major(open.metadata.rdev()));
            if !there && (made_by_kernel || !self.ghost(&own_link, path, open.metadata)) {
                let what = "which was removed, or is covered by something else";
                self.refuse(format!("{fd} is the device {path}, {what}"));
                return Ok(None);
            }
            self.slave(open.number, open.metadata.rdev());
            return Ok(Some(FileKind::Image(self.image(path, open.metadata))));
        }
        if file_type.is_dir() {
            if !is_at(path, open.metadata) && !self.ghost(&own_link, path, open.metadata) {
                self.refuse(format!("{fd} is the directory {path}, which was removed"));
                return Ok(None);
            }
            return Ok(Some(FileKind::Image(self.image(path, open.metadata))));
        }
        if file_type.is_symlink() {
            let there = fs::symlink_metadata(path).is_ok_and(|found| {
                (found.dev(), found.ino()) == (open.metadata.dev(), open.metadata.ino())
            });
            if !there && !self.ghost(&own_link, path, open.metadata) {
                self.refuse(format!(
                    "{fd} is the symbolic link {path}, which was removed"
                ));
                return Ok(None);
            }
            return Ok(Some(FileKind::Image(self.image(path, open.metadata))));
        }
        if !file_type.is_file() {
            self.refuse(format!("{fd} is {}, a file of an unknown type", open.link));
            return Ok(None);
        }
        if let Some(own) = own_namespace(path, open.metadata) {
            return Ok(Some(FileKind::Proc(own)));
        }
        let link = own_link;
        if let Some(name) = path.strip_prefix("/memfd:") {
            return self
                .object(&link, open.metadata, memfd(name, open.metadata))
                .map(|index| Some(FileKind::Object(index)));
        }
        if !is_at(path, open.metadata) {
            if open.metadata.nlink() > 0 && self.ghost(&link, path, open.metadata) {
                return Ok(Some(FileKind::Image(self.image(path, open.metadata))));
            }
            let index = self.unlinked(&link, open.metadata, path)?;
            return Ok(Some(FileKind::Object(index)));
        }
        if is_posix_memory(path, open.metadata) {
            let kind = posix_memory(path, open.metadata);
            let index = self.object(&link, open.metadata, kind)?;
            return Ok(Some(FileKind::Object(index)));
        }
        Ok(Some(FileKind::Image(self.image(path, open.metadata))))
    }

    /// Whether there is no process with this number. Then a placeholder process has it in a restore,
    /// while its files are opened.
    pub(super) fn is_dead(&mut self, pid: Pid) -> bool {
        if self.pids.contains(&pid) || fs::exists(format!("/proc/{pid}")).unwrap_or(true) {
            return false;
        }
        if !self.tree.dead.contains(&pid) {
            self.tree.dead.push(pid);
        }
        true
    }

    /// Whether the current process has a session of the tree's: then its terminal is not the tracker's.
    fn is_in_own_session(&self) -> bool {
        // SAFETY: no memory involved.
        unsafe { libc::getsid(self.pid) != libc::getsid(0) }
    }

    fn anonymous(&mut self, open: &Open<'_>, kind: &str) -> Result<Option<FileKind>, Error> {
        let info = open.info;
        Ok(match kind {
            "[eventfd]" => Some(FileKind::Event {
                count: hex(info, "eventfd-count"),
                semaphore: procfs::field(info, "eventfd-semaphore") == Some("1"),
            }),
            "[eventpoll]" => {
                let (items, inodes) = epoll_items(info).into_iter().unzip();
                let index = self.tree.files.len() as u32;
                self.epolls.push((index, self.pid, open.number, inodes));
                Some(FileKind::Epoll(items))
            }
            "[signalfd]" => Some(FileKind::Signal {
                mask: hex(info, "sigmask"),
            }),
            "[timerfd]" => Some(timer(info, wall_clock_ns())),
            "inotify" | "[inotify]" => self.inotify(open)?,
            "[pidfd]" => self.pidfd(open),
            "[io_uring]" => Some(self.ring(open)),
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
            // The same process has the same inode, since Linux 6.9.
            const PID_FS_MAGIC: i64 = 0x5049_4446;
            let link = format!("/proc/{}/fd/{}", self.pid, open.number);
            let system = rustix::fs::statfs(&link).map(|system| system.f_type);
            if pid == -1 && system == Ok(PID_FS_MAGIC) {
                let inode = open.metadata.ino();
                let known = self.dead_pids.iter().position(|known| *known == inode);
                let which = known.unwrap_or_else(|| {
                    self.dead_pids.push(inode);
                    self.dead_pids.len() - 1
                });
                return Some(FileKind::DeadPid(which as u32));
            }
            self.refuse(format!(
                "fd {} is the pidfd of a process that has ended",
                open.number
            ));
            return None;
        }
        // What it stands for is opened again by its number.
        if !self.pids.contains(&pid) && pid != std::process::id().cast_signed() {
            let of_thread = open.flags & libc::O_EXCL as u32 != 0;
            self.refuse(format!(
                "fd {} is the pidfd of {pid}, {}",
                open.number,
                match of_thread {
                    true => "a thread other than the main thread",
                    false => "a process that is not of the tree",
                }
            ));
            return None;
        }
        Some(FileKind::Pid(pid))
    }

    /// A lease, which a restore takes by the path of the file.
    fn lease(&mut self, open: &Open<'_>, kind: &FileKind) -> Option<Lease> {
        let lease = lease_of(open.info, open.flags)?;
        let FileKind::Image(_) = kind else {
            self.refuse(format!(
                "fd {} has a lease, and its file has no name",
                open.number
            ));
            return None;
        };
        Some(lease)
    }

    fn owner(&mut self, open: &Open<'_>, kind: &FileKind, leased: bool) -> (i32, i32, i32) {
        #[repr(C)]
        struct OwnerEx {
            kind: i32,
            pid: i32,
        }
        const F_GETOWN_EX: i32 = 16;
        const F_GETSIG: i32 = 11;
        let may_have = match kind {
            _ if leased => true,
            FileKind::Image(_) if open.flags & libc::O_PATH as u32 != 0 => false,
            // To close the duplicate would have a file of a network or of FUSE written back.
            FileKind::Image(_) if open.metadata.is_file() => {
                open.flags & libc::O_ASYNC as u32 != 0 || libc::major(open.metadata.dev()) != 0
            }
            FileKind::Inherited(_)
            | FileKind::Proc(_)
            | FileKind::Pid(_)
            | FileKind::DeadPid(_)
            | FileKind::Uring(_)
            | FileKind::PosixQueue { .. } => false,
            _ => true,
        };
        if !may_have {
            return (0, 0, 0);
        }
        let Ok(duplicate) = self.duplicate(open.number) else {
            return (0, 0, 0);
        };
        let mut owner = OwnerEx { kind: 0, pid: 0 };
        // SAFETY: the structure lives.
        let signal = unsafe {
            libc::fcntl(duplicate.as_raw_fd(), F_GETOWN_EX, &raw mut owner);
            libc::fcntl(duplicate.as_raw_fd(), F_GETSIG)
        };
        // It notifies the process that asks for it, and nothing else signals of a directory.
        if open.metadata.is_dir() && owner.pid != 0 {
            self.refuse(format!(
                "fd {} is a directory with a receiver of signals (F_NOTIFY)",
                open.number
            ));
        }
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
                    let (start, bytes) = range(start, end);
                    let lock = RecordLock {
                        descriptor: open.number,
                        exclusive: mode == "WRITE",
                        start,
                        bytes,
                    };
                    process.locks.push(lock);
                }
                // Those of the description are read with it.
                "FLOCK" | "OFDLCK" | "LEASE" => {}
                _ => self.refuse(format!("fd {} has a {kind} lock", open.number)),
            }
        }
    }
}

fn wall_clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
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
/// The file of /proc that leads to a namespace (`net:[4026531840]`), when it is one of the tracker's: a
/// restored program is in those of its tracker.
fn own_namespace(link: &str, metadata: &fs::Metadata) -> Option<String> {
    let (kind, _) = link.split_once(":[")?;
    let path = format!("/proc/self/ns/{kind}");
    is_at(&path, metadata).then_some(path)
}
