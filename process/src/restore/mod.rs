//! Recreates a process tree from its description and its pages.
//!
//! ```text
//!  tracker                                    recreated processes (all in the stub)
//!  ───────                                    ─────────────────────────────────────
//!  check: can all of it be done?
//!  open files, pipes, sockets (pool)
//!  write the restore plan (stub::Region)
//!  start the root ──────────────────────────► map memory that children share
//!                 ◄────────── report ────────
//!  copy the pages that are shared; gate ────► create children, sessions, groups
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
//! Every failure happens before the tree runs: then all of it is killed, and the store is
//! unchanged. The caller gets the tree stopped, and decides when it runs.

mod beforehand;
mod check;
mod datagrams;
mod dead;
mod descriptors;
mod error;
mod events;
mod filters;
mod ghosts;
mod guard;
mod ipc;
pub mod lazy;
mod leftover;
mod memory;
mod numbers;
mod objects;
mod pager;
mod place;
mod plan;
mod pool;
mod posix_queues;
mod read_only;
mod rights;
mod shared_files;
mod sharing;
mod socket_calls;
mod sockets;
mod start;
mod stub;
mod stub_code;
mod tcp;
mod terminals;
mod under_way;
mod undo;
mod unlinked;
mod uring;

use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::procfs;
use crate::ptrace::{self, FrozenProcess, FrozenTree, Pid, sys};
use crate::state::{Process, Tree};
use crate::store::{Snapshot, SpaceId};
pub use beforehand::certain;
pub use check::possible;
pub use error::Error;
use error::system;
pub use numbers::{free_number, is_nearly_free, is_there};
pub(crate) use plan::to_run;
pub(crate) use rights::{CAP_SYS_ADMIN, capable};
pub(crate) use socket_calls::unix_path;
pub(crate) use stub::CloneArguments;
pub(crate) use undo::KilledUnlessReleased;
use undo::{KillOnError, SignalsBlocked};

/// What the user chooses.
#[derive(Debug, Clone)]
pub struct Options {
    /// Restore although files have changed that the program has open. Mapped files must never
    /// have changed.
    pub accept_changed_files: bool,
    /// Up to this many bytes, all pages are copied before the program runs; of a larger program,
    /// anonymous memory is left to be filled while it runs.
    pub copy_all_bytes_max: u64,
    /// The tree is never to run: TCP connections stay silent.
    pub held: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            accept_changed_files: false,
            copy_all_bytes_max: 4 << 20,
            held: false,
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

/// A mapping that lacks pages which the store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftToFill {
    /// In which process.
    pub pid: Pid,
    /// Names its pages in the store.
    pub space: SpaceId,
    /// The mapping.
    pub range: Range<u64>,
    /// Parts of it that lack nothing; ascending.
    pub filled: Vec<Range<u64>>,
    /// The process gets transparent huge pages as soon as all of its mappings are watched.
    pub huge_pages: bool,
    /// … for memory that asks for them.
    pub only_advised: bool,
}

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
    let mut region = memory::map_restorer(tree, &own)?;
    let copy_all = memory::copies_all(tree, snapshot, options);
    let by_others = plan::made_by_others(tree);
    let sharing = sharing::Sharing::find(tree, snapshot, &by_others, copy_all);
    let plan = plan::write(tree, &mut pool, &mut region, &kernel, &sharing, copy_all)?;
    let filters = filters::Places::write(tree, &mut region)?;
    let dead =
        dead::Dead::with_numbers(tree).map_err(|(pid, source)| match source.raw_os_error() {
            Some(libc::EEXIST) => numbers::taken(pid),
            _ => Error::System {
                action: format!("create a process in the place of {pid}, which has ended"),
                source,
            },
        })?;

    let blocked = SignalsBlocked::new();
    let started = start::start(tree, &region, &plan.roots)?;
    // From here on, processes exist: kill them on every way out but the last.
    let mut guard = KillOnError {
        roots: started.roots.clone(),
        all: Vec::new(),
    };
    let connections = std::mem::take(&mut pool.connections);
    let mut ipc = std::mem::take(&mut pool.ipc);
    // Processes enter removed directories until they are complete.
    let ghosts = std::mem::take(&mut pool.ghosts);
    let objects = pool.take_objects();
    drop(pool);
    let outcome = |result, phase| match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(named(failure, tree)),
        Err::<_, io::Error>(_) => Err(Error::Silent(phase)),
    };
    let mut early = plan.early;
    let reports_of_early = early.len() as u32;
    while !early.is_empty() {
        let mapped = |early: &plan::Early| region.is_open(early.mapped);
        let result = region.wait_for(PHASE_LIMIT, || early.iter().any(mapped));
        outcome(result, "mapping shared memory")?;
        let (ready, others) = early.into_iter().partition(mapped);
        early = others;
        for ready in ready {
            let fills = sharing.of(ready.process).map(|shares| &*shares.fills);
            let process = &tree.processes[ready.process];
            memory::fill_early(process, fills.unwrap_or_default(), snapshot)?;
            region.open(ready.filled);
        }
    }
    let wait = |count, phase| outcome(region.wait(reports_of_early + count, PHASE_LIMIT), phase);
    wait(plan.processes, "creating processes")?;
    guard.all = tree.processes.iter().map(|process| process.pid).collect();
    region.open(plan.grouped);
    wait(plan.processes * 2, "mapping memory")?;
    for (file, object) in objects.iter().zip(&tree.objects) {
        objects::finish_late(file, &object.kind)?;
    }
    drop(objects);
    ipc.all_attached();
    let left_to_fill = memory::fill(tree, snapshot, &sharing, copy_all)?;
    region.open(plan.filled);
    wait(plan.processes * 2 + plan.tasks, "creating threads")?;
    for process in &tree.processes {
        from_outside(process)?;
    }
    for placeholder in &plan.placeholders {
        // SAFETY: no memory involved; it is our child, and ends by itself.
        unsafe { libc::waitpid(*placeholder, std::ptr::null_mut(), 0) };
    }
    let living = |pid: &&Pid| tree.processes.iter().any(|process| process.pid == **pid);
    let mut roots: Vec<Pid> = started.roots.iter().filter(living).copied().collect();
    // Created by placeholder processes and siblings, and nevertheless our children.
    for process in tree
        .processes
        .iter()
        .filter(|p| p.parent == 0 && p.zombie.is_none())
    {
        if !roots.contains(&process.pid) {
            roots.push(process.pid);
        }
    }
    // From here on it has the program's state, and an error must not let it run.
    let mut frozen = KilledUnlessReleased::new(FrozenTree::freeze(&roots)?);
    take_over(tree, &mut frozen, region.parking(), &filters)?;
    if !copy_all {
        let waits = |pid| left_to_fill.iter().any(|left| left.pid == pid);
        for process in tree.processes.iter().filter(|p| p.zombie.is_none()) {
            if !process.thp_disabled && !waits(process.pid) {
                allow_huge_pages(&mut frozen, process.pid, process.huge_pages_only_advised)?;
            }
        }
    }
    // Its end must not be taken for a parent's.
    drop(started);
    death_signals(tree, &mut frozen)?;
    drop((ghosts, dead));
    // From here on nothing can fail.
    if !options.held {
        connections.resume(tree);
    }
    ipc.keep();
    guard.disarm();
    drop(blocked);
    Ok(Restored {
        tree: frozen.release(),
        root: roots[0],
        roots,
        left_to_fill,
    })
}

fn named(failure: stub::Failure, tree: &Tree) -> Error {
    if failure.error == libc::EEXIST && failure.what.action == plan::CREATE_TASK {
        return numbers::taken(failure.what.thing as Pid);
    }
    let thing = failure.what.thing;
    let thing = match failure.what.action {
        plan::MAP_IMAGE => tree
            .processes
            .iter()
            .find(|process| process.pid == failure.task)
            .and_then(|process| plan::image_at(tree, process, thing))
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
    if let Some(filter) = process.core_dump_filter {
        let path = format!("/proc/{pid}/coredump_filter");
        let now = procfs::text(&path).unwrap_or_default();
        if u32::from_str_radix(now.trim(), 16) != Ok(filter)
            && let Err(error) = std::fs::write(path, format!("{filter:#x}"))
        {
            tracing::warn!("process {pid}: what its core dumps have cannot be set: {error}");
        }
    }
    let score = process.oom_score_adj;
    if score != 0
        && let Err(error) = std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string())
    {
        tracing::warn!("process {pid}: its out-of-memory score {score} cannot be set: {error}");
    }
    for thread in &process.threads {
        let scheduling = &thread.scheduling;
        // Only a thread of the same user may be set without CAP_SYS_NICE, even to what it has.
        let has = |now: crate::state::Scheduling| {
            let of = |it: &crate::state::Scheduling| {
                (it.policy, it.flags, it.nice, it.priority, it.deadline_ns)
            };
            of(&now) == of(scheduling)
        };
        let set = !crate::capture::scheduling(thread.tid).is_ok_and(has);
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
            if set
                && libc::syscall(
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
fn take_over(
    tree: &Tree,
    frozen: &mut FrozenTree,
    hole: u64,
    filters: &filters::Places,
) -> Result<(), Error> {
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
            let registers = plan::to_run(&thread.registers).to_user();
            sys::set_registers(tid, &registers).map_err(failed("registers"))?;
            let mut xstate = thread.xstate.clone();
            xstate.resize(thread.xstate_bytes as usize, 0);
            sys::set_xstate(tid, &xstate).map_err(failed("vector registers"))?;
            sys::set_signal_mask(tid, thread.blocked).map_err(failed("signal mask"))?;
        }
        // Until now it would have died with its parent; from here on, with us.
        set_death_signal(stopped, 0)?;
        filters::restrict(tree, process, stopped, filters)?;
        let region = [hole, stub::Region::BYTES, 0, 0, 0, 0];
        let unmapped = stopped.syscall(0, libc::SYS_munmap, region)?;
        unmapped.map_err(system("unmap the restorer"))?;
        stopped.end_injections();
        if process.stopped != 0 {
            // SAFETY: no memory involved. It takes effect when the process is thawed.
            unsafe { libc::kill(pid, process.stopped) };
        }
    }
    Ok(())
}

/// Allows the huge pages that a plan with lazy filling switches off first.
fn allow_huge_pages(
    frozen: &mut FrozenTree,
    pid: Pid,
    only_advised: bool,
) -> Result<(), ptrace::Error> {
    let stopped = frozen
        .process_mut(pid)
        .ok_or(ptrace::Error::Gone { tid: pid })?;
    let [off, flags] = plan::huge_pages_off(false, only_advised);
    let allow = [libc::PR_SET_THP_DISABLE as u64, off, flags, 0, 0, 0];
    let allowed = stopped.syscall(0, libc::SYS_prctl, allow)?;
    stopped.end_injections();
    if let Err(error) = allowed {
        tracing::warn!(pid, "it gets no huge pages any more: {error}");
    }
    Ok(())
}

/// The signal that a process gets when its parent dies; 0: none.
fn set_death_signal(stopped: &mut FrozenProcess, signal: u64) -> Result<(), Error> {
    let arguments = [libc::PR_SET_PDEATHSIG as u64, signal, 0, 0, 0, 0];
    let set = stopped.syscall(0, libc::SYS_prctl, arguments)?;
    set.map(|_| ()).map_err(system("set a death signal"))
}

/// Sets the parent death signals of main threads.
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
        set_death_signal(stopped, signal)?;
        stopped.end_injections();
    }
    Ok(())
}
