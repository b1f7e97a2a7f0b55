//! Describes the kernel objects of a stopped process tree.
//!
//! Most state is read from outside: /proc, ptrace, and duplicates of the tree's descriptors
//! (`pidfd_getfd`). State that only the process itself can read (signal handlers, alternate stacks,
//! …) is read by remote system calls. They leave the tree unchanged: memory that they borrow for
//! answers is restored. What cannot be restored is refused here, all of it in one error.

mod advice;
mod cgroups;
mod data;
mod epolls;
mod fdinfo;
mod files;
mod filters;
mod ghosts;
mod inet_diag;
mod memory;
mod multipath;
mod namespaces;
mod notifications;
mod objects;
mod options;
mod packet_sockets;
mod pipes;
mod posix_queues;
mod query;
mod queues;
mod raw_sockets;
mod remote;
mod settings;
mod sockets;
mod sysv;
mod task;
mod tcp;
mod terminals;
mod thread;
mod under_way;
mod unix_diag;
mod unix_sockets;
mod uring;
mod watches;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

pub use advice::AdviceCache;
pub use data::{data, pass};
pub use tcp::HeldConnection;

use crate::procfs;
use crate::ptrace::{self, FrozenTree, Pid};
use crate::state;
use crate::store::SpaceId;

/// What the tracker knows and capture needs.
pub struct Options<'caller> {
    /// The space of a process' private pages.
    pub space_of: &'caller dyn Fn(Pid) -> SpaceId,
    /// The space of a shared-memory object with this device and inode number: the same over
    /// epochs as long as the object lives.
    pub object_space: &'caller mut dyn FnMut(u64, u64) -> SpaceId,
    /// Remembers advice (`madvise`) of mappings, which is slow to read of a large process.
    pub advice: &'caller mut AdviceCache,
    /// The tree will not run again: TCP connections to the outside are read, too, and held as
    /// they are read.
    pub keep_connections: bool,
    /// The tracker has stopped the tree (SIGSTOP): after a restore it runs.
    pub stopped_by_us: bool,
    /// How long the tree stands for the sake of what ends by itself: requests of io_uring, datagrams on their way.
    pub settle_limit: Duration,
    /// Directories of files that belong to it.
    pub data: &'caller [std::path::PathBuf],
    /// The control groups in which the program was started (`/proc/PID/cgroup`): a restored one is in
    /// its tracker's. A process that has left them is refused. None: they do not matter.
    pub cgroups: Option<&'caller str>,
}

/// A described tree, and the shared memory of which pages must be stored with it.
pub struct Captured {
    /// The description.
    pub tree: state::Tree,
    /// Shared-memory objects, one for each of the tree's, in the same order.
    pub objects: Vec<SharedObject>,
    /// TCP connections to the outside. They work again when these are dropped; if the tree is
    /// killed, they are to be abandoned.
    pub connections: Vec<HeldConnection>,
}

/// A shared-memory object, to be read through a descriptor.
pub struct SharedObject {
    /// Names its pages.
    pub space: SpaceId,
    /// Opened for reading.
    pub file: OwnedFd,
    /// Length, bytes.
    pub bytes: u64,
}

/// Something that cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In which process.
    pub pid: Pid,
    /// Its name.
    pub program: String,
    /// What, in words: "fd 7 is an io_uring instance".
    pub what: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "process {} ({}): {}: not supported",
            self.pid, self.program, self.what
        )
    }
}

/// Why a tree is not described.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It uses what we cannot restore.
    #[error("{}", list(.0))]
    Unsupported(Vec<Refusal>),
    /// A thread could not execute a remote system call.
    #[error(transparent)]
    Ptrace(#[from] ptrace::Error),
    /// A system call that must work failed.
    #[error("process {pid}: cannot {action}: {source}")]
    Read {
        /// In which process.
        pid: Pid,
        /// What was tried.
        action: String,
        /// Why not.
        source: std::io::Error,
    },
}

fn list(refusals: &[Refusal]) -> String {
    refusals
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Describes a frozen tree. It must be called before pages are copied: it borrows some bytes of
/// each process and puts them back.
///
/// # Errors
/// See [`Error`]; the tree is unchanged and still frozen.
pub fn capture(frozen: &mut FrozenTree, options: Options<'_>) -> Result<Captured, Error> {
    let mut builder = Builder::new(options);
    builder.tree.kernel = kernel();
    builder.tree.clocks = clocks(frozen.processes.first().map_or(0, |process| process.pid))
        .map_err(|source| Error::Read {
            pid: 0,
            action: "read the clocks".to_owned(),
            source,
        })?;
    let pids: Vec<Pid> = frozen.processes.iter().map(|process| process.pid).collect();
    builder.pids.clone_from(&pids);
    // Before anything is read: what is under way there changes files and memory.
    let mut maps = Vec::with_capacity(frozen.processes.len());
    for process in &mut frozen.processes {
        let its = builder.read_maps(process)?;
        builder.settle_rings(&its, process)?;
        maps.push(its);
    }
    for (process, maps) in frozen.processes.iter_mut().zip(&maps) {
        builder.process(process, maps, &pids)?;
    }
    builder.check_sharing_of_others();
    builder.check_death_signals();
    builder.system_v(&pids, frozen)?;
    builder.notifications(frozen)?;
    builder.files_under_way()?;
    builder.finish_groups();
    builder.finish_terminals()?;
    builder.finish_epolls();
    builder.finish_sockets();
    builder.finish_under_way();
    builder.finish_rings()?;
    for directory in builder.options.data {
        let read = data(directory).map_err(|source| Error::Read {
            pid: 0,
            action: format!("read what is below {}", directory.display()),
            source,
        })?;
        builder.tree.data.push(read);
    }
    if builder.refusals.is_empty() {
        builder.finish_connections();
    }
    // The threads that executed remote system calls get their registers back.
    for process in &mut frozen.processes {
        process.end_injections();
    }
    if builder.refusals.is_empty() {
        Ok(Captured {
            tree: builder.tree,
            objects: builder.objects,
            connections: builder.held,
        })
    } else {
        Err(Error::Unsupported(builder.refusals))
    }
}

/// What `stat` says of a process.
struct Seen {
    name: String,
    /// In ticks after the boot.
    started: u64,
}

/// Builds a description.
struct Builder<'caller> {
    options: Options<'caller>,
    tree: state::Tree,
    objects: Vec<SharedObject>,
    refusals: Vec<Refusal>,
    /// All processes of the tree.
    pids: Vec<Pid>,
    /// The process that is being described.
    pid: Pid,
    program: String,
    /// Living processes that are described.
    seen: HashMap<Pid, Seen>,
    image_index: HashMap<String, u32>,
    /// Files that a mapping leads to, by path: device and inode, and the index of the image.
    mapped_images: HashMap<String, ((u64, u64), u32)>,
    /// The tracker's namespaces, once read.
    own_namespaces: Option<namespaces::Namespaces>,
    /// The time namespace of the first process.
    first_time: Option<Option<String>>,
    /// Until when the tree stands for the sake of what sockets have sent; set at the first that is waited for.
    settled_by: Option<Instant>,
    /// `status` of threads, as read before they are asked.
    statuses: HashMap<Pid, String>,
    /// By device and inode: index, `None` for what turned out not to be an object.
    object_index: HashMap<(u64, u64), u32>,
    pipe_index: HashMap<u64, u32>,
    /// POSIX message queues, by inode.
    posix_queue_index: HashMap<u64, u32>,
    /// Those with a registration, of which the messages are not read yet.
    registered: Vec<posix_queues::Registered>,
    socket_index: HashMap<u64, u32>,
    fresh_sockets: FreshSockets,
    addresses: sockets::Addresses,
    /// Of the process of which descriptors are being read.
    pidfd: Option<(Pid, OwnedFd)>,
    descriptions: files::Descriptions,
    unix: unix_diag::Sockets,
    /// Of unix sockets, by index: the inode of their peer, and its address.
    peers: HashMap<u32, (u64, Vec<u8>)>,
    /// Epoll instances: index of the file, process, descriptor, and the inode behind each item.
    epolls: Vec<(u32, Pid, std::os::fd::RawFd, Vec<u64>)>,
    /// Listening unix sockets: process, descriptor, index.
    listeners: Vec<(Pid, std::os::fd::RawFd, u32, unix_diag::UnixSocket)>,
    /// Bytes that a connected unix socket without a known peer has written, by index.
    written_ahead: HashMap<u32, i32>,
    ghosts: ghosts::Ghosts,
    /// Inodes of pidfds of dead processes.
    dead_pids: Vec<u64>,
    under_way: under_way::UnderWay,
    rings: uring::Rings,
    terminals: terminals::Terminals,
    internet: inet_diag::Sockets,
    packets: packet_sockets::Sockets,
    connections: Vec<tcp::Candidate>,
    tcp_listeners: Vec<tcp::Listener>,
    held: Vec<HeldConnection>,
}

impl<'caller> Builder<'caller> {
    fn new(options: Options<'caller>) -> Self {
        Self {
            options,
            tree: state::Tree::empty(),
            objects: Vec::new(),
            refusals: Vec::new(),
            pids: Vec::new(),
            pid: 0,
            program: String::new(),
            seen: HashMap::new(),
            image_index: HashMap::new(),
            mapped_images: HashMap::new(),
            own_namespaces: None,
            first_time: None,
            settled_by: None,
            statuses: HashMap::new(),
            object_index: HashMap::new(),
            pipe_index: HashMap::new(),
            posix_queue_index: HashMap::new(),
            registered: Vec::new(),
            socket_index: HashMap::new(),
            fresh_sockets: FreshSockets::default(),
            addresses: sockets::Addresses::default(),
            pidfd: None,
            descriptions: files::Descriptions::default(),
            unix: unix_diag::Sockets::default(),
            peers: HashMap::new(),
            epolls: Vec::new(),
            listeners: Vec::new(),
            written_ahead: HashMap::new(),
            ghosts: ghosts::Ghosts::default(),
            dead_pids: Vec::new(),
            under_way: under_way::UnderWay::default(),
            rings: uring::Rings::default(),
            terminals: terminals::Terminals::default(),
            internet: inet_diag::Sockets::default(),
            packets: packet_sockets::Sockets::default(),
            connections: Vec::new(),
            tcp_listeners: Vec::new(),
            held: Vec::new(),
        }
    }

    /// What follows is about this process: refusals name it.
    fn turn_to(&mut self, pid: Pid) {
        self.pid = pid;
        self.program = match self.seen.get(&pid) {
            Some(seen) => seen.name.clone(),
            None => procfs::stat(pid, pid).map_or_else(|_| String::new(), |stat| stat.name),
        };
    }

    /// A duplicate of a descriptor of the process.
    fn duplicate(&mut self, number: RawFd) -> io::Result<OwnedFd> {
        let pidfd = match self.pidfd.take() {
            Some((pid, pidfd)) if pid == self.pid => pidfd,
            _ => ptrace::sys::pidfd(self.pid)?,
        };
        let taken = ptrace::sys::take_fd_of(&pidfd, number);
        self.pidfd = Some((self.pid, pidfd));
        taken
    }

    fn refuse(&mut self, what: impl Into<String>) {
        self.refusals.push(Refusal {
            pid: self.pid,
            program: self.program.clone(),
            what: what.into(),
        });
    }

    /// Until when what is on its way may be waited for, in all sockets together.
    fn settled_by(&mut self) -> Instant {
        let limit = self.options.settle_limit;
        *self
            .settled_by
            .get_or_insert_with(|| Instant::now() + limit)
    }

    fn failed<Words: Into<String>>(
        &self,
        action: Words,
    ) -> impl FnOnce(std::io::Error) -> Error + use<Words> {
        let (pid, action) = (self.pid, action.into());
        move |source| Error::Read {
            pid,
            action,
            source,
        }
    }

    /// Groups and sessions that no process of the tree leads are of outside, or their leaders
    /// have ended.
    fn finish_groups(&mut self) {
        let pids: Vec<Pid> = self
            .tree
            .processes
            .iter()
            .map(|process| process.pid)
            .collect();
        // SAFETY: no memory involved.
        let (own_group, own_session) = unsafe { (libc::getpgid(0), libc::getsid(0)) };
        let mut refusals = Vec::new();
        let root_group = self
            .tree
            .processes
            .first()
            .map_or(0, |process| process.group);
        let lives = |pid: Pid| std::path::Path::new(&format!("/proc/{pid}")).exists();
        for process in &mut self.tree.processes {
            let group = process.group;
            if group == own_group {
                process.group = 0;
            } else if !pids.contains(&group) && lives(group) {
                // Of the root's caller.
                if group != root_group && process.zombie.is_none() {
                    let what = format!("its process group {group} is led by a process outside");
                    refusals.push((process.pid, what));
                }
                process.group = 0;
            }
            let session = process.session;
            if session == own_session || !pids.contains(&session) && lives(session) {
                process.session = 0;
            }
        }
        refusals.extend(self.torn_sessions(&pids));
        for (pid, what) in refusals {
            self.turn_to(pid);
            self.refuse(what);
        }
    }
}

impl Builder<'_> {
    /// A placeholder process makes a session without a leader again, as a sibling of its first
    /// members: they must have one parent.
    fn torn_sessions(&self, pids: &[Pid]) -> Vec<(Pid, String)> {
        let processes = &self.tree.processes;
        let session_of: HashMap<Pid, Pid> = processes.iter().map(|p| (p.pid, p.session)).collect();
        let mut parents: HashMap<Pid, Pid> = HashMap::new();
        let mut torn = Vec::new();
        for process in processes.iter().filter(|process| process.zombie.is_none()) {
            let session = process.session;
            let first = session_of.get(&process.parent) != Some(&session);
            if session == 0 || pids.contains(&session) || !first {
                continue;
            }
            if *parents.entry(session).or_insert(process.parent) != process.parent {
                let what = format!(
                    "its session {session} has lost its leader, and has members under several \
                     parents"
                );
                torn.push((process.pid, what));
            }
        }
        torn
    }
}

pub(crate) use inet_diag::Sockets as InternetSockets;
pub(crate) use memory::vdso_digest;
pub(crate) use options::{FreshSockets, TCP_FASTOPEN_NO_COOKIE, changed_options};
pub(crate) use posix_queues::{others_with_file, send, sizes as queue_sizes};
pub(crate) use sysv::{
    Attached, Existing, existing_queue, existing_segment, existing_semaphores, open_segment,
};
pub(crate) use tcp::drop_all;
pub(crate) use thread::{SchedAttributes, own_credentials, scheduling};
pub(crate) use unix_diag::UnixSocket;

fn kernel() -> state::Kernel {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    state::Kernel {
        release,
        vdso_digest: 0,
        xstate_features: xstate_features(),
    }
}

/// Parts of the extended register state that the kernel has enabled (xcr0).
pub(crate) fn xstate_features() -> u64 {
    // SAFETY: the bit says that xgetbv exists.
    unsafe {
        if std::arch::x86_64::__cpuid(1).ecx & 1 << 27 != 0 {
            read_xcr0()
        } else {
            3
        }
    }
}

#[target_feature(enable = "xsave")]
fn read_xcr0() -> u64 {
    // SAFETY: register 0 exists wherever xgetbv does.
    unsafe { std::arch::x86_64::_xgetbv(0) }
}

/// The clocks as process `pid` sees them: ours plus the offsets of its time namespace.
fn clocks(pid: Pid) -> std::io::Result<state::Clocks> {
    let own = offsets("self");
    let its = offsets(&pid.to_string());
    let now = |clock| {
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    Ok(state::Clocks {
        monotonic_ns: now(rustix::time::ClockId::Monotonic) - own.0 + its.0,
        boottime_ns: now(rustix::time::ClockId::Boottime) - own.1 + its.1,
        realtime_ns: now(rustix::time::ClockId::Realtime),
    })
}

/// Offsets of the monotonic and the boot clock in a process' time namespace, nanoseconds. Without
/// time namespaces they are zero.
pub(crate) fn offsets(process: &str) -> (i64, i64) {
    let text = procfs::text(format!("/proc/{process}/timens_offsets"));
    let (mut monotonic, mut boottime) = (0, 0);
    for line in text.unwrap_or_default().lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [clock, seconds, nanoseconds] = fields[..] else {
            continue;
        };
        let (Ok(seconds), Ok(nanoseconds)) = (seconds.parse::<i64>(), nanoseconds.parse::<i64>())
        else {
            continue;
        };
        let offset = seconds * 1_000_000_000 + nanoseconds;
        match clock {
            "monotonic" => monotonic = offset,
            "boottime" => boottime = offset,
            _ => {}
        }
    }
    (monotonic, boottime)
}
