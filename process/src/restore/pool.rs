//! Everything that the tree has open, opened by the tracker.
//!
//! The recreated processes inherit the tracker's descriptors and put each in its place. So files,
//! pipes and sockets are made here with ordinary calls, and descriptions that several processes
//! share are shared by birth. What depends on who opens it (files of /proc, pidfds) gets a
//! placeholder, which its process replaces.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};

use super::Error;
use super::tcp::Connections;
use crate::state::{File, FileKind, Object, ObjectKind, Pipe, Tree};
use crate::store::Snapshot;

const TFD_IOC_SET_TICKS: libc::c_ulong = 0x4008_5400;
const INOTIFY_IOC_SETNEXTWD: libc::c_ulong = 0x4004_4900;
/// Flags that `F_SETFL` can change here. A process sets `O_ASYNC` itself: the kernel remembers the
/// number of the descriptor.
const SETTABLE: i32 = libc::O_APPEND | libc::O_DIRECT | libc::O_NOATIME | libc::O_NONBLOCK;

/// The tracker's descriptors for the tree.
#[derive(Debug)]
pub struct Pool {
    /// All numbers from here on are ours; all numbers of the tree are below.
    pub base: RawFd,
    held: HashMap<RawFd, OwnedFd>,
    /// For each open file description of the tree.
    pub files: Vec<RawFd>,
    /// For each object, for reading and writing.
    pub objects: Vec<RawFd>,
    /// TCP connections, still held.
    pub connections: Connections,
    images: HashMap<(u32, bool), RawFd>,
    old_limit: Option<libc::rlimit64>,
}

impl Pool {
    /// Opens everything.
    ///
    /// # Errors
    /// The thing that cannot be opened, by name.
    pub fn open(tree: &Tree, snapshot: &dyn Snapshot) -> Result<Self, Error> {
        let highest = tree
            .processes
            .iter()
            .flat_map(|process| &process.descriptors)
            .map(|descriptor| descriptor.number)
            .max()
            .unwrap_or(0);
        let mut pool = Self {
            base: (highest + 1).max(64),
            held: HashMap::new(),
            files: Vec::new(),
            objects: Vec::new(),
            connections: Connections::default(),
            images: HashMap::new(),
            old_limit: None,
        };
        pool.raise_limit(tree)?;
        for object in &tree.objects {
            let file = open_object(object, snapshot)?;
            let number = pool.put(file)?;
            pool.objects.push(number);
        }
        let pipes = tree
            .pipes
            .iter()
            .map(open_pipe)
            .collect::<Result<Vec<_>, _>>()?;
        let (mut sockets, connections) = super::sockets::open_all(tree)?;
        pool.connections = connections;
        for file in &tree.files {
            let opened = open_file(file, tree, &pool, &pipes, &mut sockets)?;
            finish(file, &opened)?;
            let number = pool.put(opened)?;
            pool.files.push(number);
        }
        Ok(pool)
    }

    /// A descriptor of an image to map.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn image(&mut self, tree: &Tree, image: u32, writable: bool) -> Result<RawFd, Error> {
        if let Some(&number) = self.images.get(&(image, writable)) {
            return Ok(number);
        }
        let path = &tree.images[image as usize].path;
        let file = fs::OpenOptions::new()
            .read(true)
            .write(writable)
            .open(path)
            .map_err(|source| Error::Open {
                path: path.clone(),
                source,
            })?;
        let number = self.put(file.into())?;
        self.images.insert((image, writable), number);
        Ok(number)
    }

    /// Keeps a descriptor under a number of ours.
    fn put(&mut self, file: OwnedFd) -> Result<RawFd, Error> {
        // SAFETY: no memory involved; the descriptor is new and ours.
        let kept = unsafe {
            let number = libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, self.base);
            if number < 0 {
                let source = io::Error::last_os_error();
                return Err(Error::System {
                    action: "keep a descriptor".to_owned(),
                    source,
                });
            }
            OwnedFd::from_raw_fd(number)
        };
        let number = kept.as_raw_fd();
        self.held.insert(number, kept);
        Ok(number)
    }

    /// Our numbers may lie above the limit of open files.
    fn raise_limit(&mut self, tree: &Tree) -> Result<(), Error> {
        let wanted = self.base as u64
            + (tree.files.len() + tree.images.len() * 2 + tree.objects.len()) as u64
            + 1024;
        let mut limit = libc::rlimit64 {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the limit lives.
        unsafe { libc::getrlimit64(libc::RLIMIT_NOFILE, &raw mut limit) };
        if limit.rlim_cur >= wanted {
            return Ok(());
        }
        let raised = libc::rlimit64 {
            rlim_cur: wanted,
            rlim_max: limit.rlim_max.max(wanted),
        };
        // SAFETY: the limit lives.
        if unsafe { libc::setrlimit64(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
            return Err(Error::System {
                action: format!("raise the limit of open files to {wanted}"),
                source: io::Error::last_os_error(),
            });
        }
        self.old_limit = Some(limit);
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.held.clear();
        if let Some(limit) = &self.old_limit {
            // SAFETY: the limit lives.
            unsafe { libc::setrlimit64(libc::RLIMIT_NOFILE, std::ptr::from_ref(limit)) };
        }
    }
}

/// Both ends of a pipe; of a named one, two descriptors for both directions.
type PipeEnds = (OwnedFd, OwnedFd);

fn open_file(
    file: &File,
    tree: &Tree,
    pool: &Pool,
    pipes: &[PipeEnds],
    sockets: &mut [Option<OwnedFd>],
) -> Result<OwnedFd, Error> {
    let system = |action: &str| {
        let action = action.to_owned();
        move |source| Error::System { action, source }
    };
    match &file.kind {
        FileKind::Inherited(number) => {
            // SAFETY: the number is only looked up.
            let own = unsafe { BorrowedFd::borrow_raw(*number) };
            own.try_clone_to_owned()
                .map_err(system(&format!("hand down descriptor {number}")))
        }
        FileKind::Image(image) => open_image(file, &tree.images[*image as usize].path),
        FileKind::Object(object) => {
            let number = pool.objects[*object as usize];
            let opened = reopen(number, file.flags).map_err(system("open shared memory"))?;
            seek(&opened, file.position).map_err(system("seek in shared memory"))?;
            Ok(opened)
        }
        FileKind::Pipe(pipe) => {
            let (read_end, write_end) = &pipes[*pipe as usize];
            let end = if file.flags as i32 & libc::O_ACCMODE == libc::O_WRONLY {
                write_end
            } else {
                read_end
            };
            reopen(end.as_raw_fd(), file.flags | libc::O_NONBLOCK as u32)
                .map_err(system("open the end of a pipe"))
        }
        FileKind::Socket(socket) => sockets[*socket as usize]
            .take()
            .ok_or_else(|| Error::Description(format!("socket {socket} has two descriptions"))),
        FileKind::Event { count, semaphore } => {
            open_event(*count, *semaphore).map_err(system("make an eventfd"))
        }
        FileKind::Epoll(_) => {
            // SAFETY: no memory involved.
            owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
                .map_err(system("make an epoll instance"))
        }
        FileKind::Timer {
            clock,
            remaining_ns,
            interval_ns,
            ticks,
            ..
        } => open_timer(*clock, *remaining_ns, *interval_ns, *ticks)
            .map_err(system("make a timerfd")),
        FileKind::Signal { mask } => {
            // SAFETY: the mask lives, and has the kernel's length.
            owned(unsafe {
                libc::syscall(
                    libc::SYS_signalfd4,
                    -1,
                    std::ptr::from_ref(mask),
                    8,
                    libc::SFD_CLOEXEC,
                )
            } as i32)
            .map_err(system("make a signalfd"))
        }
        FileKind::Inotify { watches, unread } => open_inotify(watches, *unread),
        FileKind::Proc(_) | FileKind::Pid(_) => fs::File::open("/dev/null")
            .map(OwnedFd::from)
            .map_err(system("open /dev/null")),
    }
}

fn open_image(file: &File, path: &str) -> Result<OwnedFd, Error> {
    let failed = |source| Error::Open {
        path: path.to_owned(),
        source,
    };
    let flags = file.flags as i32 & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_ASYNC);
    let opened = open(path, flags | libc::O_NOCTTY).map_err(failed)?;
    // Devices and terminals have no position.
    if file.position != 0 {
        seek(&opened, file.position).map_err(failed)?;
    }
    Ok(opened)
}

/// The flags, which every description has.
fn finish(file: &File, opened: &OwnedFd) -> Result<(), Error> {
    let fd = opened.as_raw_fd();
    let failed = |action: &str| Error::System {
        action: action.to_owned(),
        source: io::Error::last_os_error(),
    };
    let own = matches!(
        file.kind,
        FileKind::Inherited(_) | FileKind::Proc(_) | FileKind::Pid(_)
    );
    if own || file.flags & libc::O_PATH as u32 != 0 {
        return Ok(());
    }
    // SAFETY: no memory involved.
    unsafe {
        let now = libc::fcntl(fd, libc::F_GETFL);
        let wanted = file.flags as i32 & SETTABLE;
        if now >= 0 && now & SETTABLE != wanted && libc::fcntl(fd, libc::F_SETFL, wanted) < 0 {
            return Err(failed("set the flags of a file"));
        }
    }
    Ok(())
}

fn open_object(object: &Object, snapshot: &dyn Snapshot) -> Result<OwnedFd, Error> {
    let failed = |action: String| move |source| Error::System { action, source };
    let file = match &object.kind {
        ObjectKind::SharedAnonymous => {
            shared_anonymous(object.bytes).map_err(failed("make shared memory".to_owned()))?
        }
        ObjectKind::Memfd { name, .. } => {
            let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
            rustix::fs::memfd_create(name.as_str(), flags)
                .map_err(io::Error::from)
                .map_err(failed(format!("make the memfd {name}")))?
        }
        ObjectKind::Unlinked { path, mode, owner } => {
            let directory = std::path::Path::new(path).parent().unwrap_or("/".as_ref());
            let file = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_TMPFILE)
                .mode(*mode)
                .open(directory)
                .map_err(|source| Error::Open {
                    path: path.clone(),
                    source,
                })?;
            let _ = file.set_permissions(fs::Permissions::from_mode(*mode));
            let _ = std::os::unix::fs::fchown(&file, Some(owner.0), Some(owner.1));
            file.into()
        }
    };
    let file = fs::File::from(file);
    if !matches!(object.kind, ObjectKind::SharedAnonymous) {
        file.set_len(object.bytes)
            .map_err(failed("size shared memory".to_owned()))?;
    }
    for extent in snapshot.extents(object.space) {
        snapshot.check(object.space, &extent)?;
        let bytes = snapshot.bytes(&extent);
        // The last page of an object may be longer than it.
        let room = object
            .bytes
            .saturating_sub(extent.start)
            .min(bytes.len() as u64) as usize;
        file.write_all_at(&bytes[..room], extent.start)
            .map_err(failed("fill shared memory".to_owned()))?;
    }
    if let ObjectKind::Memfd { seals, .. } = object.kind
        && seals != 0
    {
        // Of an executable file, the kernel would seal the contents together with the permissions.
        let mode = crate::capture::memfd_permissions(seals);
        file.set_permissions(fs::Permissions::from_mode(mode))
            .map_err(failed("set the permissions of a memfd".to_owned()))?;
        let seals = rustix::fs::SealFlags::from_bits_retain(seals);
        rustix::fs::fcntl_add_seals(&file, seals)
            .map_err(io::Error::from)
            .map_err(failed("seal a memfd".to_owned()))?;
    }
    Ok(file.into())
}

/// Anonymous shared memory has no name to open; a mapping of ours has.
fn shared_anonymous(bytes: u64) -> io::Result<OwnedFd> {
    // SAFETY: a new mapping, unmapped before anything points into it.
    unsafe {
        let address = libc::mmap(
            std::ptr::null_mut(),
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = address as u64;
        let end = start + bytes.next_multiple_of(4096);
        let link = format!("/proc/self/map_files/{start:x}-{end:x}");
        let file = fs::OpenOptions::new().read(true).write(true).open(link);
        libc::munmap(address, bytes as usize);
        file.map(OwnedFd::from)
    }
}

fn open_pipe(pipe: &Pipe) -> Result<PipeEnds, Error> {
    let system = |source: io::Error| Error::System {
        action: "make a pipe".to_owned(),
        source,
    };
    let (read_end, write_end) = match &pipe.path {
        None => rustix::pipe::pipe_with(
            rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK,
        )
        .map_err(|error| system(error.into()))?,
        Some(path) => {
            let both = || {
                fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .custom_flags(libc::O_NONBLOCK)
                    .open(path)
                    .map_err(|source| Error::Open {
                        path: path.clone(),
                        source,
                    })
            };
            (both()?.into(), both()?.into())
        }
    };
    rustix::pipe::fcntl_setpipe_size(&write_end, pipe.capacity as usize)
        .map_err(|error| system(error.into()))?;
    let mut writer = fs::File::from(write_end);
    writer.write_all(&pipe.content).map_err(system)?;
    Ok((read_end, writer.into()))
}

fn open_event(count: u64, semaphore: bool) -> io::Result<OwnedFd> {
    let flags = libc::EFD_CLOEXEC | if semaphore { libc::EFD_SEMAPHORE } else { 0 };
    // SAFETY: no memory involved.
    let event = owned(unsafe { libc::eventfd(0, flags) })?;
    if count > 0 {
        rustix::io::write(&event, &count.to_ne_bytes())?;
    }
    Ok(event)
}

fn open_timer(clock: i32, remaining: u64, interval: u64, ticks: u64) -> io::Result<OwnedFd> {
    // SAFETY: no memory involved.
    let timer = owned(unsafe { libc::timerfd_create(clock, libc::TFD_CLOEXEC) })?;
    let time = |ns: u64| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    let setting = libc::itimerspec {
        it_interval: time(interval),
        it_value: time(remaining),
    };
    // SAFETY: the setting lives.
    let set = unsafe {
        libc::timerfd_settime(
            timer.as_raw_fd(),
            0,
            &raw const setting,
            std::ptr::null_mut(),
        )
    };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    if ticks > 0 {
        // SAFETY: the number lives.
        let set = unsafe { libc::ioctl(timer.as_raw_fd(), TFD_IOC_SET_TICKS, &raw const ticks) };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(timer)
}

fn open_inotify(watches: &[crate::state::InotifyWatch], unread: bool) -> Result<OwnedFd, Error> {
    let failed = |source| Error::System {
        action: "make an inotify instance".to_owned(),
        source,
    };
    // SAFETY: no memory involved.
    let inotify = owned(unsafe { libc::inotify_init1(libc::IN_CLOEXEC) }).map_err(failed)?;
    if unread && let Err(error) = overflow(&inotify) {
        tracing::warn!("an inotify instance cannot be told that events are lost: {error}");
    }
    for watch in watches {
        let path = std::ffi::CString::new(watch.path.as_str())
            .map_err(|_| Error::Description(format!("watched path {:?}", watch.path)))?;
        // SAFETY: the path lives.
        let number = unsafe {
            libc::ioctl(inotify.as_raw_fd(), INOTIFY_IOC_SETNEXTWD, watch.number);
            libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), watch.mask & 0x0fff)
        };
        if number < 0 {
            let source = io::Error::last_os_error();
            return Err(Error::Open {
                path: watch.path.clone(),
                source,
            });
        }
        if number != watch.number {
            return Err(failed(io::Error::other(format!(
                "watch {} of {} got number {number}",
                watch.number, watch.path
            ))));
        }
    }
    Ok(inotify)
}

/// Leaves one event in the queue of an inotify instance: that others are lost (`IN_Q_OVERFLOW`).
/// The kernel puts it in when a queue is full. So it is filled, and all but this is taken out.
fn overflow(inotify: &OwnedFd) -> io::Result<()> {
    const EVENT_BYTES: usize = 16;
    const EVENTS_MAX: usize = 1 << 20;
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")?;
    let most: usize = most.trim().parse().map_err(io::Error::other)?;
    if most > EVENTS_MAX {
        return Err(io::Error::other("its queue is too long to be filled"));
    }
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(std::env::temp_dir())?;
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    // SAFETY: the path lives.
    let watch = unsafe {
        let events = libc::IN_MODIFY | libc::IN_ACCESS;
        libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), events)
    };
    if watch < 0 {
        return Err(io::Error::last_os_error());
    }
    // Neighbours that are alike would become one event.
    for _ in 0..=most / 2 {
        file.write_all_at(&[0], 0)?;
        file.read_exact_at(&mut [0], 0)?;
    }
    // The event of its own end finds no room.
    // SAFETY: no memory involved.
    unsafe { libc::inotify_rm_watch(inotify.as_raw_fd(), watch) };
    let mut left = most * EVENT_BYTES;
    let mut buffer = vec![0u8; left.min(1 << 16)];
    while left > 0 {
        let room = buffer.len().min(left);
        let got = rustix::io::read(inotify, &mut buffer[..room])?;
        left -= got.min(left);
    }
    Ok(())
}

fn open(path: &str, flags: i32) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(path)?;
    // SAFETY: the path lives.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
}

/// A new description of what a descriptor of ours leads to.
fn reopen(number: RawFd, flags: u32) -> io::Result<OwnedFd> {
    open(
        &format!("/proc/self/fd/{number}"),
        flags as i32 & !(libc::O_CREAT | libc::O_TRUNC | libc::O_ASYNC),
    )
}

fn seek(file: &OwnedFd, position: u64) -> io::Result<()> {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Start(position))
        .map(drop)
        .map_err(Into::into)
}

pub(super) fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        Err(io::Error::last_os_error())
    } else {
        // SAFETY: the kernel has just given it to us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inotify_instance_with_unread_events_says_that_they_are_lost() {
        let directory = tempfile::tempdir().expect("a directory");
        let watch = crate::state::InotifyWatch {
            number: 7,
            path: directory.path().display().to_string(),
            mask: libc::IN_CREATE,
        };
        let inotify = open_inotify(&[watch], true).expect("made");
        fs::write(directory.path().join("new"), "").expect("written");
        let mut bytes = [0u8; 256];
        let got = rustix::io::read(&inotify, &mut bytes).expect("events");
        let word = |at: usize| i32::from_ne_bytes(*bytes[at..].first_chunk().expect("four bytes"));
        assert_eq!((word(0), word(4)), (-1, libc::IN_Q_OVERFLOW as i32));
        assert_eq!((word(16), word(20)), (7, libc::IN_CREATE as i32));
        assert_eq!(got, 16 + 16 + 16, "nothing else");
    }
}
