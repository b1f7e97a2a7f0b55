//! The restore plan: for each recreated process and thread a list of system calls, which the stub
//! executes.

mod births;
mod early;
mod events;
mod files;
mod memory;
mod placeholders;
mod rings;
mod task;

use std::io;

use super::Error;
use super::memory::KernelMappings;
use super::pool::Pool;
use super::sharing::Sharing;
use super::stub::{Check, CloneArguments, Gate, List, Region};
use crate::procfs;
use crate::ptrace::waits;
use crate::state::{Backing, Process, Registers, Tree};
pub use births::misborn;
pub use early::Early;
pub(super) use memory::huge_pages_off;
use placeholders::{Placeholders, die_with_parent};
pub use placeholders::{leaderless, made_by_others, placeholder_groups};
pub(super) use task::{CAPABILITY_HEADER, capability_words, needs_administrator, timers_possible};

/// Handlers of ours mean nothing in a child.
pub const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// Name of the operation that fails when a number is taken.
pub const CREATE_TASK: &str = "create a process or thread with its number";
/// Name of the operation that maps a file.
pub const MAP_IMAGE: &str = "map a file";

/// The written plan.
#[derive(Debug)]
pub struct Plan {
    /// The tracker's children to be: their numbers, and their lists.
    pub roots: Vec<(i32, u64)>,
    /// The placeholder processes among them; they end when all processes exist.
    pub placeholders: Vec<i32>,
    /// Processes that get pages before they create children; each reports once more.
    pub early: Vec<Early>,
    /// Opened when all processes exist.
    pub grouped: Gate,
    /// Opened when the first pages are there.
    pub filled: Gate,
    /// Processes that report.
    pub processes: u32,
    /// Threads that come to the end of their list.
    pub tasks: u32,
}

/// Writes the plan of a whole tree. `sharing`: what its processes do to share memory. `copy_all`: all of
/// its pages are filled before it runs.
///
/// # Errors
/// A file to map cannot be opened, or there is too much to write.
pub fn write(
    tree: &Tree,
    pool: &mut Pool,
    region: &mut Region,
    kernel: &KernelMappings,
    sharing: &Sharing,
    copy_all: bool,
) -> Result<Plan, Error> {
    let full = |source| Error::System {
        action: "write the restore plan".to_owned(),
        source,
    };
    let grouped = region.gate().map_err(full)?;
    let filled = region.gate().map_err(full)?;
    timers_possible(tree)?;
    let ignored = ignored_signals();
    let placeholders = Placeholders::of(tree);
    let births = births::wanted(tree, &placeholders);
    let mut writer = Writer {
        tree,
        pool,
        region,
        kernel,
        sharing,
        copy_all,
        emptied: false,
        early: Vec::new(),
        grouped,
        filled,
        ignored,
        placeholders,
        births,
        processes: 0,
        tasks: 0,
    };
    let by_others = writer.placeholders.made_by_others();
    let mut roots = Vec::new();
    for (index, process) in tree.processes.iter().enumerate() {
        // The tracker has reaped its own zombies.
        if process.parent == 0 && process.zombie.is_none() && !by_others.contains(&index) {
            roots.push((process.pid, writer.process(index)?));
        }
    }
    let placeholders = writer.sessions_under(0);
    for session in &placeholders {
        roots.push((*session, writer.session_placeholder(*session)?));
    }
    Ok(Plan {
        roots,
        placeholders,
        early: writer.early,
        grouped,
        filled,
        processes: writer.processes,
        tasks: writer.tasks,
    })
}

/// The path of the file that is mapped at an address.
pub fn image_at<'tree>(tree: &'tree Tree, process: &Process, address: u64) -> Option<&'tree str> {
    let mapping = process
        .mappings
        .iter()
        .find(|mapping| mapping.start == address)?;
    match mapping.backing {
        Backing::Image { image, .. } => Some(&tree.images[image as usize].path),
        _ => None,
    }
}

/// Registers for a thread that runs on. Where the kernel would go on with a timed wait by what it
/// alone remembered, the wait begins again.
pub fn to_run(registers: &Registers) -> Registers {
    let mut registers = *registers;
    if (registers.orig_rax as i64) >= 0 && registers.rax == waits::ERESTART_RESTARTBLOCK {
        registers.rip -= 2;
        registers.rax = registers.orig_rax;
        registers.orig_rax = u64::MAX;
    }
    registers
}

/// Signals that we ignore: children inherit that.
fn ignored_signals() -> u64 {
    let status = procfs::text("/proc/self/status").unwrap_or_default();
    procfs::field(&status, "SigIgn")
        .and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or(0)
}

struct Writer<'writing> {
    tree: &'writing Tree,
    pool: &'writing mut Pool,
    region: &'writing mut Region,
    kernel: &'writing KernelMappings,
    sharing: &'writing Sharing,
    copy_all: bool,
    /// The process that is being written has no memory of the tracker any more.
    emptied: bool,
    early: Vec<Early>,
    grouped: Gate,
    filled: Gate,
    ignored: u64,
    placeholders: Placeholders,
    births: Vec<Option<i32>>,
    processes: u32,
    tasks: u32,
}

impl Writer<'_> {
    /// Writes the list of process number `index` of the tree, and before it those of its children
    /// and threads. Returns its address.
    fn process(&mut self, index: usize) -> Result<u64, Error> {
        let process = &self.tree.processes[index];
        let mut list = List::default();
        if let Some(status) = process.zombie {
            return self.zombie(process, status);
        }
        self.processes += 1;
        let orphan = self.is_orphan(index);
        if !orphan {
            die_with_parent(&mut list);
        }
        let inherited_emptied = self.emptied;
        self.early_memory(&mut list, index)?;
        // Children that must be born in another session are from before this process made its own.
        let by_others = self.placeholders.made_by_others();
        let children: Vec<usize> = (index + 1..self.tree.processes.len())
            .filter(|&child| self.tree.processes[child].parent == process.pid)
            .filter(|child| !by_others.contains(child))
            .collect();
        let leads = process.session == process.pid;
        let (before, after): (Vec<usize>, Vec<usize>) = children.into_iter().partition(|&child| {
            leads && self.births[child].is_some_and(|session| session != process.session)
        });
        for child in before {
            self.create(&mut list, child)?;
        }
        if leads {
            list.call(libc::SYS_setsid, &[], "make a session");
        }
        // Children inherit it.
        if let Some((terminal, _)) = process.terminal {
            let master = self.pool.terminals[terminal as usize] as u64;
            let arguments = [master, libc::TIOCSCTTY, 0];
            list.call(libc::SYS_ioctl, &arguments, "take its controlling terminal");
        }
        for child in after {
            self.create(&mut list, child)?;
        }
        self.members(&mut list, index)?;
        let mut placeholders = self.session_placeholders(&mut list, process.pid)?;
        placeholders.extend(self.group_placeholders(&mut list, index)?);
        if process.group == process.pid && !leads {
            list.call(libc::SYS_setpgid, &[0, 0], "make a process group");
        }
        list.report();
        list.wait(self.grouped);
        if orphan {
            die_with_parent(&mut list);
        }
        if process.group != 0 && process.group != process.pid {
            list.call(
                libc::SYS_setpgid,
                &[0, process.group as u64],
                "join a process group",
            );
        }
        self.ends_of_children(&mut list, process.pid);
        // A shared table is its owner's to fill.
        if !process.shares_descriptors {
            self.descriptors(&mut list, process)?;
        }
        self.huge_pages(&mut list, process);
        self.memory(&mut list, index)?;
        self.emptied = inherited_emptied;
        // Later, the owner of its table of descriptors may have closed those of the tracker.
        if process.shares_descriptors {
            self.layout(&mut list, process)?;
        }
        list.report();
        list.wait(self.filled);
        Self::dismiss(&mut list, &placeholders);
        if !process.shares_descriptors {
            self.layout(&mut list, process)?;
        }
        self.rest(&mut list, process)?;
        for thread in &process.threads[1..] {
            let other = self.thread(thread, process)?;
            self.clone(
                &mut list,
                (libc::CLONE_VM
                    | libc::CLONE_FS
                    | libc::CLONE_FILES
                    | libc::CLONE_SIGHAND
                    | libc::CLONE_THREAD
                    | libc::CLONE_SYSVSEM) as u64,
                0,
                thread.tid,
                other,
            )?;
        }
        self.own_state(&mut list, &process.threads[0], process)?;
        self.description_owners(&mut list, process)?;
        memory::seals(&mut list, process);
        task::flags(&mut list, &process.threads[0]);
        self.put(&list, process.pid)
    }

    fn zombie(&mut self, process: &Process, status: i32) -> Result<u64, Error> {
        let mut list = List::default();
        self.processes += 1;
        die_with_parent(&mut list);
        // A zombie remains the leader of its group until it is reaped.
        if process.group == process.pid {
            list.call(libc::SYS_setpgid, &[0, 0], "make a process group");
        }
        list.report();
        list.wait(self.grouped);
        if process.group != 0 && process.group != process.pid {
            list.call(
                libc::SYS_setpgid,
                &[0, process.group as u64],
                "join a process group",
            )
            // One of another session than its parent's cannot: that is a documented difference.
            .expect(Check::Any);
        }
        list.report();
        // SAFETY: no memory involved.
        if unsafe { libc::getuid() } != process.zombie_user {
            // Its parent sees it. Without the right it is the tracker's.
            let user = u64::from(process.zombie_user);
            list.call(libc::SYS_setuid, &[user], "end")
                .expect(Check::Any);
        }
        let signal = (status & 0x7f) as u64;
        if signal != 0 {
            let none = self.bytes(&[0; 8])?;
            let limit = self.words(&[0, 0])?;
            list.call(
                libc::SYS_setrlimit,
                &[u64::from(libc::RLIMIT_CORE), limit],
                "end",
            );
            list.call(
                libc::SYS_rt_sigprocmask,
                &[libc::SIG_SETMASK as u64, none, 0, 8],
                "end",
            );
            list.call(libc::SYS_kill, &[process.pid as u64, signal], "end");
        }
        list.call(libc::SYS_exit_group, &[(status >> 8 & 0xff) as u64], "end");
        self.put(&list, process.pid)
    }

    fn create(&mut self, list: &mut List, child: usize) -> Result<(), Error> {
        let own = self.process(child)?;
        let process = &self.tree.processes[child];
        let flags = match process.shares_descriptors {
            true => libc::CLONE_FILES as u64,
            false => 0,
        };
        self.clone(list, flags, process.exit_signal as u64, process.pid, own)
    }

    /// Waits for the ends of children that are zombies: before handlers are set.
    fn ends_of_children(&self, list: &mut List, parent: i32) {
        let children = self.tree.processes.iter();
        for child in children.filter(|child| child.parent == parent && child.zombie.is_some()) {
            let flags = (libc::WEXITED | libc::WNOWAIT) as u64;
            list.call(
                libc::SYS_waitid,
                &[u64::from(libc::P_PID), child.pid as u64, 0, flags, 0],
                "wait for the end of a child",
            )
            .about(child.pid as u64);
        }
    }

    fn clone(
        &mut self,
        list: &mut List,
        flags: u64,
        exit_signal: u64,
        tid: i32,
        own: u64,
    ) -> Result<(), Error> {
        let wanted = self.bytes(&tid.to_ne_bytes())?;
        let arguments = CloneArguments {
            flags,
            exit_signal,
            set_tid: wanted,
            set_tid_size: 1,
            ..CloneArguments::default()
        };
        let address = self.words(&arguments.words())?;
        list.call(
            libc::SYS_clone3,
            &[address, size_of::<CloneArguments>() as u64],
            CREATE_TASK,
        )
        .about(tid as u64)
        .child(own);
        Ok(())
    }

    fn put(&mut self, list: &List, task: i32) -> Result<u64, Error> {
        self.region.list(list, task).map_err(full)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        self.region.bytes(bytes).map_err(full)
    }

    fn words(&mut self, words: &[u64]) -> Result<u64, Error> {
        self.region.words(words).map_err(full)
    }

    fn string(&mut self, text: &str) -> Result<u64, Error> {
        self.region.string(text).map_err(full)
    }
}

fn full(source: io::Error) -> Error {
    Error::System {
        action: "write the restore plan".to_owned(),
        source,
    }
}
