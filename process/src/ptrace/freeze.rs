//! Freezes a process tree: stops every thread of every descendant.

use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use super::frozen::{FrozenProcess, FrozenThread, request};
use super::sys::OPTIONS;
use super::{Error, Pid, late, sys, waits};
use crate::procfs;

/// How long a thread may take to stop before we call it uninterruptible.
const STOP_LIMIT: Duration = Duration::from_millis(2000);
/// How long we wait for those that are about to stop when a freeze is given up.
const GIVE_UP_LIMIT: Duration = Duration::from_millis(20);
/// After this time we suspect a parent that waits for its vfork child, which we stopped.
const VFORK_SUSPICION: Duration = Duration::from_millis(2);

/// A process tree of which every thread is stopped. Dropped, it lets all of them run on.
///
/// All calls must come from the thread that froze it (the type is not `Send`).
#[derive(Debug)]
pub struct FrozenTree {
    /// Parents before their children.
    pub processes: Vec<FrozenProcess>,
    _bound_to_thread: PhantomData<*const ()>,
}

impl FrozenTree {
    /// All processes, zombies too.
    pub fn pids(&self) -> Vec<Pid> {
        self.processes.iter().map(|process| process.pid).collect()
    }

    /// The processes that have threads.
    pub fn living(&self) -> Vec<Pid> {
        let living = self.processes.iter();
        let living = living.filter(|process| !process.threads.is_empty());
        living.map(|process| process.pid).collect()
    }

    /// Stops every thread of these processes and of all their descendants.
    ///
    /// # Errors
    /// As [`FrozenTree::freeze_all`].
    pub fn freeze(roots: &[Pid]) -> Result<Self, Error> {
        Self::freeze_all(|| Ok(roots.to_vec()))
    }

    /// Stops every thread of the processes that `roots` lists and of all their descendants.
    ///
    /// Threads and children that appear meanwhile are stopped, too, and orphans of a process that
    /// ends meanwhile, which become children of another: it scans again, from a new list of the
    /// roots, until it finds nothing new and everything has stood all the while. Zombies are listed
    /// without threads.
    ///
    /// # Errors
    /// Another tracer holds a process, we may not trace it, a thread does not stop, or a list of
    /// processes cannot be read. Then everything continues as before. A thread that stops later
    /// continues when this thread calls [`release_late`](super::release_late) or freezes again.
    pub fn freeze_all(mut roots: impl FnMut() -> io::Result<Vec<Pid>>) -> Result<Self, Error> {
        let mut tree = Self {
            processes: Vec::new(),
            _bound_to_thread: PhantomData,
        };
        let mut dead = Vec::new();
        let started = Instant::now();
        late::release_late();
        loop {
            let roots = roots().map_err(|source| Error::Proc {
                pid: std::process::id() as Pid,
                file: "task",
                source,
            })?;
            // EXITKILL only for what has stopped: it could not be taken back from any other thread.
            if !tree.seize_new(&roots, &mut dead)? && tree.all_stand()? {
                break;
            }
            tree.wait_until_stopped(started)?;
        }
        tree.processes
            .retain(|process| !process.threads.is_empty() || is_zombie(process.pid));
        for process in &mut tree.processes {
            let pid = process.pid;
            // Thread numbers wrap around: the main thread's is not always the lowest.
            process
                .threads
                .sort_by_key(|thread| (thread.tid != pid, thread.tid));
            waits::interrupted(pid, &process.threads);
        }
        Ok(tree)
    }

    /// Lets everything run on.
    pub fn thaw(mut self) {
        self.release();
    }

    /// Kills every process, and waits until their numbers are free again (an orphan's is free
    /// when the process that adopts it has reaped it: the tracker, if it is a subreaper, else init).
    pub fn kill(mut self) {
        for process in &self.processes {
            // SAFETY: no memory involved.
            unsafe { libc::kill(process.pid, libc::SIGKILL) };
        }
        let processes = std::mem::take(&mut self.processes);
        for thread in processes
            .iter()
            .flat_map(|process| process.threads.iter().rev())
        {
            // A killed thread reports nothing but its end.
            while let Ok(event) = sys::wait(thread.tid, true) {
                if event == sys::Event::Gone {
                    break;
                }
                let _ = sys::cont(thread.tid, 0);
            }
        }
        let started = Instant::now();
        for process in &processes {
            while std::path::Path::new(&format!("/proc/{}", process.pid)).exists()
                && started.elapsed() < STOP_LIMIT
            {
                // An orphan that we have adopted.
                let _ = sys::wait(process.pid, false);
                pause(started.elapsed());
            }
        }
    }

    /// The process with this number.
    pub fn process_mut(&mut self, pid: Pid) -> Option<&mut FrozenProcess> {
        self.processes.iter_mut().find(|process| process.pid == pid)
    }

    /// Whether the tracees die with the tracker (`PTRACE_O_EXITKILL`); set by
    /// [`Self::freeze`], because a thread that executes a remote system call must not continue alone.
    ///
    /// # Errors
    /// A thread has ended.
    pub fn allow_to_run_alone(&mut self) -> Result<(), Error> {
        // A thread that is killed takes its process with it: one of each is enough.
        for thread in self.processes.iter().filter_map(|p| p.threads.first()) {
            sys::set_options(thread.tid, OPTIONS)
                .map_err(|source| request("set the options of", thread.tid, source))?;
        }
        Ok(())
    }

    /// Whether everything stands, and nothing was killed since it stopped; from here on it dies with
    /// the tracker. The children of a process that was killed may have been passed over: they belong
    /// to another one, of which the list may have been read before.
    fn all_stand(&mut self) -> Result<bool, Error> {
        let mut all = true;
        for process in &mut self.processes {
            let Some(thread) = process.threads.first() else {
                continue;
            };
            match sys::set_options(thread.tid, OPTIONS | libc::PTRACE_O_EXITKILL) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    // We wait for the end of all of its threads.
                    for thread in &mut process.threads {
                        thread.stopped = false;
                    }
                    all = false;
                }
                Err(error) => return Err(request("set the options of", thread.tid, error)),
            }
        }
        Ok(all)
    }

    /// Seizes and interrupts what is not yet ours. True if another scan is needed: something was
    /// found, also what is in `dead` from now on (its children have gone to another process), or a
    /// list may lack something.
    fn seize_new(&mut self, roots: &[Pid], dead: &mut Vec<Pid>) -> Result<bool, Error> {
        let mut any = false;
        let mut queue: Vec<Pid> = roots.iter().rev().copied().collect();
        while let Some(pid) = queue.pop() {
            any |= self.seize_process(pid, dead)?;
            let children = procfs::children_once(pid);
            let (children, complete) = children.map_err(|source| Error::Proc {
                pid,
                file: "task",
                source,
            })?;
            any |= !complete;
            queue.extend(children.into_iter().rev());
        }
        Ok(any)
    }

    fn seize_process(&mut self, pid: Pid, dead: &mut Vec<Pid>) -> Result<bool, Error> {
        let mut any = false;
        let at = match self.processes.iter().position(|process| process.pid == pid) {
            Some(at) => at,
            None => {
                any = true;
                self.processes.push(FrozenProcess {
                    pid,
                    threads: Vec::new(),
                    syscall_instruction: None,
                    vdso: None,
                    trap_is_ignored: None,
                });
                self.processes.len() - 1
            }
        };
        let process = &mut self.processes[at];
        let tids = procfs::threads(pid);
        for tid in tids.map_err(|source| Error::Proc {
            pid,
            file: "task",
            source,
        })? {
            if process.threads.iter().any(|thread| thread.tid == tid)
                || tid != pid && procfs::is_kernel_worker(pid, tid)
            {
                continue;
            }
            match sys::seize(tid, OPTIONS) {
                Ok(()) => {}
                Err(_) if late::take(tid) => {}
                Err(error)
                    if error.raw_os_error() == Some(libc::ESRCH) || is_dead_thread(pid, tid) =>
                {
                    if !dead.contains(&tid) {
                        dead.push(tid);
                        any = true;
                    }
                    continue;
                }
                Err(error) => return Err(not_allowed(pid, &error)),
            }
            // From here on the thread is ours, and released on every error path.
            process.threads.push(FrozenThread::new(tid));
            let _ = sys::interrupt(tid);
            any = true;
        }
        Ok(any)
    }

    /// Waits for all threads that are not known to be stopped.
    fn wait_until_stopped(&mut self, started: Instant) -> Result<(), Error> {
        let mut running: Vec<Pid> = self
            .processes
            .iter()
            .flat_map(|process| &process.threads)
            .filter(|thread| !thread.is_stopped())
            .map(|thread| thread.tid)
            .collect();
        let mut released_for_vfork: Vec<Pid> = Vec::new();
        while !running.is_empty() {
            let mut progress = false;
            let mut still = Vec::new();
            for tid in running {
                match self.poll(tid)? {
                    Polled::Stopped | Polled::Gone => {
                        released_for_vfork.retain(|&released| released != tid);
                        progress = true;
                    }
                    Polled::Running => still.push(tid),
                }
            }
            running = still;
            if running.is_empty() {
                break;
            }
            let waited = started.elapsed();
            if waited > STOP_LIMIT {
                return Err(does_not_stop(running[0], waited));
            }
            if waited > VFORK_SUSPICION && !progress {
                for child in self.vfork_children_of(&running) {
                    self.let_run(child);
                    released_for_vfork.push(child);
                }
            }
            // A child that ran to free its parent is stopped again once the parent stands.
            if !released_for_vfork.is_empty()
                && running.iter().all(|tid| released_for_vfork.contains(tid))
            {
                for tid in released_for_vfork.drain(..) {
                    let _ = sys::interrupt(tid);
                }
            }
            if !progress {
                pause(waited);
            }
            for &tid in &released_for_vfork {
                if !running.contains(&tid) {
                    running.push(tid);
                }
            }
        }
        Ok(())
    }

    /// Whether a thread has stopped; handles whatever else it reports.
    fn poll(&mut self, tid: Pid) -> Result<Polled, Error> {
        let event = sys::peek(tid).map_err(|source| request("wait for", tid, source))?;
        match event {
            sys::Event::Nothing => Ok(Polled::Running),
            sys::Event::Gone => {
                for process in &mut self.processes {
                    process.threads.retain(|thread| thread.tid != tid);
                }
                Ok(Polled::Gone)
            }
            sys::Event::Stopped { group } => {
                if let Some(thread) = self.thread_mut(tid) {
                    thread.stopped = true;
                    thread.group_stopped = group;
                }
                Ok(Polled::Stopped)
            }
            // It was about to receive a signal when we came: let it have it. The interruption is
            // still pending and stops it next.
            sys::Event::Signal(signal) => {
                let _ = sys::cont(tid, signal);
                Ok(Polled::Running)
            }
            sys::Event::Syscall | sys::Event::Other(_) => {
                let _ = sys::cont(tid, 0);
                Ok(Polled::Running)
            }
        }
    }

    /// Stopped children that share the memory of a process that does not stop: `vfork` and
    /// `posix_spawn` hold the parent in an uninterruptible wait until the child has executed.
    fn vfork_children_of(&self, running: &[Pid]) -> Vec<Pid> {
        let mut found = Vec::new();
        for &tid in running {
            let Some(parent) = self
                .processes
                .iter()
                .find(|process| process.threads.iter().any(|t| t.tid == tid))
            else {
                continue;
            };
            for child in &self.processes {
                // Shared memory alone does not mean that the parent waits for the child.
                let is_child = || {
                    procfs::stat(child.pid, child.pid).is_ok_and(|stat| stat.parent == parent.pid)
                };
                if child.pid != parent.pid && shares_memory(child.pid, parent.pid) && is_child() {
                    found.extend(
                        child
                            .threads
                            .iter()
                            .filter(|thread| thread.stopped)
                            .map(|t| t.tid),
                    );
                }
            }
        }
        found
    }

    fn let_run(&mut self, tid: Pid) {
        if let Some(thread) = self.thread_mut(tid) {
            thread.stopped = false;
            let _ = sys::cont(tid, 0);
        }
    }

    fn thread_mut(&mut self, tid: Pid) -> Option<&mut FrozenThread> {
        self.processes
            .iter_mut()
            .flat_map(|process| &mut process.threads)
            .find(|t| t.tid == tid)
    }

    /// Lets everything run on. What has not stopped (on an error path) comes last: it may wait for
    /// a child that stands.
    fn release(&mut self) {
        let mut running = Vec::new();
        for process in &mut self.processes {
            process.end_injections();
            for thread in &process.threads {
                if !thread.is_stopped() {
                    // One that we had let run has nothing to stop it any more.
                    let _ = sys::interrupt(thread.tid);
                    running.push(thread.tid);
                } else if sys::detach(thread.tid, 0).is_err() {
                    // Killed: a zombie until we have seen its end.
                    running.push(thread.tid);
                }
            }
        }
        self.processes.clear();
        let given_up = Instant::now();
        while !running.is_empty() && given_up.elapsed() < GIVE_UP_LIMIT {
            running.retain(|&tid| !late::detach(tid));
            pause(given_up.elapsed());
        }
        late::leave(running);
    }
}

impl Drop for FrozenTree {
    fn drop(&mut self) {
        self.release();
    }
}

enum Polled {
    Running,
    Stopped,
    Gone,
}

/// Waits a little: running threads stop within microseconds. A short sleep gives the processor back
/// soon, which `sched_yield` does not promise on a busy machine.
fn pause(waited: Duration) {
    if waited < Duration::from_micros(20) {
        std::hint::spin_loop();
    } else {
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// Whether two processes share their memory (as `vfork` does, until the child executes).
pub(crate) fn shares_memory(one: Pid, other: Pid) -> bool {
    same_resource(one, other, Resource::Memory)
}

/// Whether two tasks share their table of descriptors.
pub(crate) fn shares_descriptors(one: Pid, other: Pid) -> bool {
    same_resource(one, other, Resource::Descriptors)
}

/// Whether two tasks share their current directory, root and umask.
pub(crate) fn shares_directories(one: Pid, other: Pid) -> bool {
    same_resource(one, other, Resource::Directories)
}

/// What living processes can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Memory = 1,
    Descriptors = 2,
    /// Current directory, root and umask.
    Directories = 3,
}

/// Those of these living processes that share it with an earlier one: both, the earlier one first.
pub(crate) fn sharing(tasks: &[Pid], resource: Resource) -> Vec<(Pid, Pid)> {
    let kind = resource as libc::c_long;
    // The kernel has an order of them, for this.
    let mut sorted: Vec<Pid> = Vec::new();
    let mut found = Vec::new();
    for &task in tasks {
        match sorted.binary_search_by(|other| order(*other, task, kind)) {
            Ok(at) => found.push((sorted[at], task)),
            Err(at) => sorted.insert(at, task),
        }
    }
    found
}

fn order(one: Pid, other: Pid, kind: libc::c_long) -> std::cmp::Ordering {
    match compare(one, other, kind) {
        0 => std::cmp::Ordering::Equal,
        2 => std::cmp::Ordering::Greater,
        _ => std::cmp::Ordering::Less,
    }
}

fn same_resource(one: Pid, other: Pid, resource: Resource) -> bool {
    compare(one, other, resource as libc::c_long) == 0
}

fn compare(one: Pid, other: Pid, kind: libc::c_long) -> libc::c_long {
    // SAFETY: no memory involved.
    unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            libc::c_long::from(one),
            libc::c_long::from(other),
            kind,
            0,
            0,
        )
    }
}

fn is_zombie(pid: Pid) -> bool {
    procfs::stat(pid, pid).is_ok_and(|stat| stat.state == 'Z')
}

fn is_dead_thread(pid: Pid, tid: Pid) -> bool {
    match procfs::stat(pid, tid) {
        Ok(stat) => matches!(stat.state, 'Z' | 'X'),
        Err(error) => procfs::has_ended(&error),
    }
}

fn not_allowed(pid: Pid, error: &io::Error) -> Error {
    let status = procfs::status(pid, pid).unwrap_or_default();
    let tracer = procfs::field(&status, "TracerPid").and_then(|tracer| tracer.parse::<i32>().ok());
    match tracer {
        Some(tracer) if tracer != 0 => {
            let name = procfs::text(format!("/proc/{tracer}/comm")).unwrap_or_default();
            Error::Traced {
                pid,
                tracer,
                name: name.trim().to_owned(),
            }
        }
        _ => Error::NotAllowed {
            pid,
            reason: error.to_string(),
        },
    }
}

fn does_not_stop(tid: Pid, waited: Duration) -> Error {
    let stat = procfs::stat(tid, tid).ok();
    Error::DoesNotStop {
        tid,
        name: stat
            .as_ref()
            .map_or_else(String::new, |stat| stat.name.clone()),
        state: stat.map_or('?', |stat| stat.state),
        waited_ms: waited.as_millis() as u64,
    }
}
