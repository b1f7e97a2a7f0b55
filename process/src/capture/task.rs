//! Processes and threads: what /proc and ptrace tell, and what only they themselves know.

use std::fs;
use std::io;

use super::{Builder, Error};
use crate::memory;
use crate::procfs;
use crate::ptrace::{FrozenProcess, Pid, shares_descriptors, shares_memory, sys};
use crate::state;

/// Bytes that we borrow from a process for the answers of its system calls.
const SCRATCH_BYTES: usize = 2560;
const ACTION_BYTES: u64 = 32;
const SLOT_ACTIONS: u64 = 0;
const SLOT_STACK: u64 = 2048;
const SLOT_WORD: u64 = 2080;
const SLOT_TIMER: u64 = 2112;

const PR_GET_PDEATHSIG: u64 = 2;
const PR_GET_DUMPABLE: u64 = 3;
const PR_GET_SECUREBITS: u64 = 27;
const PR_GET_CHILD_SUBREAPER: u64 = 37;
const PR_GET_TID_ADDRESS: u64 = 40;
const MEMBARRIER_CMD_GET_REGISTRATIONS: u64 = 1 << 9;

impl Builder<'_> {
    /// Describes one process.
    pub(super) fn process(
        &mut self,
        frozen: &mut FrozenProcess,
        tree: &[Pid],
    ) -> Result<(), Error> {
        let pid = frozen.pid;
        self.pid = pid;
        let stat = procfs::stat(pid, pid).map_err(self.failed("read its state"))?;
        self.program.clone_from(&stat.name);
        let parent = if tree.contains(&stat.parent) {
            stat.parent
        } else {
            0
        };
        let mut process = empty_process(pid, parent, &stat);
        if frozen.threads.is_empty() {
            process.zombie = Some(stat.exit_code);
            self.tree.processes.push(process);
            return Ok(());
        }
        if stat.state == 'Z' || frozen.threads[0].tid != pid {
            self.refuse("its main thread has ended while others go on");
            return Ok(());
        }
        self.check_sharing(frozen, parent);
        process.space = (self.options.space_of)(pid);
        process.stopped = frozen.threads[0].group_stopped;
        self.check_namespaces();
        self.read_proc(&mut process)?;
        let maps = procfs::maps(pid).map_err(self.failed("read its mappings"))?;
        process.mappings = self.mappings(&maps, stat.resident_pages)?;
        self.descriptors(&mut process)?;
        self.ask_inside(&mut process, frozen)?;
        self.tree.processes.push(process);
        Ok(())
    }

    /// What `clone` can share in other ways than `fork` and threads do.
    fn check_sharing(&mut self, frozen: &FrozenProcess, parent: Pid) {
        if parent != 0 && shares_memory(frozen.pid, parent) {
            self.refuse(format!("it shares the memory of process {parent}"));
        }
        if parent != 0 && shares_descriptors(frozen.pid, parent) {
            self.refuse(format!("it shares the descriptors of process {parent}"));
        }
        for thread in &frozen.threads[1..] {
            if !shares_descriptors(frozen.pid, thread.tid) {
                self.refuse(format!("thread {} has descriptors of its own", thread.tid));
            }
        }
    }

    fn check_namespaces(&mut self) {
        for kind in ["mnt", "pid", "net", "ipc", "uts", "user", "cgroup"] {
            let own = fs::read_link(format!("/proc/self/ns/{kind}")).ok();
            let its = fs::read_link(format!("/proc/{}/ns/{kind}", self.pid)).ok();
            if own != its {
                self.refuse(format!(
                    "it is in another {kind} namespace than the tracker"
                ));
            }
        }
    }

    /// What can be read from outside.
    fn read_proc(&mut self, process: &mut state::Process) -> Result<(), Error> {
        let pid = self.pid;
        let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let status = text("status").map_err(self.failed("read its status"))?;
        let status_field = |name| procfs::field(&status, name).unwrap_or("");
        process.umask = u32::from_str_radix(status_field("Umask"), 8).unwrap_or(0o22);
        process.thp_disabled = status_field("THP_enabled") == "0";
        if status_field("x86_Thread_features").contains("shstk") {
            self.refuse("it uses shadow stacks");
        }
        process.auxv = procfs::auxv(pid).map_err(self.failed("read its auxiliary vector"))?;
        process.auxv.retain(|&(kind, _)| kind != 0);
        process.personality = text("personality")
            .ok()
            .and_then(|text| u32::from_str_radix(text.trim(), 16).ok())
            .unwrap_or(0);
        process.oom_score_adj = text("oom_score_adj")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0);
        process.directory = self.directory("cwd")?;
        let root = self.directory("root")?;
        process.root = (root != "/").then_some(root);
        let exe = fs::read_link(format!("/proc/{pid}/exe"))
            .map_err(self.failed("read the name of its executable"))?;
        process.executable = self.image_of_link(&exe.to_string_lossy())?;
        // From the file: prlimit wants CAP_SYS_RESOURCE for a process of another user.
        process.limits = parse_limits(&text("limits").map_err(self.failed("read its limits"))?);
        Ok(())
    }

    fn directory(&mut self, link: &str) -> Result<String, Error> {
        let path = fs::read_link(format!("/proc/{}/{link}", self.pid))
            .map_err(self.failed(format!("read its {link}")))?;
        let path = path.to_string_lossy().into_owned();
        if path.ends_with(" (deleted)") {
            self.refuse(format!(
                "its {link} {} is removed",
                path.trim_end_matches(" (deleted)")
            ));
        }
        Ok(path)
    }

    /// What only the process itself can ask.
    fn ask_inside(
        &mut self,
        process: &mut state::Process,
        frozen: &mut FrozenProcess,
    ) -> Result<(), Error> {
        let scratch = self.scratch_address(process, frozen)?;
        let mut saved = vec![0u8; SCRATCH_BYTES];
        let got = memory::read(self.pid, scratch, &mut saved);
        if got.map_err(self.failed("read its memory"))? < SCRATCH_BYTES {
            return Err(self.failed("read its memory")(
                io::Error::from_raw_os_error(libc::EFAULT),
            ));
        }
        let asked = self.ask(process, frozen, scratch);
        memory::write(self.pid, scratch, &saved).map_err(self.failed("write its memory"))?;
        asked
    }

    /// A page that is surely there and private: where the main thread's stack pointer points, or
    /// else the first page that may be written.
    fn scratch_address(
        &self,
        process: &state::Process,
        frozen: &FrozenProcess,
    ) -> Result<u64, Error> {
        let stack = frozen.threads[0].registers()?.rsp & !4095;
        let usable = |mapping: &&state::Mapping| {
            !mapping.shared
                && i32::from(mapping.protection) & (libc::PROT_READ | libc::PROT_WRITE)
                    == libc::PROT_READ | libc::PROT_WRITE
                && !matches!(mapping.backing, state::Backing::Kernel(_))
        };
        if process
            .mappings
            .iter()
            .filter(usable)
            .any(|m| m.start <= stack && stack < m.end)
        {
            return Ok(stack);
        }
        process
            .mappings
            .iter()
            .find(usable)
            .map(|mapping| mapping.start)
            .ok_or_else(|| {
                self.failed("find writable memory in it")(io::Error::from_raw_os_error(
                    libc::EFAULT,
                ))
            })
    }

    fn ask(
        &mut self,
        process: &mut state::Process,
        frozen: &mut FrozenProcess,
        scratch: u64,
    ) -> Result<(), Error> {
        let pid = self.pid;
        let mut call = |thread: usize, number, arguments: [u64; 6], action: &str| {
            let result = frozen.syscall(thread, number, arguments)?;
            result.map_err(|source| Error::Read {
                pid,
                action: action.to_owned(),
                source,
            })
        };
        let prctl = libc::SYS_prctl;
        process.layout.brk = call(0, libc::SYS_brk, [0; 6], "ask for its break")?;
        process.dumpable = call(
            0,
            prctl,
            [PR_GET_DUMPABLE, 0, 0, 0, 0, 0],
            "ask whether it is dumpable",
        )? as i32;
        let securebits = call(
            0,
            prctl,
            [PR_GET_SECUREBITS, 0, 0, 0, 0, 0],
            "ask for its securebits",
        )? as u32;
        let word = scratch + SLOT_WORD;
        call(
            0,
            prctl,
            [PR_GET_CHILD_SUBREAPER, word, 0, 0, 0, 0],
            "ask whether it is a subreaper",
        )?;
        process.subreaper = word32(pid, word)? != 0;
        // Kernels before 6.3 do not know this question: then nothing is restored.
        let membarrier = [MEMBARRIER_CMD_GET_REGISTRATIONS, 0, 0, 0, 0, 0];
        process.membarrier =
            call(0, libc::SYS_membarrier, membarrier, "ask for barriers").unwrap_or(0) as u32;
        for (kind, timer) in process.interval_timers.iter_mut().enumerate() {
            let slot = scratch + SLOT_TIMER;
            call(
                0,
                libc::SYS_getitimer,
                [kind as u64, slot, 0, 0, 0, 0],
                "ask for its timers",
            )?;
            let [interval_s, interval_us, value_s, value_us] = words64::<4>(pid, slot)?;
            *timer = (
                value_s * 1_000_000 + value_us,
                interval_s * 1_000_000 + interval_us,
            );
        }

        // Signal handlers: only those that differ from the default, and SIGCHLD, whose default
        // action may carry flags.
        let status =
            fs::read_to_string(format!("/proc/{pid}/status")).map_err(|source| Error::Read {
                pid,
                action: "read its status".to_owned(),
                source,
            })?;
        let set =
            |name| procfs::field(&status, name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        let interesting =
            set("SigCgt").unwrap_or(!0) | set("SigIgn").unwrap_or(!0) | 1 << (libc::SIGCHLD - 1);
        for signal in 1..=64u8 {
            let unchangeable = matches!(i32::from(signal), libc::SIGKILL | libc::SIGSTOP);
            if interesting & 1 << (signal - 1) == 0 || unchangeable {
                continue;
            }
            let slot = scratch + SLOT_ACTIONS + u64::from(signal - 1) * ACTION_BYTES;
            let arguments = [u64::from(signal), 0, slot, 8, 0, 0];
            call(
                0,
                libc::SYS_rt_sigaction,
                arguments,
                "ask for its signal handlers",
            )?;
            let [handler, flags, restorer, mask] = words64::<4>(pid, slot)?;
            if [handler, flags, mask] != [0; 3] {
                process.actions.push(state::Action {
                    signal,
                    handler,
                    flags,
                    restorer,
                    mask,
                });
            }
        }

        for at in 0..frozen.threads.len() {
            let thread = self.thread(frozen, at, scratch, securebits)?;
            process.threads.push(thread);
        }
        process.pending = queue(pid, true)?;
        self.posix_timers(process, frozen, scratch)?;
        Ok(())
    }

    fn thread(
        &mut self,
        frozen: &mut FrozenProcess,
        at: usize,
        scratch: u64,
        securebits: u32,
    ) -> Result<state::Thread, Error> {
        let pid = self.pid;
        let tid = frozen.threads[at].tid;
        let mut call = |number, arguments: [u64; 6], action: &str| {
            let result = frozen.syscall(at, number, arguments)?;
            result.map_err(|source| Error::Read {
                pid,
                action: action.to_owned(),
                source,
            })
        };
        let slot = scratch + SLOT_STACK;
        call(
            libc::SYS_sigaltstack,
            [0, slot, 0, 0, 0, 0],
            "ask for its signal stack",
        )?;
        let [stack_address, stack_flags, stack_bytes] = words64::<3>(pid, slot)?;
        let word = scratch + SLOT_WORD;
        let arguments = [PR_GET_TID_ADDRESS, word, 0, 0, 0, 0];
        call(libc::SYS_prctl, arguments, "ask for its thread id address")?;
        let [clear_tid] = words64::<1>(pid, word)?;
        let arguments = [PR_GET_PDEATHSIG, word, 0, 0, 0, 0];
        call(libc::SYS_prctl, arguments, "ask for its death signal")?;
        let parent_death_signal = word32(pid, word)? as i32;

        let user = frozen.threads[at].registers()?;
        let mut registers = state::Registers::from_user(&user);
        let rseq = sys::rseq_configuration(tid).unwrap_or_default();
        if rseq.address != 0 {
            leave_restartable_sequence(pid, rseq.address, &mut registers);
        }
        let mut xstate = sys::xstate(tid).map_err(self.failed("read its vector registers"))?;
        let xstate_bytes = xstate.len() as u32;
        let used = xstate
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        xstate.truncate(used);
        let robust_list = robust_list(tid).map_err(self.failed("read its robust futexes"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"))
            .map_err(self.failed("read a thread's status"))?;
        if procfs::field(&status, "Seccomp").is_some_and(|mode| mode != "0") {
            self.refuse(format!("thread {tid} runs under seccomp"));
        }
        let stat = procfs::stat(pid, tid).map_err(self.failed("read a thread's state"))?;
        Ok(state::Thread {
            tid,
            name: stat.name,
            registers,
            xstate,
            xstate_bytes,
            blocked: frozen.threads[at].signal_mask()?,
            pending: queue(tid, false)?,
            alternate_stack: (stack_address, stack_flags as i32, stack_bytes),
            robust_list,
            clear_tid,
            rseq: (rseq.address, rseq.bytes, rseq.signature),
            credentials: credentials(&status, securebits),
            scheduling: scheduling(tid).map_err(self.failed("read how it is scheduled"))?,
            parent_death_signal,
        })
    }

    fn posix_timers(
        &mut self,
        process: &mut state::Process,
        frozen: &mut FrozenProcess,
        scratch: u64,
    ) -> Result<(), Error> {
        let pid = self.pid;
        let text = match fs::read_to_string(format!("/proc/{pid}/timers")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.failed("read its POSIX timers")(error)),
        };
        for mut timer in parse_timers(&text) {
            let slot = scratch + SLOT_TIMER;
            let mut call = |number, arguments: [u64; 6]| {
                frozen
                    .syscall(0, number, arguments)?
                    .map_err(|source| Error::Read {
                        pid,
                        action: "ask for a POSIX timer".to_owned(),
                        source,
                    })
            };
            call(libc::SYS_timer_gettime, [timer.id as u64, slot, 0, 0, 0, 0])?;
            let [interval_s, interval_ns, value_s, value_ns] = words64::<4>(pid, slot)?;
            timer.interval_ns = interval_s * 1_000_000_000 + interval_ns;
            timer.remaining_ns = value_s * 1_000_000_000 + value_ns;
            timer.overrun =
                call(libc::SYS_timer_getoverrun, [timer.id as u64, 0, 0, 0, 0, 0])? as i32;
            process.timers.push(timer);
        }
        Ok(())
    }
}

/// What a thread that was in a restartable sequence would see when it runs on: the sequence is
/// aborted. The kernel that restores it does not know that it was in one.
fn leave_restartable_sequence(pid: Pid, rseq: u64, registers: &mut state::Registers) {
    const CRITICAL_SECTION: u64 = 8;
    let Ok([section]) = words64::<1>(pid, rseq + CRITICAL_SECTION) else {
        return;
    };
    if section == 0 {
        return;
    }
    // struct rseq_cs: version and flags, start, length, abort handler.
    let Ok([_, start, bytes, abort]) = words64::<4>(pid, section) else {
        return;
    };
    if registers.rip.wrapping_sub(start) < bytes {
        registers.rip = abort;
        registers.orig_rax = u64::MAX;
    }
}

fn empty_process(pid: Pid, parent: Pid, stat: &procfs::Stat) -> state::Process {
    state::Process {
        pid,
        parent,
        group: stat.group,
        session: stat.session,
        zombie: None,
        stopped: false,
        space: crate::store::SpaceId(0),
        layout: stat.layout,
        auxv: Vec::new(),
        executable: 0,
        directory: "/".to_owned(),
        root: None,
        umask: 0,
        limits: Vec::new(),
        dumpable: 1,
        subreaper: false,
        personality: 0,
        thp_disabled: false,
        oom_score_adj: 0,
        membarrier: 0,
        actions: Vec::new(),
        pending: Vec::new(),
        interval_timers: [(0, 0); 3],
        timers: Vec::new(),
        mappings: Vec::new(),
        descriptors: Vec::new(),
        locks: Vec::new(),
        threads: Vec::new(),
    }
}

fn credentials(status: &str, securebits: u32) -> state::Credentials {
    let four = |name| {
        let mut ids = [0u32; 4];
        let text = procfs::field(status, name).unwrap_or("");
        for (id, word) in ids.iter_mut().zip(text.split_ascii_whitespace()) {
            *id = word.parse().unwrap_or(0);
        }
        ids
    };
    let mask = |name| {
        procfs::field(status, name)
            .and_then(|text| u64::from_str_radix(text, 16).ok())
            .unwrap_or(0)
    };
    state::Credentials {
        users: four("Uid"),
        groups: four("Gid"),
        supplementary: procfs::field(status, "Groups")
            .unwrap_or("")
            .split_ascii_whitespace()
            .filter_map(|group| group.parse().ok())
            .collect(),
        capabilities: ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(mask),
        securebits,
        no_new_privileges: procfs::field(status, "NoNewPrivs") == Some("1"),
    }
}

/// The credentials of the calling process. `no_new_privileges` is as given: who compares does not
/// mean it.
pub(crate) fn own_credentials(no_new_privileges: bool) -> state::Credentials {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    // SAFETY: no memory involved.
    let securebits = unsafe { libc::prctl(PR_GET_SECUREBITS as i32, 0, 0, 0, 0) };
    state::Credentials {
        no_new_privileges,
        ..credentials(&status, securebits.max(0) as u32)
    }
}

/// `struct sched_attr` in its first version.
#[repr(C)]
#[derive(Default)]
pub(crate) struct SchedAttributes {
    pub size: u32,
    pub policy: u32,
    pub flags: u64,
    pub nice: i32,
    pub priority: u32,
    pub runtime: u64,
    pub deadline: u64,
    pub period: u64,
}

fn scheduling(tid: Pid) -> io::Result<state::Scheduling> {
    let mut attributes = SchedAttributes::default();
    let size = size_of::<SchedAttributes>();
    // SAFETY: the structure lives and has the size that is said.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attributes, size, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let own = affinity(0)?;
    let its = affinity(tid)?;
    // SAFETY: no memory involved.
    let io_priority = unsafe { libc::syscall(libc::SYS_ioprio_get, 1, tid) }.max(0) as u32;
    Ok(state::Scheduling {
        policy: attributes.policy,
        flags: attributes.flags,
        nice: attributes.nice,
        priority: attributes.priority,
        deadline_ns: [attributes.runtime, attributes.deadline, attributes.period],
        affinity: if own == its { Vec::new() } else { its },
        io_priority,
    })
}

fn affinity(tid: Pid) -> io::Result<Vec<u8>> {
    let mut mask = vec![0u8; 1024];
    // SAFETY: the mask lives and is as long as said.
    let bytes = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            tid,
            mask.len(),
            mask.as_mut_ptr(),
        )
    };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    mask.truncate(bytes as usize);
    Ok(mask)
}

fn robust_list(tid: Pid) -> io::Result<(u64, u64)> {
    let (mut head, mut bytes) = (0u64, 0u64);
    // SAFETY: both words live.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            tid,
            &raw mut head,
            &raw mut bytes,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok((head, bytes))
    }
}

fn queue(tid: Pid, shared: bool) -> Result<Vec<state::SignalInfo>, Error> {
    let queue = sys::pending_signals(tid, shared).map_err(|source| Error::Read {
        pid: tid,
        action: "read its pending signals".to_owned(),
        source,
    })?;
    Ok(queue
        .into_iter()
        .map(|info| state::SignalInfo(info.to_vec()))
        .collect())
}

fn words64<const N: usize>(pid: Pid, address: u64) -> Result<[u64; N], Error> {
    let mut bytes = vec![0u8; N * 8];
    let got = memory::read(pid, address, &mut bytes);
    let failed = |source| Error::Read {
        pid,
        action: "read its memory".to_owned(),
        source,
    };
    if got.map_err(failed)? < bytes.len() {
        return Err(failed(io::Error::from_raw_os_error(libc::EFAULT)));
    }
    let mut words = [0u64; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    Ok(words)
}

fn word32(pid: Pid, address: u64) -> Result<u32, Error> {
    memory::read_array::<4>(pid, address)
        .map(u32::from_ne_bytes)
        .map_err(|source| Error::Read {
            pid,
            action: "read its memory".to_owned(),
            source,
        })
}

/// Soft and hard limits of `/proc/PID/limits`, which stand in the order of their numbers.
fn parse_limits(text: &str) -> Vec<(u64, u64)> {
    const NAME_COLUMNS: usize = 26;
    let number = |word: &str| {
        if word == "unlimited" {
            u64::MAX
        } else {
            word.parse().unwrap_or(u64::MAX)
        }
    };
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let mut words = line.get(NAME_COLUMNS..)?.split_ascii_whitespace();
            Some((number(words.next()?), number(words.next()?)))
        })
        .collect()
}

/// The timers of `/proc/PID/timers`, not yet with their times.
fn parse_timers(text: &str) -> Vec<state::Timer> {
    let mut timers: Vec<state::Timer> = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        if name == "ID" {
            timers.push(state::Timer {
                id: value.parse().unwrap_or(0),
                clock: 0,
                notify: 0,
                thread: 0,
                signal: 0,
                value: 0,
                remaining_ns: 0,
                interval_ns: 0,
                overrun: 0,
            });
        }
        let Some(timer) = timers.last_mut() else {
            continue;
        };
        match name {
            "signal" => {
                if let Some((signal, data)) = value.split_once('/') {
                    timer.signal = signal.parse().unwrap_or(0);
                    timer.value = u64::from_str_radix(data, 16).unwrap_or(0);
                }
            }
            "notify" => {
                // "signal/pid.7", "signal/tid.8", "none/pid.7", "thread/…"
                let (kind, target) = value.split_once('/').unwrap_or((value, ""));
                timer.notify = match (kind, target.starts_with("tid.")) {
                    ("signal", true) => libc::SIGEV_THREAD_ID,
                    ("signal", false) => libc::SIGEV_SIGNAL,
                    ("thread", _) => libc::SIGEV_THREAD,
                    _ => libc::SIGEV_NONE,
                };
                if let Some(tid) = target.strip_prefix("tid.") {
                    timer.thread = tid.parse().unwrap_or(0);
                }
            }
            "ClockID" => timer.clock = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    timers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_that_the_kernel_tells() {
        let limits = parse_limits(&fs::read_to_string("/proc/self/limits").expect("limits"));
        assert_eq!(limits.len(), 16);
        for (resource, &(soft, hard)) in limits.iter().enumerate() {
            let mut limit = libc::rlimit64 {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: the limit lives.
            let got = unsafe { libc::getrlimit64(resource as u32, &raw mut limit) };
            assert_eq!(got, 0);
            assert_eq!(
                (soft, hard),
                (limit.rlim_cur, limit.rlim_max),
                "limit {resource}"
            );
        }
    }

    #[test]
    fn the_timers_of_proc_are_all_found_with_their_targets() {
        let text = "ID: 0\nsignal: 60/00007fff86e452a8\nnotify: signal/tid.2634\nClockID: 0\n\
                    ID: 3\nsignal: 14/0000000000000007\nnotify: none/pid.2634\nClockID: 1\n";
        let timers = parse_timers(text);
        assert_eq!(timers.len(), 2);
        assert_eq!((timers[0].signal, timers[0].value), (60, 0x7fff_86e4_52a8));
        assert_eq!(
            (timers[0].notify, timers[0].thread),
            (libc::SIGEV_THREAD_ID, 2634)
        );
        assert_eq!(
            (timers[1].id, timers[1].notify, timers[1].clock),
            (3, libc::SIGEV_NONE, 1)
        );
    }
}
