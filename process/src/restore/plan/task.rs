//! State that processes and threads set for themselves: signals, timers, credentials.

use super::super::Error;
use super::super::rights::{CAP_SYS_ADMIN, own_limit};
use super::super::stub::{Check, List};
use super::Writer;
use crate::sem_undo::{OPERATION_BYTES, moves};
use crate::state::{Process, Settings, Thread, Tree, descriptor_of_queue};

const PR_TIMER_CREATE_RESTORE_IDS: i32 = 77;
const ARCH_SET_CPUID: u64 = 0x1012;
/// Ids are taken by force: kept root's powers while user numbers change.
const SECBIT_NO_SETUID_FIXUP: u64 = libc::SECBIT_NO_SETUID_FIXUP as u64;
/// Numbers that are counted through on kernels where timers cannot be given theirs.
const TIMER_GAP_MAX: i32 = 10_000;

/// `membarrier` registrations: their bits are the commands that make them.
const MEMBARRIER_REGISTER: [u32; 4] = [1 << 2, 1 << 4, 1 << 6, 1 << 8];

impl Writer<'_> {
    /// What a process has besides memory and descriptors.
    pub(super) fn rest(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        // Until now the end of a child was ignored; from here on it has a handler.
        let all = self.bytes(&[0xff; 8])?;
        list.call(
            libc::SYS_rt_sigprocmask,
            &[libc::SIG_SETMASK as u64, all, 0, 8],
            "block all signals",
        );
        self.front_group(list, process)?;
        self.epolls(list, process)?;
        if !process.shares_descriptors {
            list.call(
                libc::SYS_close_range,
                &[self.pool.base as u64, u64::from(u32::MAX), 0],
                "close",
            );
        }
        self.description_locks(list, process)?;
        self.leases(list, process)?;
        self.record_locks(list, process)?;
        self.directories(list, process)?;
        list.call(
            libc::SYS_umask,
            &[u64::from(process.umask)],
            "set its umask",
        );
        list.prctl(
            libc::PR_SET_CHILD_SUBREAPER,
            &[u64::from(process.subreaper)],
            "be a subreaper",
        );
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
        self.adjustments(list, process)?;
        self.notifications(list, process)?;
        self.signal_actions(list, process)?;
        self.interval_timers(list, process)
    }

    /// Registrations for notifications of message queues. It has closed the tracker's descriptors of them
    /// by now, which would end a registration.
    fn notifications(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        let tree = self.tree;
        for (index, queue) in (0u32..).zip(&tree.posix_queues) {
            let Some(own) = queue.notification.filter(|own| own.pid == process.pid) else {
                continue;
            };
            let number = descriptor_of_queue(tree, process, index);
            let number = number.ok_or_else(|| {
                Error::Description(format!(
                    "process {} has queue {index} not open",
                    process.pid
                ))
            })? as u64;
            let event = self.bytes(&own.event())?;
            let action = "register for a notification of a POSIX message queue";
            list.call(libc::SYS_mq_notify, &[number, event], action);
        }
        Ok(())
    }

    /// Adjustments of semaphores, which threads share: before they are created.
    fn adjustments(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        for adjustment in &process.adjustments {
            let mut sets = self.tree.semaphores.iter();
            let set = sets.find(|set| set.ipc.id == adjustment.set);
            let value = set.map_or(0, |set| set.values[usize::from(adjustment.semaphore)]);
            let operations = moves(adjustment.semaphore, value, adjustment.by);
            let count = (operations.len() / OPERATION_BYTES) as u64;
            let address = self.bytes(&operations)?;
            list.call(
                libc::SYS_semop,
                &[adjustment.set as u64, address, count],
                "adjust a System V semaphore at its end",
            );
        }
        Ok(())
    }

    /// The process group that reads from a terminal. All groups are there by now.
    fn front_group(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        let Some((terminal, group)) = process.terminal.filter(|(_, group)| *group != 0) else {
            return Ok(());
        };
        let master = self.pool.terminals[terminal as usize] as u64;
        let group = self.bytes(&group.to_ne_bytes())?;
        let arguments = [master, libc::TIOCSPGRP, group];
        list.call(libc::SYS_ioctl, &arguments, "put a process group in front");
        Ok(())
    }

    /// POSIX record locks. They belong to the process: it sets them itself.
    fn record_locks(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
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
        Ok(())
    }

    /// Root directory and current directory.
    fn directories(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        // First the directory, which may be outside of its root.
        let path = self.string(&process.directory)?;
        list.call(libc::SYS_chdir, &[path], "enter its directory");
        if let Some(root) = &process.root {
            let path = self.string(root)?;
            list.call(libc::SYS_chroot, &[path], "change its root directory");
        }
        Ok(())
    }

    /// Handlers of signals; what it has inherited from the tracker is reset.
    fn signal_actions(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
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
        Ok(())
    }

    /// Interval timers, with the time that was left.
    fn interval_timers(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        for (kind, &timer) in process.interval_timers.iter().enumerate() {
            let value = first_interval(process, kind, timer);
            if value == 0 {
                continue;
            }
            let interval = timer.1;
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

    pub(super) fn thread(&mut self, thread: &Thread, process: &Process) -> Result<u64, Error> {
        let mut list = List::default();
        self.own_state(&mut list, thread, process)?;
        flags(&mut list, thread);
        self.put(&list, thread.tid)
    }

    /// What every thread sets for itself. Rights go last.
    pub(super) fn own_state(
        &mut self,
        list: &mut List,
        thread: &Thread,
        process: &Process,
    ) -> Result<(), Error> {
        self.tasks += 1;
        let main = thread.tid == process.pid;
        let name = self.bytes(&[thread.name.as_slice(), &[0]].concat())?;
        list.prctl(libc::PR_SET_NAME, &[name], "set its name");
        let (stack, flags, bytes) = thread.alternate_stack;
        // Whether it stands on that stack is seen from its stack pointer.
        let flags = flags & !libc::SS_ONSTACK;
        // The first thread of a process has inherited one from its parent: the tracker's, for a start.
        if main || flags & libc::SS_DISABLE == 0 {
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
        if main {
            for (resource, &(soft, hard)) in process.limits.iter().enumerate() {
                if own_limit(resource as u32) == (soft, hard) {
                    continue;
                }
                let limit = self.words(&[soft, hard])?;
                list.call(
                    libc::SYS_setrlimit,
                    &[resource as u64, limit],
                    "set a limit (a higher one needs CAP_SYS_RESOURCE)",
                );
            }
        }
        self.settings(list, &thread.settings)?;
        if main && process.memory_merged {
            let on = libc::PR_SET_MEMORY_MERGE;
            list.prctl(on, &[1, 0, 0, 0], "have its memory merged")
                .expect(Check::Any);
        }
        self.credentials(list, thread)?;
        if main {
            // A change of credentials resets this, too. The program's own value is set when the
            // tracker has taken over.
            list.prctl(
                libc::PR_SET_PDEATHSIG,
                &[libc::SIGKILL as u64],
                "ask to die with its parent",
            );
            // A change of credentials resets this.
            if let Some(dumpable) = dumpable_to_set(process) {
                list.prctl(libc::PR_SET_DUMPABLE, &[dumpable], "be dumpable");
            }
        }
        if !main && thread.parent_death_signal != 0 {
            let signal = thread.parent_death_signal as u64;
            list.prctl(libc::PR_SET_PDEATHSIG, &[signal], "set its death signal");
        }
        if thread.credentials.no_new_privileges {
            list.prctl(libc::PR_SET_NO_NEW_PRIVS, &[1, 0, 0, 0], "forgo privileges");
        }
        // Nothing is mapped any more.
        if main && process.no_new_code != 0 {
            let flags = [u64::from(process.no_new_code), 0, 0, 0];
            list.prctl(libc::PR_SET_MDWE, &flags, "forgo new executable memory");
        }
        Ok(())
    }

    /// What it has set for itself by `prctl` and its like.
    fn settings(&mut self, list: &mut List, settings: &Settings) -> Result<(), Error> {
        list.call(
            libc::SYS_personality,
            &[u64::from(settings.personality)],
            "set its personality",
        );
        // A real-time thread has none, and cannot be given any.
        if settings.timer_slack_ns != 0 {
            let slack = [settings.timer_slack_ns];
            list.prctl(
                libc::PR_SET_TIMERSLACK,
                &slack,
                "set the slack of its timers",
            );
        }
        // SAFETY: no memory involved.
        let own = unsafe { libc::prctl(libc::PR_MCE_KILL_GET, 0, 0, 0, 0) };
        if own as u32 != settings.machine_check {
            let set = libc::PR_MCE_KILL_SET as u64;
            let arguments = [set, u64::from(settings.machine_check), 0, 0];
            list.prctl(
                libc::PR_MCE_KILL,
                &arguments,
                "set what it does at machine checks",
            );
        }
        if settings.memory_policy != 0 {
            let bytes: Vec<u8> = settings
                .memory_nodes
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect();
            let (nodes, count) = match bytes.len() {
                0 => (0, 0),
                // The kernel takes one off.
                bytes_of_nodes => (self.bytes(&bytes)?, bytes_of_nodes as u64 * 8 + 1),
            };
            let arguments = [u64::from(settings.memory_policy), nodes, count];
            let action = "set its memory policy (its nodes must be there)";
            list.call(libc::SYS_set_mempolicy, &arguments, action);
        }
        if !settings.cpuid {
            let off = [ARCH_SET_CPUID, 0];
            list.call(libc::SYS_arch_prctl, &off, "forgo the instruction CPUID");
        }
        if !settings.time_stamp {
            let off = [libc::PR_TSC_SIGSEGV as u64];
            list.prctl(libc::PR_SET_TSC, &off, "forgo the time stamp counter");
        }
        Ok(())
    }

    pub(super) fn timers(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        if process.timers.is_empty() {
            return Ok(());
        }
        // From Linux 6.15 a timer can be given its number. Before, numbers are handed out in
        // turn: those that are not wanted are deleted again.
        let by_number = timers_have_numbers();
        if by_number {
            list.prctl(PR_TIMER_CREATE_RESTORE_IDS, &[1, 0, 0, 0], "number timers");
        }
        let mut next_id = 0;
        let mut timers: Vec<_> = process.timers.iter().collect();
        timers.sort_by_key(|timer| timer.id);
        for timer in timers {
            while !by_number && next_id < timer.id {
                // struct sigevent: no notification.
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
            list.prctl(PR_TIMER_CREATE_RESTORE_IDS, &[0, 0, 0, 0], "number timers");
        }
        Ok(())
    }

    pub(super) fn credentials(&mut self, list: &mut List, thread: &Thread) -> Result<(), Error> {
        let wanted = &thread.credentials;
        let same = *wanted == crate::capture::own_credentials(wanted.no_new_privileges);
        if same && !needs_administrator(thread) {
            return Ok(());
        }
        list.prctl(
            libc::PR_SET_SECUREBITS,
            &[SECBIT_NO_SETUID_FIXUP],
            "prepare to change its credentials",
        );
        let groups: Vec<u8> = wanted
            .supplementary
            .iter()
            .flat_map(|group| group.to_ne_bytes())
            .collect();
        let groups = self.bytes(&groups)?;
        let count = wanted.supplementary.len() as u64;
        list.call(libc::SYS_setgroups, &[count, groups], "set its groups");
        for (ids, calls, what) in [
            (
                wanted.groups,
                [libc::SYS_setresgid, libc::SYS_setfsgid],
                "set its group",
            ),
            (
                wanted.users,
                [libc::SYS_setresuid, libc::SYS_setfsuid],
                "set its user",
            ),
        ] {
            let [own @ .., files] = ids.map(u64::from);
            list.call(calls[0], &own, what);
            list.call(calls[1], &[files], what);
        }
        let [inheritable, permitted, effective, bounding, ambient] = wanted.capabilities;
        let own = crate::capture::own_credentials(false).capabilities[3];
        for capability in (0..64u64).filter(|bit| own & !bounding & 1 << bit != 0) {
            list.prctl(libc::PR_CAPBSET_DROP, &[capability], "drop a capability");
        }
        list.prctl(
            libc::PR_SET_SECUREBITS,
            &[u64::from(wanted.securebits)],
            "set its securebits",
        );
        // What installs its filters later takes it away again.
        let for_filters = match needs_administrator(thread) {
            true => 1 << CAP_SYS_ADMIN,
            false => 0,
        };
        let sets = [
            effective | for_filters,
            permitted | for_filters,
            inheritable,
        ];
        let header = self.words(&[CAPABILITY_HEADER])?;
        let data = self.words(&capability_words(sets))?;
        list.call(libc::SYS_capset, &[header, data], "set its capabilities");
        for capability in (0..64u64).filter(|bit| ambient & 1 << bit != 0) {
            list.prctl(
                libc::PR_CAP_AMBIENT,
                &[libc::PR_CAP_AMBIENT_RAISE as u64, capability, 0, 0],
                "raise a capability",
            );
        }
        Ok(())
    }
}

/// What `PR_SET_DUMPABLE` is to be; none: nothing is to be set. It cannot be 2, which a change of
/// credentials makes it where the machine is set up so; 0 is the next that keeps others out.
fn dumpable_to_set(process: &Process) -> Option<u64> {
    const ROOT_ONLY: i32 = 2;
    let wanted = &process.threads[0].credentials;
    let own = crate::capture::own_credentials(wanted.no_new_privileges);
    let changes = wanted.users[1] != own.users[1] || wanted.groups[1] != own.groups[1];
    if process.dumpable == ROOT_ONLY && changes {
        let by_machine = crate::procfs::text("/proc/sys/fs/suid_dumpable");
        if by_machine.is_ok_and(|text| text.trim() == "2") {
            return None;
        }
    }
    Some(u64::from(process.dumpable == 1))
}

/// `struct __user_cap_header_struct`: version 3, the calling thread.
pub const CAPABILITY_HEADER: u64 = 0x2008_0522;

/// Whether a thread has filters of system calls that it could not install with its own rights.
pub fn needs_administrator(thread: &Thread) -> bool {
    let own = &thread.credentials;
    !thread.restrictions.filters.is_empty()
        && !own.no_new_privileges
        && own.capabilities[2] & 1 << CAP_SYS_ADMIN == 0
}

/// Two `struct __user_cap_data_struct` for these effective, permitted and inheritable capabilities.
pub fn capability_words([effective, permitted, inheritable]: [u64; 3]) -> [u64; 3] {
    let low = |mask: u64| mask & 0xffff_ffff;
    [
        low(effective) | low(permitted) << 32,
        low(inheritable) | (effective >> 32) << 32,
        (permitted >> 32) | (inheritable >> 32) << 32,
    ]
}

/// From Linux 6.15 a timer can be given its number.
fn timers_have_numbers() -> bool {
    // SAFETY: no memory involved.
    unsafe { libc::prctl(PR_TIMER_CREATE_RESTORE_IDS, 2, 0, 0, 0) >= 0 }
}

/// Whether all POSIX timers can get their numbers.
///
/// # Errors
/// There is a gap that is too wide to be counted through.
pub fn timers_possible(tree: &Tree) -> Result<(), Error> {
    if timers_have_numbers() {
        return Ok(());
    }
    for process in &tree.processes {
        let mut ids: Vec<i32> = process.timers.iter().map(|timer| timer.id).collect();
        ids.sort_unstable();
        let mut next = 0;
        for id in ids {
            if id - next > TIMER_GAP_MAX {
                return Err(Error::Kernel(format!(
                    "process {} has a POSIX timer with the number {id}, which only Linux 6.15 and \
                     later can give",
                    process.pid
                )));
            }
            next = id + 1;
        }
    }
    Ok(())
}

/// Time until an interval timer fires first, microseconds; 0: it is not armed. A timer of real time
/// that has fired shows 0 until its signal is delivered, which starts it again: nothing would, of one
/// that was not armed. One of CPU time shows 0 at the instant at which it fires; one that the
/// program has disarmed may show the same, and then its signal must not end the program.
fn first_interval(process: &Process, kind: usize, (value, interval): (u64, u64)) -> u64 {
    if value != 0 || interval == 0 {
        return value;
    }
    let signal = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF][kind];
    let mut handled = process.actions.iter().filter(|action| action.handler > 1);
    match kind {
        0 => interval,
        _ if handled.any(|action| i32::from(action.signal) == signal) => interval,
        _ => 0,
    }
}

fn signal_of(info: &[u8]) -> u32 {
    info.first_chunk::<4>()
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Sets the flags of a thread that ptrace cannot set. After it, its list creates no task.
pub(super) fn flags(list: &mut List, thread: &Thread) {
    let flags = thread.registers.flags_to_set_itself();
    if flags != 0 {
        list.set_flags(flags);
    }
}
