//! What each recreated process and thread does: lists of system calls for the stub.

use std::io;

use super::Error;
use super::memory::KernelMappings;
use super::pool::Pool;
use super::stub::{Check, CloneArguments, Gate, List, Region, Store};
use crate::procfs;
use crate::state::{
    Backing, FileKind, KernelPart, Mapping, Process, Registers, Thread, Tree, advice,
};

/// Handlers of ours mean nothing in a child.
pub const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// Name of the operation that fails when a number is taken.
pub const CREATE_TASK: &str = "create a process or thread with its number";
/// Name of the operation that maps a file.
pub const MAP_IMAGE: &str = "map a file";

const PR_SET_PDEATHSIG: u64 = 1;
const PR_SET_DUMPABLE: u64 = 4;
const PR_SET_NAME: u64 = 15;
const PR_SET_SECUREBITS: u64 = 28;
const PR_CAPBSET_DROP: u64 = 24;
const PR_SET_MM: u64 = 35;
const PR_SET_MM_MAP: u64 = 14;
const PR_SET_CHILD_SUBREAPER: u64 = 36;
const PR_SET_NO_NEW_PRIVS: u64 = 38;
const PR_SET_THP_DISABLE: u64 = 41;
const PR_CAP_AMBIENT: u64 = 47;
const PR_CAP_AMBIENT_RAISE: u64 = 2;
const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
const PR_SET_VMA: u64 = 0x5356_4d41;
const PR_SET_VMA_ANON_NAME: u64 = 0;
/// Ids are taken by force: kept root's powers while user numbers change.
const SECBIT_NO_SETUID_FIXUP: u64 = 1 << 2;
/// Numbers that are counted through on kernels where timers cannot be given theirs.
const TIMER_GAP_MAX: i32 = 10_000;
const TASK_END: u64 = crate::state::TASK_END;
/// The lowest address that may be unmapped without asking.
const LOWEST: u64 = 0;
const ERESTART_RESTARTBLOCK: u64 = (-516i64) as u64;
/// `membarrier` registrations: their bits are the commands that make them.
const MEMBARRIER_REGISTER: [u32; 4] = [1 << 2, 1 << 4, 1 << 6, 1 << 8];

/// The written lists.
#[derive(Debug)]
pub struct Plan {
    /// The list of the root.
    pub root: u64,
    /// Opened when all processes exist.
    pub grouped: Gate,
    /// Opened when the first pages are there.
    pub filled: Gate,
    /// Processes that report.
    pub processes: u32,
    /// Threads that come to the end of their list.
    pub tasks: u32,
}

/// Writes the lists of a whole tree.
///
/// # Errors
/// A file to map cannot be opened, or there is too much to write.
pub fn write(
    tree: &Tree,
    pool: &mut Pool,
    region: &mut Region,
    kernel: &KernelMappings,
) -> Result<Plan, Error> {
    let full = |source| Error::System {
        action: "write the restorer's lists".to_owned(),
        source,
    };
    let grouped = region.gate().map_err(full)?;
    let filled = region.gate().map_err(full)?;
    let ignored = ignored_signals();
    let mut writer = Writer {
        tree,
        pool,
        region,
        kernel,
        grouped,
        filled,
        ignored,
        processes: 0,
        tasks: 0,
    };
    let root = writer.process(0)?;
    Ok(Plan {
        root,
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
    if (registers.orig_rax as i64) >= 0 && registers.rax == ERESTART_RESTARTBLOCK {
        registers.rip -= 2;
        registers.rax = registers.orig_rax;
        registers.orig_rax = u64::MAX;
    }
    registers
}

/// Signals that we ignore: children inherit that.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    procfs::field(&status, "SigIgn")
        .and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or(0)
}

struct Writer<'writing> {
    tree: &'writing Tree,
    pool: &'writing mut Pool,
    region: &'writing mut Region,
    kernel: &'writing KernelMappings,
    grouped: Gate,
    filled: Gate,
    ignored: u64,
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
        list.call(
            libc::SYS_prctl,
            &[PR_SET_PDEATHSIG, libc::SIGKILL as u64],
            "ask to die with its parent",
        );
        // Children of another session are from before this process made its own.
        let children: Vec<usize> = (index + 1..self.tree.processes.len())
            .filter(|&child| self.tree.processes[child].parent == process.pid)
            .collect();
        let leads = process.session == process.pid;
        let (before, after): (Vec<usize>, Vec<usize>) = children.into_iter().partition(|&child| {
            let child = &self.tree.processes[child];
            leads && child.session != process.session && child.session != child.pid
        });
        for child in before {
            self.create(&mut list, child)?;
        }
        if leads {
            list.call(libc::SYS_setsid, &[], "make a session");
        }
        for child in after {
            self.create(&mut list, child)?;
        }
        if process.group == process.pid && !leads {
            list.call(libc::SYS_setpgid, &[0, 0], "make a process group");
        }
        list.report();
        list.wait(self.grouped);
        if process.group != 0 && process.group != process.pid {
            list.call(
                libc::SYS_setpgid,
                &[0, process.group as u64],
                "join a process group",
            );
        }
        self.descriptors(&mut list, process)?;
        self.memory(&mut list, process)?;
        list.report();
        list.wait(self.filled);
        self.layout(&mut list, process)?;
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
        self.put(&list, process.pid)
    }

    fn zombie(&mut self, process: &Process, status: i32) -> Result<u64, Error> {
        let mut list = List::default();
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
        self.clone(list, 0, libc::SIGCHLD as u64, process.pid, own)?;
        if process.zombie.is_some() {
            // Its end must be seen before handlers are set.
            let flags = (libc::WEXITED | libc::WNOWAIT) as u64;
            list.call(
                libc::SYS_waitid,
                &[u64::from(libc::P_PID), process.pid as u64, 0, flags, 0],
                "wait for the end of a child",
            );
        }
        Ok(())
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

    /// Puts inherited descriptors in their places, and closes all others of the tracker's.
    fn descriptors(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        // What only this process can open replaces its placeholder.
        for descriptor in &process.descriptors {
            let file = &self.tree.files[descriptor.file as usize];
            let place = self.pool.files[descriptor.file as usize] as u64;
            let next = list.len() + 1;
            match &file.kind {
                FileKind::Proc(path) => {
                    let path = self.string(path)?;
                    let flags = u64::from(file.flags)
                        & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) as u64;
                    let here = libc::AT_FDCWD as u64;
                    list.call(
                        libc::SYS_openat,
                        &[here, path, flags, 0],
                        "open a file of /proc",
                    )
                    .about(descriptor.number as u64)
                    .store(Store::Argument {
                        operation: next,
                        argument: 0,
                    });
                    list.call(libc::SYS_dup2, &[0, place], "open a file of /proc");
                    let position = [place, file.position, libc::SEEK_SET as u64];
                    list.call(libc::SYS_lseek, &position, "seek in a file of /proc")
                        .expect(Check::Any);
                }
                FileKind::Pid(pid) => {
                    let flags = u64::from(file.flags) & libc::O_NONBLOCK as u64;
                    list.call(libc::SYS_pidfd_open, &[*pid as u64, flags], "open a pidfd")
                        .store(Store::Argument {
                            operation: next,
                            argument: 0,
                        });
                    list.call(libc::SYS_dup2, &[0, place], "open a pidfd");
                }
                _ => {}
            }
        }
        let base = self.pool.base as u64;
        let mut next = 0;
        for descriptor in &process.descriptors {
            let number = descriptor.number as u64;
            if number > next {
                list.call(
                    libc::SYS_close_range,
                    &[next, number - 1, 0],
                    "close descriptors",
                );
            }
            next = number + 1;
        }
        if next < base {
            list.call(
                libc::SYS_close_range,
                &[next, base - 1, 0],
                "close descriptors",
            );
        }
        for descriptor in &process.descriptors {
            let from = self.pool.files[descriptor.file as usize] as u64;
            let flags = if descriptor.close_on_exec {
                libc::O_CLOEXEC as u64
            } else {
                0
            };
            list.call(
                libc::SYS_dup3,
                &[from, descriptor.number as u64, flags],
                "place descriptor",
            )
            .about(descriptor.number as u64);
        }
        Ok(())
    }

    /// Replaces our memory by the program's mappings.
    fn memory(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        let mut parked = self.region.parking();
        let mut at = Vec::new();
        for &(part, start, bytes) in &self.kernel.parts {
            let fixed = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
            list.call(
                libc::SYS_mremap,
                &[start, bytes, bytes, fixed, parked],
                "move the vdso (are system mappings sealed?)",
            );
            at.push((part, parked));
            parked += bytes;
        }
        let (first, last) = (self.region.parking(), self.region.end());
        list.call(
            libc::SYS_munmap,
            &[LOWEST, first - LOWEST],
            "unmap the tracker's memory",
        );
        list.call(
            libc::SYS_munmap,
            &[last, TASK_END - last],
            "unmap the tracker's memory",
        );
        for mapping in &process.mappings {
            self.mapping(list, mapping, &at)?;
        }
        Ok(())
    }

    fn mapping(
        &mut self,
        list: &mut List,
        mapping: &Mapping,
        parked: &[(KernelPart, u64)],
    ) -> Result<(), Error> {
        let (start, bytes) = (mapping.start, mapping.end - mapping.start);
        let protection = u64::from(mapping.protection);
        let kind = if mapping.shared {
            libc::MAP_SHARED
        } else {
            libc::MAP_PRIVATE
        };
        let mut flags = kind | libc::MAP_FIXED_NOREPLACE;
        let has = |bit: u32| mapping.advice & bit != 0;
        if has(advice::NO_RESERVE) {
            flags |= libc::MAP_NORESERVE;
        }
        if has(advice::GROWS_DOWN) {
            flags |= libc::MAP_GROWSDOWN;
        }
        if mapping.huge_page_bytes != 0 && mapping.backing == Backing::Anonymous {
            flags |= libc::MAP_HUGETLB;
            flags |= (mapping.huge_page_bytes.trailing_zeros() as i32) << libc::MAP_HUGE_SHIFT;
        }
        let mut map = |flags: i32, fd: u64, action| {
            let arguments = [start, bytes, protection, flags as u64, fd, mapping.offset];
            list.call(libc::SYS_mmap, &arguments, action)
                .expect(Check::Equals(start));
        };
        match mapping.backing {
            Backing::Anonymous => map(flags | libc::MAP_ANONYMOUS, u64::MAX, "map memory"),
            Backing::Image { image, writable } => {
                let fd = self.pool.image(self.tree, image, writable)?;
                map(flags, fd as u64, MAP_IMAGE);
            }
            Backing::Object(object) => {
                map(
                    flags,
                    self.pool.objects[object as usize] as u64,
                    "map shared memory",
                );
            }
            Backing::Kernel(part) => {
                let place = parked
                    .iter()
                    .find(|(own, _)| *own == part)
                    .map(|(_, at)| *at);
                let Some(place) = place else {
                    return Err(Error::Kernel(format!("it has no {part:?} mapping")));
                };
                let fixed = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
                list.call(
                    libc::SYS_mremap,
                    &[place, bytes, bytes, fixed, start],
                    "place the vdso",
                )
                .about(start)
                .expect(Check::Equals(start));
                return Ok(());
            }
            Backing::AioRing { events } => {
                // The kernel writes the address of the ring, which is its name, to where the next
                // call has its first argument; the moved ring has its name of old.
                let next = list.len() + 1;
                let room = u64::from(events / 2).saturating_sub(1);
                list.call(libc::SYS_io_setup, &[room], "set up asynchronous I/O")
                    .points_to(1, next, 0);
                let fixed = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
                list.call(
                    libc::SYS_mremap,
                    &[0, bytes, bytes, fixed, start],
                    "place an I/O ring",
                )
                .about(start)
                .expect(Check::Equals(start));
                return Ok(());
            }
        }
        for (bit, number) in [
            (advice::DONT_FORK, libc::MADV_DONTFORK),
            (advice::WIPE_ON_FORK, libc::MADV_WIPEONFORK),
            (advice::DONT_DUMP, libc::MADV_DONTDUMP),
            (advice::HUGE, libc::MADV_HUGEPAGE),
            (advice::NO_HUGE, libc::MADV_NOHUGEPAGE),
            (advice::MERGEABLE, libc::MADV_MERGEABLE),
            (advice::SEQUENTIAL, libc::MADV_SEQUENTIAL),
            (advice::RANDOM, libc::MADV_RANDOM),
        ] {
            if has(bit) {
                // Advice that this kernel does not know is no loss.
                list.call(libc::SYS_madvise, &[start, bytes, number as u64], "advise")
                    .expect(Check::Any);
            }
        }
        if let Some(name) = &mapping.name {
            let name = self.string(name)?;
            let arguments = [PR_SET_VMA, PR_SET_VMA_ANON_NAME, start, bytes, name];
            list.call(libc::SYS_prctl, &arguments, "name memory")
                .expect(Check::Any);
        }
        Ok(())
    }

    /// Tells the kernel where things lie, and what the program is.
    fn layout(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        let auxv: Vec<u64> = process
            .auxv
            .iter()
            .flat_map(|&(kind, value)| [kind, value])
            .chain([0, 0])
            .collect();
        let vector = self.words(&auxv)?;
        let layout = &process.layout;
        let executable = self.pool.image(self.tree, process.executable, false)? as u64;
        let map = self.words(&[
            layout.start_code,
            layout.end_code,
            layout.start_data,
            layout.end_data,
            layout.start_brk,
            layout.brk,
            layout.start_stack,
            layout.arg_start,
            layout.arg_end,
            layout.env_start,
            layout.env_end,
            vector,
            (auxv.len() * 8) as u64 | executable << 32,
        ])?;
        list.call(
            libc::SYS_prctl,
            &[PR_SET_MM, PR_SET_MM_MAP, map, 104, 0],
            "set the memory layout",
        );
        for mapping in &process.mappings {
            if mapping.advice & advice::LOCKED != 0 {
                let bytes = mapping.end - mapping.start;
                list.call(libc::SYS_mlock2, &[mapping.start, bytes, 1], "lock memory")
                    .expect(Check::Any);
            }
        }
        Ok(())
    }

    /// What a process has besides memory and descriptors.
    fn rest(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        list.call(
            libc::SYS_close_range,
            &[self.pool.base as u64, u64::from(u32::MAX), 0],
            "close",
        );
        self.epolls(list, process)?;
        for lock in &process.locks {
            // struct flock: type, whence, start, length, pid.
            let kind = if lock.exclusive {
                libc::F_WRLCK
            } else {
                libc::F_RDLCK
            } as u64;
            let flock = self.words(&[kind, lock.start, lock.bytes, 0])?;
            list.call(
                libc::SYS_fcntl,
                &[lock.descriptor as u64, libc::F_SETLK as u64, flock],
                "lock a file as it was (another process has locked it)",
            );
        }
        if let Some(root) = &process.root {
            let path = self.string(root)?;
            list.call(libc::SYS_chroot, &[path], "change its root directory");
        }
        // Within its root, the path is shorter.
        let directory = match &process.root {
            Some(root) => process.directory.strip_prefix(root.as_str()).unwrap_or("/"),
            None => &process.directory,
        };
        let path = self.string(if directory.is_empty() { "/" } else { directory })?;
        list.call(libc::SYS_chdir, &[path], "enter its directory");
        list.call(
            libc::SYS_umask,
            &[u64::from(process.umask)],
            "set its umask",
        );
        list.call(
            libc::SYS_personality,
            &[u64::from(process.personality)],
            "set its personality",
        );
        let prctl = libc::SYS_prctl;
        list.call(
            prctl,
            &[PR_SET_CHILD_SUBREAPER, u64::from(process.subreaper)],
            "be a subreaper",
        );
        if process.thp_disabled {
            list.call(
                prctl,
                &[PR_SET_THP_DISABLE, 1, 0, 0, 0],
                "switch huge pages off",
            );
        }
        for command in MEMBARRIER_REGISTER
            .into_iter()
            .filter(|bit| process.membarrier & bit != 0)
        {
            list.call(
                libc::SYS_membarrier,
                &[u64::from(command), 0, 0],
                "register for barriers",
            )
            .expect(Check::Any);
        }
        for signal in 1..=64u64 {
            let Some(action) = process
                .actions
                .iter()
                .find(|a| u64::from(a.signal) == signal)
            else {
                if self.ignored & 1 << (signal - 1) != 0 {
                    let default = self.words(&[0; 4])?;
                    list.call(
                        libc::SYS_rt_sigaction,
                        &[signal, default, 0, 8],
                        "reset a handler",
                    );
                }
                continue;
            };
            let words =
                self.words(&[action.handler, action.flags, action.restorer, action.mask])?;
            list.call(
                libc::SYS_rt_sigaction,
                &[signal, words, 0, 8],
                "set a signal handler",
            );
        }
        for (kind, &(value, interval)) in process.interval_timers.iter().enumerate() {
            if value == 0 {
                continue;
            }
            let (second, microsecond) = (1_000_000, 1_000_000);
            let timer = self.words(&[
                interval / second,
                interval % microsecond,
                value / second,
                value % microsecond,
            ])?;
            list.call(libc::SYS_setitimer, &[kind as u64, timer, 0], "set a timer");
        }
        Ok(())
    }

    /// Epoll instances wait for descriptors by number, so their owner fills them.
    fn epolls(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        for descriptor in &process.descriptors {
            let FileKind::Epoll(items) = &self.tree.files[descriptor.file as usize].kind else {
                continue;
            };
            // Of several processes that share one, the first that has all it waits for; and of
            // several descriptors, the first.
            let owner = self.tree.processes.iter().find(|other| {
                other
                    .descriptors
                    .iter()
                    .any(|own| own.file == descriptor.file)
                    && items.iter().all(|item| {
                        other
                            .descriptors
                            .iter()
                            .any(|own| own.number == item.descriptor)
                    })
            });
            let first = process
                .descriptors
                .iter()
                .find(|own| own.file == descriptor.file);
            if owner.is_none_or(|owner| owner.pid != process.pid)
                || first.is_none_or(|first| first.number != descriptor.number)
            {
                continue;
            }
            for item in items {
                // struct epoll_event is packed: events, then the word.
                let mut event = item.events.to_ne_bytes().to_vec();
                event.extend_from_slice(&item.data.to_ne_bytes());
                let event = self.bytes(&event)?;
                let add = libc::EPOLL_CTL_ADD as u64;
                let arguments = [descriptor.number as u64, add, item.descriptor as u64, event];
                list.call(libc::SYS_epoll_ctl, &arguments, "wait for a descriptor")
                    .about(item.descriptor as u64);
            }
        }
        Ok(())
    }

    fn thread(&mut self, thread: &Thread, process: &Process) -> Result<u64, Error> {
        let mut list = List::default();
        self.own_state(&mut list, thread, process)?;
        self.put(&list, thread.tid)
    }

    /// What every thread sets for itself. Rights go last.
    fn own_state(
        &mut self,
        list: &mut List,
        thread: &Thread,
        process: &Process,
    ) -> Result<(), Error> {
        self.tasks += 1;
        let main = thread.tid == process.pid;
        let name = self.string(&thread.name)?;
        list.call(libc::SYS_prctl, &[PR_SET_NAME, name], "set its name");
        let (stack, flags, bytes) = thread.alternate_stack;
        // Whether it stands on that stack is seen from its stack pointer.
        let flags = flags & !libc::SS_ONSTACK;
        if flags & libc::SS_DISABLE == 0 {
            let words = self.words(&[stack, flags as u64, bytes])?;
            list.call(libc::SYS_sigaltstack, &[words, 0], "set its signal stack");
        }
        let (head, length) = thread.robust_list;
        if head != 0 {
            list.call(
                libc::SYS_set_robust_list,
                &[head, length],
                "set its robust futexes",
            );
        }
        list.call(
            libc::SYS_set_tid_address,
            &[thread.clear_tid],
            "set its thread id address",
        );
        let (rseq, length, signature) = thread.rseq;
        if rseq != 0 {
            let arguments = [rseq, u64::from(length), 0, u64::from(signature)];
            list.call(libc::SYS_rseq, &arguments, "register restartable sequences");
        }
        for info in &thread.pending {
            let address = self.bytes(&info.0)?;
            let arguments = [
                process.pid as u64,
                thread.tid as u64,
                u64::from(signal_of(&info.0)),
                address,
            ];
            list.call(libc::SYS_rt_tgsigqueueinfo, &arguments, "queue a signal");
        }
        if main {
            for info in &process.pending {
                let address = self.bytes(&info.0)?;
                let arguments = [process.pid as u64, u64::from(signal_of(&info.0)), address];
                list.call(libc::SYS_rt_sigqueueinfo, &arguments, "queue a signal");
            }
            self.timers(list, process)?;
        }
        self.credentials(list, thread)?;
        if main {
            // Changing who one is resets these.
            list.call(
                libc::SYS_prctl,
                &[PR_SET_DUMPABLE, process.dumpable.min(1) as u64],
                "be dumpable",
            );
        }
        let signal = thread.parent_death_signal as u64;
        list.call(
            libc::SYS_prctl,
            &[PR_SET_PDEATHSIG, signal],
            "set its death signal",
        );
        if thread.credentials.no_new_privileges {
            list.call(
                libc::SYS_prctl,
                &[PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0],
                "forgo privileges",
            );
        }
        Ok(())
    }

    fn timers(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        if process.timers.is_empty() {
            return Ok(());
        }
        let prctl = libc::SYS_prctl;
        // From Linux 6.15 a timer can be given its number. Before, numbers are handed out in
        // turn: those that are not wanted are deleted again.
        // SAFETY: no memory involved.
        let by_number = unsafe { libc::prctl(PR_TIMER_CREATE_RESTORE_IDS as i32, 2, 0, 0, 0) } >= 0;
        if by_number {
            list.call(
                prctl,
                &[PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0],
                "number timers",
            );
        }
        let mut next_id = 0;
        let mut timers: Vec<_> = process.timers.iter().collect();
        timers.sort_by_key(|timer| timer.id);
        for timer in timers {
            if !by_number && timer.id - next_id > TIMER_GAP_MAX {
                return Err(Error::Kernel(format!(
                    "process {} has a POSIX timer with the number {}, which only Linux 6.15 and \
                     later can give",
                    process.pid, timer.id
                )));
            }
            while !by_number && next_id < timer.id {
                // struct sigevent: nobody is notified.
                let nothing =
                    self.words(&[0, (libc::SIGEV_NONE as u64) << 32, 0, 0, 0, 0, 0, 0])?;
                let id = self.bytes(&[0; 4])?;
                list.call(libc::SYS_timer_create, &[0, nothing, id], "count timers up");
                list.call(libc::SYS_timer_delete, &[next_id as u64], "count timers up");
                next_id += 1;
            }
            next_id = timer.id + 1;
            let id = self.bytes(&timer.id.to_ne_bytes())?;
            // struct sigevent: value, signal, notify, thread.
            let event = self.words(&[
                timer.value,
                u64::from(timer.signal as u32) | u64::from(timer.notify as u32) << 32,
                timer.thread as u64,
                0,
                0,
                0,
                0,
                0,
            ])?;
            list.call(
                libc::SYS_timer_create,
                &[timer.clock as u64, event, id],
                "make a timer",
            );
            let second = 1_000_000_000;
            let setting = self.words(&[
                timer.interval_ns / second,
                timer.interval_ns % second,
                timer.remaining_ns / second,
                timer.remaining_ns % second,
            ])?;
            list.call(
                libc::SYS_timer_settime,
                &[timer.id as u64, 0, setting, 0],
                "set a POSIX timer",
            );
        }
        if by_number {
            list.call(
                prctl,
                &[PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0, 0],
                "number timers",
            );
        }
        Ok(())
    }

    fn credentials(&mut self, list: &mut List, thread: &Thread) -> Result<(), Error> {
        let wanted = &thread.credentials;
        if *wanted == crate::capture::own_credentials(wanted.no_new_privileges) {
            return Ok(());
        }
        let prctl = libc::SYS_prctl;
        list.call(
            prctl,
            &[PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP],
            "prepare to change who it is",
        );
        let groups: Vec<u8> = wanted
            .supplementary
            .iter()
            .flat_map(|group| group.to_ne_bytes())
            .collect();
        let groups = self.bytes(&groups)?;
        let count = wanted.supplementary.len() as u64;
        list.call(libc::SYS_setgroups, &[count, groups], "set its groups");
        let [real, effective, saved, files] = wanted.groups.map(u64::from);
        list.call(
            libc::SYS_setresgid,
            &[real, effective, saved],
            "set its group",
        );
        list.call(libc::SYS_setfsgid, &[files], "set its group");
        let [real, effective, saved, files] = wanted.users.map(u64::from);
        list.call(
            libc::SYS_setresuid,
            &[real, effective, saved],
            "set its user",
        );
        list.call(libc::SYS_setfsuid, &[files], "set its user");
        let [inheritable, permitted, effective, bounding, ambient] = wanted.capabilities;
        let own = crate::capture::own_credentials(false).capabilities[3];
        for capability in (0..64u64).filter(|bit| own & !bounding & 1 << bit != 0) {
            list.call(prctl, &[PR_CAPBSET_DROP, capability], "drop a capability");
        }
        list.call(
            prctl,
            &[PR_SET_SECUREBITS, u64::from(wanted.securebits)],
            "set its securebits",
        );
        // struct __user_cap_header_struct, then two of __user_cap_data_struct.
        let header = self.words(&[0x2008_0522])?;
        let low = |mask: u64| mask & 0xffff_ffff;
        let data = self.words(&[
            low(effective) | low(permitted) << 32,
            low(inheritable) | (effective >> 32) << 32,
            (permitted >> 32) | (inheritable >> 32) << 32,
        ])?;
        list.call(libc::SYS_capset, &[header, data], "set its capabilities");
        for capability in (0..64u64).filter(|bit| ambient & 1 << bit != 0) {
            list.call(
                prctl,
                &[PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0],
                "raise a capability",
            );
        }
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
        action: "write the restorer's lists".to_owned(),
        source,
    }
}

fn signal_of(info: &[u8]) -> u32 {
    info.first_chunk::<4>()
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}
