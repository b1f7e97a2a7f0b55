//! The pool: all open files of the tree, opened by the tracker.
//!
//! The recreated processes inherit the tracker's descriptors and put each in its place. So files,
//! pipes and sockets are created here with ordinary system calls, and descriptions that several
//! processes share are shared from the start. A file that depends on the opening process (files of
//! /proc, pidfds) gets a substitute here, which its process replaces.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use super::Error;
use super::dead::Dead;
use super::descriptors::{open_image, owned, reopen, seek};
use super::events::{open_event, open_inotify, open_timer};
use super::ghosts::Ghosts;
use super::ipc::Made;
use super::objects::open_object;
use super::rights::{CAP_SYS_RESOURCE, capable, own_limit};
use super::tcp::Connections;
use crate::state::{File, FileKind, ObjectKind, Pipe, Tree};
use crate::store::Snapshot;

/// Descriptors that a restore opens beside those of the tree: its store, its region, gates, pidfds.
const SPARE_DESCRIPTORS: u64 = 64;

/// Flags that `F_SETFL` can change here. A process sets `O_ASYNC` itself: the kernel remembers the
/// number of the descriptor.
const SETTABLE: i32 = libc::O_APPEND | libc::O_DIRECT | libc::O_NOATIME | libc::O_NONBLOCK;

/// The tracker's descriptors for the tree.
#[derive(Debug)]
pub struct Pool {
    /// Numbers from here on are the tracker's; all numbers of the tree are below.
    pub base: RawFd,
    held: HashMap<RawFd, OwnedFd>,
    /// For each open file description of the tree.
    pub files: Vec<RawFd>,
    /// For each object, for reading and writing.
    pub objects: Vec<RawFd>,
    /// For each pseudo-terminal, its master side.
    pub terminals: Vec<RawFd>,
    /// System V objects and POSIX shared memory; removed unless they are kept.
    pub ipc: Made,
    /// Processes that were waited for, and still have pidfds.
    dead: Dead,
    /// Names that are there for the time of the restore.
    pub ghosts: Ghosts,
    /// TCP connections, still held.
    pub connections: Connections,
    images: HashMap<(u32, bool), RawFd>,
    /// Objects opened for reading alone.
    read_only: HashMap<u32, RawFd>,
    old_limit: Option<libc::rlimit64>,
}

impl Pool {
    /// Opens everything.
    ///
    /// # Errors
    /// The thing that cannot be opened, by name.
    pub fn open(tree: &Tree, snapshot: &dyn Snapshot) -> Result<Self, Error> {
        let mut pool = Self {
            base: base_of(tree),
            held: HashMap::new(),
            files: Vec::new(),
            objects: Vec::new(),
            terminals: Vec::new(),
            ipc: Made::default(),
            dead: Dead::default(),
            ghosts: Ghosts::default(),
            connections: Connections::default(),
            images: HashMap::new(),
            read_only: HashMap::new(),
            old_limit: None,
        };
        pool.raise_limit(tree)?;
        pool.ghosts = Ghosts::make(tree)?;
        for (index, object) in (0u32..).zip(&tree.objects) {
            let flags = super::unlinked::flags_of(tree, index);
            let file = open_object(object, flags, snapshot, &mut pool.ipc)?;
            let number = pool.put(file)?;
            pool.objects.push(number);
        }
        pool.ipc.others(tree)?;
        for master in super::terminals::open_masters(tree)? {
            let number = pool.put(master)?;
            pool.terminals.push(number);
        }
        let pipes = tree
            .pipes
            .iter()
            .map(open_pipe)
            .collect::<Result<Vec<_>, _>>()?;
        let mut used = Originals::default();
        let opened = super::sockets::open_all(tree)?;
        let mut sockets = opened.all;
        pool.connections = opened.connections;
        let mut queues = super::posix_queues::open_all(tree, &mut pool.ipc)?;
        let mut rings = super::uring::open_all(tree)?;
        for (file, queue) in tree.files.iter().zip(&mut queues) {
            let opened = match file.kind {
                FileKind::DeadPid(which) => {
                    let opened = pool.dead.pidfd(which);
                    opened.map_err(super::error::system("open the pidfd of a dead process"))?
                }
                FileKind::PosixQueue { queue: index, .. } => queue.take().ok_or_else(|| {
                    Error::Description(format!("message queue {index} was not opened"))
                })?,
                FileKind::Uring(ring) => {
                    let opened = rings.get_mut(ring as usize).and_then(Option::take);
                    opened.ok_or_else(|| Error::Description(format!("ring {ring} was not made")))?
                }
                _ => open_file(file, tree, &pool, &pipes, &mut sockets, &mut used)?,
            };
            finish(file, &opened)?;
            let number = pool.put(opened)?;
            pool.files.push(number);
        }
        // From here on they are dead.
        pool.dead = Dead::default();
        super::under_way::send_all(tree, &pool.files, opened.others)?;
        super::terminals::finish(tree, &pool.terminals)?;
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

    /// A descriptor of an object to map it for reading alone.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn object_to_read(&mut self, object: u32) -> Result<RawFd, Error> {
        if let Some(&number) = self.read_only.get(&object) {
            return Ok(number);
        }
        let opened = reopen(self.objects[object as usize], libc::O_RDONLY as u32);
        let number = self.put(opened.map_err(super::error::system("open shared memory"))?)?;
        self.read_only.insert(object, number);
        Ok(number)
    }

    /// The descriptors of all objects, to be finished when the processes have mapped them.
    pub fn take_objects(&mut self) -> Vec<OwnedFd> {
        let held = self.objects.iter();
        held.filter_map(|number| self.held.remove(number)).collect()
    }

    /// A descriptor of `/dev/null`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn null(&mut self) -> Result<RawFd, Error> {
        let opened = fs::File::open("/dev/null");
        self.put(
            opened
                .map_err(super::error::system("open /dev/null"))?
                .into(),
        )
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

    /// Our numbers may lie above the limit of open files. The soft limit is ours to raise; the hard
    /// one is raised only where it is too low for what is to be opened, because that needs a
    /// capability that containers lack.
    fn raise_limit(&mut self, tree: &Tree) -> Result<(), Error> {
        let needed = needed_descriptors(tree);
        let mut limit = libc::rlimit64 {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the limit lives.
        unsafe { libc::getrlimit64(libc::RLIMIT_NOFILE, &raw mut limit) };
        if limit.rlim_cur >= needed {
            return Ok(());
        }
        let raised = libc::rlimit64 {
            rlim_cur: needed,
            rlim_max: limit.rlim_max.max(needed),
        };
        // SAFETY: the limit lives.
        if unsafe { libc::setrlimit64(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
            return Err(Error::FileLimit {
                needed,
                hard: limit.rlim_max,
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

/// The lowest number of ours: all of the tree's are below.
fn base_of(tree: &Tree) -> RawFd {
    let processes = tree.processes.iter();
    let highest = processes
        .flat_map(|process| &process.descriptors)
        .map(|descriptor| descriptor.number)
        .chain(waited_for(tree))
        .max();
    (highest.unwrap_or(0) + 1).max(64)
}

/// The limit of open files that a restore needs.
fn needed_descriptors(tree: &Tree) -> u64 {
    let opened = tree.files.len()
        + tree.images.len() * 2
        + tree.objects.len()
        + tree.pipes.len() * 2
        + tree.sockets.len() * 2
        + tree.terminals.len()
        + highest_terminal(tree);
    base_of(tree) as u64 + opened as u64 + SPARE_DESCRIPTORS
}

/// Terminals with lower numbers are opened, too, until the right ones come.
fn highest_terminal(tree: &Tree) -> usize {
    let numbers = tree.terminals.iter().map(|terminal| terminal.number);
    numbers.max().map_or(0, |number| number as usize + 1)
}

/// Whether a restore can open as many files as it needs.
///
/// # Errors
/// The hard limit is too low, and the right to raise it is missing.
pub(super) fn enough_descriptors(tree: &Tree) -> Result<(), Error> {
    let (needed, hard) = (needed_descriptors(tree), own_limit(libc::RLIMIT_NOFILE).1);
    if hard >= needed || capable(CAP_SYS_RESOURCE) {
        return Ok(());
    }
    Err(Error::FileLimit {
        needed,
        hard,
        source: io::Error::from_raw_os_error(libc::EPERM),
    })
}

/// Numbers under which epoll instances wait for something; they need not be open any more.
fn waited_for(tree: &Tree) -> impl Iterator<Item = RawFd> {
    tree.files.iter().flat_map(|file| match &file.kind {
        FileKind::Epoll(items) => items.iter().map(|item| item.descriptor).collect(),
        _ => Vec::new(),
    })
}

/// Descriptions that came with an object or a pipe, and that the program has got.
#[derive(Default)]
struct Originals {
    objects: HashSet<u32>,
    pipes: HashSet<(u32, bool)>,
    names: super::unlinked::Names,
}

/// The kernel's number; libc's is 0, since all our own files have it.
const O_LARGEFILE: u32 = 0o100_000;

/// Whether a description is the one with which its object was made. Another one for writing would
/// forbid to execute the file.
fn is_original(file: &File, kind: &ObjectKind) -> bool {
    let reads_and_writes = file.flags as i32 & libc::O_ACCMODE == libc::O_RDWR;
    match kind {
        ObjectKind::Memfd { .. } => reads_and_writes,
        ObjectKind::Unlinked { .. } => {
            reads_and_writes && file.flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE
        }
        ObjectKind::SharedAnonymous | ObjectKind::Posix { .. } | ObjectKind::SystemV { .. } => {
            false
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
    used: &mut Originals,
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
        FileKind::Master(terminal) => {
            // SAFETY: the pool holds it.
            let master = unsafe { BorrowedFd::borrow_raw(pool.terminals[*terminal as usize]) };
            master
                .try_clone_to_owned()
                .map_err(system("keep a pseudo-terminal"))
        }
        FileKind::Slave(terminal) => {
            let number = tree.terminals[*terminal as usize].number;
            if file.flags & O_LARGEFILE == 0 {
                let master = pool.terminals[*terminal as usize];
                return super::terminals::open_slave(master, file.flags).map_err(system(&format!(
                    "open /dev/pts/{number} by its master side"
                )));
            }
            open_image(file, &format!("/dev/pts/{number}"))
        }
        FileKind::Object(object) => {
            // `shm_open` follows no links, and the way through /proc is one.
            if let ObjectKind::Posix { path, .. } = &tree.objects[*object as usize].kind {
                return open_image(file, pool.ipc.files.path_of(path));
            }
            let number = pool.objects[*object as usize];
            let opened = if is_original(file, &tree.objects[*object as usize].kind)
                && used.objects.insert(*object)
            {
                // SAFETY: the pool holds it.
                unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
            } else {
                let kind = &tree.objects[*object as usize].kind;
                used.names.reopen((*object, kind), number, file.flags)
            };
            let opened = opened.map_err(system("open shared memory"))?;
            // Without the right to read or write there is no position.
            if file.position != 0 {
                seek(&opened, file.position).map_err(system("seek in shared memory"))?;
            }
            Ok(opened)
        }
        FileKind::Pipe(pipe) => {
            let (read_end, write_end) = &pipes[*pipe as usize];
            let end = if file.flags as i32 & libc::O_ACCMODE == libc::O_WRONLY {
                write_end
            } else {
                read_end
            };
            let writes = file.flags as i32 & libc::O_ACCMODE == libc::O_WRONLY;
            // `pipe` does not give this flag, a path to its ends does.
            if tree.pipes[*pipe as usize].path.is_none()
                && file.flags & O_LARGEFILE == 0
                && used.pipes.insert((*pipe, writes))
            {
                return end.try_clone().map_err(system("keep the end of a pipe"));
            }
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
        timer @ FileKind::Timer { .. } => open_timer(timer).map_err(system("make a timerfd")),
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
        // The last three are opened elsewhere.
        FileKind::Proc(_)
        | FileKind::Pid(_)
        | FileKind::PosixQueue { .. }
        | FileKind::Uring(_)
        | FileKind::DeadPid(_) => fs::File::open("/dev/null")
            .map(OwnedFd::from)
            .map_err(system("open /dev/null")),
    }
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
