//! Recreating a process tree from its description and its pages.
//!
//! ```text
//!  tracker                                    recreated processes (all in the stub)
//!  ───────                                    ─────────────────────────────────────
//!  check: can all of it be done?
//!  open files, pipes, sockets (pool)
//!  write lists of operations (stub::Region)
//!  start the root ──────────────────────────► create children, sessions, groups
//!                 ◄────────── report ────────
//!  gate "grouped" ──────────────────────────► descriptors in place, own memory unmapped,
//!                                             the program's mappings made
//!                 ◄────────── report ────────
//!  copy the pages that cannot wait
//!  gate "filled"  ──────────────────────────► threads, signals, timers, credentials; park
//!                 ◄────────── end ───────────
//!  seize and stop all; set registers; unmap the stub
//! ```
//!
//! Whatever fails, fails before the tree runs: then all of it is killed and the store is as it
//! was. The caller gets the tree stopped, and says when it runs.

mod check;
mod datagrams;
mod guard;
pub mod lazy;
mod leftover;
mod lists;
mod memory;
mod pager;
mod pool;
mod sockets;
mod stub;
mod tcp;
mod undo;

use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::procfs;
use crate::ptrace::{self, FrozenTree, Pid, sys};
use crate::state::{Process, Tree};
use crate::store::{DamagedPage, Snapshot, SpaceId};
use undo::{KillOnError, SignalsBlocked};

/// What the user chooses.
#[derive(Debug, Clone)]
pub struct Options {
    /// Restore although files have changed that the program has open. Mapped files must never
    /// have changed.
    pub accept_changed_files: bool,
    /// Up to so many bytes, all pages are copied before the program runs; of a larger program,
    /// anonymous memory is left to be filled while it runs.
    pub copy_all_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            accept_changed_files: false,
            copy_all_bytes_max: 4 << 20,
        }
    }
}

/// A recreated tree, stopped.
#[derive(Debug)]
pub struct Restored {
    /// All of its processes. Thaw it and it runs.
    pub tree: FrozenTree,
    /// The first process, a child of the calling process.
    pub root: Pid,
    /// All children of the calling process.
    pub roots: Vec<Pid>,
    /// Anonymous memory of which pages are in the store and not yet in the process.
    pub left_to_fill: Vec<LeftToFill>,
}

/// A mapping that is empty, though the store has pages of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftToFill {
    /// In which process.
    pub pid: Pid,
    /// Names its pages in the store.
    pub space: SpaceId,
    /// The mapping.
    pub range: Range<u64>,
    /// The process gets transparent huge pages as soon as all of its mappings are watched.
    pub huge_pages: bool,
}

/// Why a tree cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Numbers are taken.
    #[error(
        "PID {pid} is taken by {name}: end it, or restore right after the boot, before other \
         services take numbers"
    )]
    PidTaken {
        /// The number.
        pid: Pid,
        /// Name of who has it.
        name: String,
    },
    /// A file is missing or closed to us.
    #[error("cannot open {path}: {source}; the program had it open or mapped")]
    Open {
        /// Its path.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// A file is not what it was.
    #[error("{path} has changed since the program was persisted ({how})")]
    Changed {
        /// Its path.
        path: String,
        /// In what.
        how: String,
    },
    /// An address is taken.
    #[error("cannot listen on {address} again: {source}; find who has it with `ss -lnp`")]
    Address {
        /// The address.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The kernel is not like the one that the program ran on.
    #[error("this kernel cannot run the persisted program: {0}")]
    Kernel(String),
    /// The caller lacks a right.
    #[error("restoring needs {0}: run as root, or with that capability")]
    Right(&'static str),
    /// A recreated process could not do something.
    #[error("process {task}: cannot {action} ({thing}): {source}")]
    Operation {
        /// Which process or thread.
        task: Pid,
        /// What it tried.
        action: &'static str,
        /// With what: an address, a descriptor, a number.
        thing: String,
        /// Why not.
        source: io::Error,
    },
    /// A recreated process did nothing any more.
    #[error("the recreated processes do not answer (in phase: {0})")]
    Silent(&'static str),
    /// A system call of ours failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// Why not.
        source: io::Error,
    },
    /// The description asks for what cannot be.
    #[error("the description cannot be followed: {0}")]
    Description(String),
    /// A page is damaged.
    #[error(transparent)]
    Damaged(#[from] DamagedPage),
    /// The tree cannot be taken over.
    #[error(transparent)]
    Ptrace(#[from] ptrace::Error),
}

const PR_SET_PDEATHSIG: u64 = 1;
const PR_SET_THP_DISABLE: u64 = 41;

/// How long a phase may take.
const PHASE_LIMIT: Duration = Duration::from_secs(20);

/// Recreates a tree. It is a child of the caller, complete, and stopped.
///
/// Call it from the thread that will thaw the tree. All signals but SIGCHLD are blocked in the
/// calling thread meanwhile.
///
/// # Errors
/// See [`Error`]. Then no process is left behind.
pub fn restore(tree: &Tree, snapshot: &dyn Snapshot, options: &Options) -> Result<Restored, Error> {
    check::ready(tree, options)?;
    let mut pool = pool::Pool::open(tree, snapshot)?;
    let own = procfs::maps(std::process::id() as Pid).map_err(|source| Error::System {
        action: "read our mappings".to_owned(),
        source,
    })?;
    let kernel = memory::KernelMappings::find(&own, tree)?;
    let hole = memory::find_hole(tree, &own)?;
    let mut region = stub::Region::new(hole).map_err(|source| Error::System {
        action: "map the restorer".to_owned(),
        source,
    })?;
    let copy_all = memory::copies_all(tree, snapshot, options);
    let plan = lists::write(tree, &mut pool, &mut region, &kernel, copy_all)?;

    let blocked = SignalsBlocked::new();
    let started = start(tree, &region, &plan.roots)?;
    // From here on, processes exist: kill them on every way out but the last.
    let mut guard = KillOnError {
        roots: started.roots.clone(),
        all: Vec::new(),
    };
    let connections = std::mem::take(&mut pool.connections);
    drop(pool);
    let wait = |count, phase| match region.wait(count, PHASE_LIMIT) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(named(failure, tree)),
        Err(_) => Err(Error::Silent(phase)),
    };
    wait(plan.processes, "creating processes")?;
    guard.all = tree.processes.iter().map(|process| process.pid).collect();
    region.open(plan.grouped);
    wait(plan.processes * 2, "mapping memory")?;
    let left_to_fill = memory::fill(tree, snapshot, copy_all)?;
    region.open(plan.filled);
    wait(plan.processes * 2 + plan.tasks, "creating threads")?;
    for process in &tree.processes {
        from_outside(process)?;
    }
    for stand_in in &plan.stand_ins {
        // SAFETY: no memory involved; it is our child, and ends by itself.
        unsafe { libc::waitpid(*stand_in, std::ptr::null_mut(), 0) };
    }
    let living = |pid: &&Pid| tree.processes.iter().any(|process| process.pid == **pid);
    let mut roots: Vec<Pid> = started.roots.iter().filter(living).copied().collect();
    // Created by stand-ins and siblings, and our children all the same.
    for process in tree
        .processes
        .iter()
        .filter(|p| p.parent == 0 && p.zombie.is_none())
    {
        if !roots.contains(&process.pid) {
            roots.push(process.pid);
        }
    }
    let mut frozen = FrozenTree::freeze(&roots)?;
    take_over(tree, &mut frozen, hole)?;
    if !copy_all {
        let waits = |pid| left_to_fill.iter().any(|left| left.pid == pid);
        for process in tree.processes.iter().filter(|p| p.zombie.is_none()) {
            if !process.thp_disabled && !waits(process.pid) {
                allow_huge_pages(&mut frozen, process.pid)?;
            }
        }
    }
    // Its end must not be taken for a parent's.
    drop(started);
    death_signals(tree, &mut frozen)?;
    // From here on nothing can fail.
    connections.resume(tree);
    guard.disarm();
    drop(blocked);
    Ok(Restored {
        tree: frozen,
        root: roots[0],
        roots,
        left_to_fill,
    })
}

/// The roots, and the thread that they are children of until the end.
struct Started {
    roots: Vec<Pid>,
    _parent: Parent,
}

/// A thread of ours in another time namespace, without restartable sequences: a child inherits
/// both. Its end would be taken for the death of a parent.
struct Parent {
    release: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Parent {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts the roots, in a time namespace in which the clocks go on where they stood.
fn start(tree: &Tree, region: &stub::Region, lists: &[(Pid, u64)]) -> Result<Started, Error> {
    let failed = |(pid, source): (Pid, io::Error)| match source.raw_os_error() {
        Some(libc::EEXIST) => check::pid_taken(pid),
        Some(libc::EPERM) => Error::Right("CAP_CHECKPOINT_RESTORE"),
        _ => Error::System {
            action: format!("create process {pid}"),
            source,
        },
    };
    let clocks = tree.clocks;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (created, creation) = std::sync::mpsc::channel();
    let handle = region.handle();
    let lists = lists.to_vec();
    let thread = std::thread::Builder::new()
        .name("restore-clocks".to_owned())
        .spawn(move || {
            let first = lists.first().map_or(0, |(pid, _)| *pid);
            let ready = leave_rseq()
                .and_then(|()| check::continue_clocks(&clocks))
                .map_err(|source| (first, source));
            let mut made = Vec::new();
            let all = ready.and_then(|()| {
                for &(pid, list) in &lists {
                    made.push(create(handle, pid, list).map_err(|source| (pid, source))?);
                }
                Ok(())
            });
            if all.is_err() {
                drop(KillOnError {
                    roots: std::mem::take(&mut made),
                    all: Vec::new(),
                });
            }
            let _ = created.send(all.map(|()| made));
            // Until the sender is dropped.
            let _ = released.recv();
        })
        .map_err(|source| Error::System {
            action: "start a thread".to_owned(),
            source,
        })?;
    let parent = Parent {
        release: Some(release),
        thread: Some(thread),
    };
    let ended = || io::Error::other("the thread that should create it ended");
    let roots = creation
        .recv()
        .unwrap_or_else(|_| Err((0, ended())))
        .map_err(failed)?;
    Ok(Started {
        roots,
        _parent: parent,
    })
}

/// Ends the registration of restartable sequences that the C library made for the calling thread.
/// A child would inherit it, and the kernel would write to memory that the child unmaps.
fn leave_rseq() -> io::Result<()> {
    // From the C library (2.35 and later): where, relative to the thread pointer, and whether.
    unsafe extern "C" {
        static __rseq_offset: isize;
        static __rseq_size: u32;
    }
    const UNREGISTER: u64 = 1;
    const SIGNATURE: u64 = 0x5305_3053;
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
    // SAFETY: constants of the C library; the thread pointer is that of this thread, which has
    // no sequence running, since it is here.
    unsafe {
        if __rseq_size == 0 {
            return Ok(());
        }
        let thread: u64;
        std::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, readonly));
        let area = thread.wrapping_add_signed(__rseq_offset as i64);
        // The registered length is that of the first version, or what the kernel asked for.
        let wanted = libc::getauxval(AT_RSEQ_FEATURE_SIZE).next_multiple_of(32);
        for bytes in [32, wanted, wanted.next_power_of_two()] {
            if libc::syscall(libc::SYS_rseq, area, bytes, UNREGISTER, SIGNATURE) == 0 {
                return Ok(());
            }
        }
    }
    Err(io::Error::last_os_error())
}

fn create(region: stub::Handle, pid: Pid, list: u64) -> io::Result<Pid> {
    let mut arguments = stub::CloneArguments {
        flags: lists::CLONE_CLEAR_SIGHAND,
        exit_signal: libc::SIGCHLD as u64,
        set_tid: (&raw const pid) as u64,
        set_tid_size: 1,
        ..Default::default()
    };
    region.start_process(&mut arguments, list)
}

fn named(failure: stub::Failure, tree: &Tree) -> Error {
    if failure.error == libc::EEXIST && failure.what.action == lists::CREATE_TASK {
        return check::pid_taken(failure.what.thing as Pid);
    }
    let thing = failure.what.thing;
    let thing = match failure.what.action {
        lists::MAP_IMAGE => tree
            .processes
            .iter()
            .find(|process| process.pid == failure.task)
            .and_then(|process| lists::image_at(tree, process, thing))
            .map_or_else(
                || format!("{thing:#x}"),
                |path| format!("{path} at {thing:#x}"),
            ),
        _ if thing > 0xffff => format!("{thing:#x}"),
        _ => format!("{thing}"),
    };
    Error::Operation {
        task: failure.task,
        action: failure.what.action,
        thing,
        source: io::Error::from_raw_os_error(failure.error),
    }
}

/// What others can set for a process.
fn from_outside(process: &Process) -> Result<(), Error> {
    let pid = process.pid;
    if process.zombie.is_some() {
        return Ok(());
    }
    let failed = |action: &str| Error::System {
        action: format!("{action} of process {pid}"),
        source: io::Error::last_os_error(),
    };
    let score = process.oom_score_adj;
    if score != 0
        && let Err(error) = std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string())
    {
        tracing::warn!("process {pid}: its out-of-memory score {score} cannot be set: {error}");
    }
    for thread in &process.threads {
        let scheduling = &thread.scheduling;
        let attributes = crate::capture::SchedAttributes {
            size: size_of::<crate::capture::SchedAttributes>() as u32,
            policy: scheduling.policy,
            flags: scheduling.flags,
            nice: scheduling.nice,
            priority: scheduling.priority,
            runtime: scheduling.deadline_ns[0],
            deadline: scheduling.deadline_ns[1],
            period: scheduling.deadline_ns[2],
        };
        // SAFETY: the structure and the mask live.
        unsafe {
            if libc::syscall(
                libc::SYS_sched_setattr,
                thread.tid,
                &raw const attributes,
                0,
            ) != 0
            {
                return Err(failed("set the scheduling"));
            }
            let affinity = &scheduling.affinity;
            if !affinity.is_empty()
                && libc::syscall(
                    libc::SYS_sched_setaffinity,
                    thread.tid,
                    affinity.len(),
                    affinity.as_ptr(),
                ) != 0
            {
                tracing::warn!(
                    "thread {}: none of its CPUs are here: it may use all",
                    thread.tid
                );
            }
            if scheduling.io_priority != 0 {
                libc::syscall(libc::SYS_ioprio_set, 1, thread.tid, scheduling.io_priority);
            }
        }
    }
    Ok(())
}

/// Gives every thread its registers and its signal mask, and takes the stub away.
fn take_over(tree: &Tree, frozen: &mut FrozenTree, hole: u64) -> Result<(), Error> {
    for process in tree
        .processes
        .iter()
        .filter(|process| process.zombie.is_none())
    {
        let pid = process.pid;
        let stopped = frozen
            .process_mut(pid)
            .ok_or(Error::Ptrace(ptrace::Error::Gone { tid: pid }))?;
        for thread in &process.threads {
            let tid = thread.tid;
            if !stopped.threads.iter().any(|stopped| stopped.tid == tid) {
                return Err(Error::Ptrace(ptrace::Error::Gone { tid }));
            }
            let failed = |action: &str| {
                let action = format!("set the {action} of thread {tid}");
                move |source| Error::System { action, source }
            };
            let registers = lists::to_run(&thread.registers).to_user();
            sys::set_registers(tid, &registers).map_err(failed("registers"))?;
            let mut xstate = thread.xstate.clone();
            xstate.resize(thread.xstate_bytes as usize, 0);
            sys::set_xstate(tid, &xstate).map_err(failed("vector registers"))?;
            sys::set_signal_mask(tid, thread.blocked).map_err(failed("signal mask"))?;
        }
        // Until now it would have died with its parent; from here on, with us.
        stopped
            .syscall(0, libc::SYS_prctl, [PR_SET_PDEATHSIG, 0, 0, 0, 0, 0])?
            .map_err(|source| Error::System {
                action: "set a death signal".to_owned(),
                source,
            })?;
        let region = [hole, stub::Region::BYTES, 0, 0, 0, 0];
        stopped
            .syscall(0, libc::SYS_munmap, region)?
            .map_err(|source| Error::System {
                action: "unmap the restorer".to_owned(),
                source,
            })?;
        stopped.end_injections();
        if process.stopped {
            // SAFETY: no memory involved. It takes effect when the process is thawed.
            unsafe { libc::kill(pid, libc::SIGSTOP) };
        }
    }
    Ok(())
}

/// Ends what the lists of a tree that is not copied at once begin with.
fn allow_huge_pages(frozen: &mut FrozenTree, pid: Pid) -> Result<(), ptrace::Error> {
    let stopped = frozen
        .process_mut(pid)
        .ok_or(ptrace::Error::Gone { tid: pid })?;
    let allowed = stopped.syscall(0, libc::SYS_prctl, [PR_SET_THP_DISABLE, 0, 0, 0, 0, 0])?;
    stopped.end_injections();
    if let Err(error) = allowed {
        tracing::warn!(pid, "it gets no huge pages any more: {error}");
    }
    Ok(())
}

/// Main threads that want to hear of the death of their parents.
fn death_signals(tree: &Tree, frozen: &mut FrozenTree) -> Result<(), Error> {
    for process in tree.processes.iter().filter(|p| p.zombie.is_none()) {
        let signal = process.threads[0].parent_death_signal as u64;
        if signal == 0 {
            continue;
        }
        let pid = process.pid;
        let stopped = frozen
            .process_mut(pid)
            .ok_or(Error::Ptrace(ptrace::Error::Gone { tid: pid }))?;
        let arguments = [PR_SET_PDEATHSIG, signal, 0, 0, 0, 0];
        stopped
            .syscall(0, libc::SYS_prctl, arguments)?
            .map_err(|source| Error::System {
                action: "set a death signal".to_owned(),
                source,
            })?;
        stopped.end_injections();
    }
    Ok(())
}
