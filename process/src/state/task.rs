//! Processes and threads.

use serde::{Deserialize, Serialize};

use super::{Adjustment, Descriptor, Mapping, Restrictions};
use crate::procfs::Layout;
use crate::store::SpaceId;

/// A process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its parent; 0: outside of the tree.
    pub parent: i32,
    /// Its process group; 0: one of outside.
    pub group: i32,
    /// Its session; 0: one of outside.
    pub session: i32,
    /// It has ended, and its parent has not reaped it: the status for `waitpid`. Then the rest is
    /// empty.
    pub zombie: Option<i32>,
    /// Of a process that has ended: its real user.
    pub zombie_user: u32,
    /// Signal for its parent at its end; 0: none.
    pub exit_signal: i32,
    /// Stopped by this stop signal; 0: it runs.
    pub stopped: i32,
    /// User who logged in (`loginuid`); none: the kernel does not record it.
    pub login_user: Option<u32>,
    /// Names its private pages in the store.
    pub space: SpaceId,
    /// Addresses of code, data, brk, arguments …
    pub layout: Layout,
    /// The auxiliary vector.
    pub auxv: Vec<(u64, u64)>,
    /// The executable: index of an image.
    pub executable: u32,
    /// Current directory.
    pub directory: String,
    /// Root directory; `None`: the one of the tracker.
    pub root: Option<String>,
    /// File mode creation mask.
    pub umask: u32,
    /// Soft and hard limit of each `RLIMIT_*`, by number.
    pub limits: Vec<(u64, u64)>,
    /// `PR_SET_DUMPABLE`.
    pub dumpable: i32,
    /// Of a session leader: its controlling terminal, an index, and the process group in front; 0: none.
    pub terminal: Option<(u32, i32)>,
    /// `PR_SET_CHILD_SUBREAPER`.
    pub subreaper: bool,
    /// Transparent huge pages switched off for the process.
    pub thp_disabled: bool,
    /// … but for memory that asks for them (`PR_THP_DISABLE_EXCEPT_ADVISED`).
    pub huge_pages_only_advised: bool,
    /// Memory cannot be made executable (`PR_SET_MDWE`): flags.
    pub no_new_code: u32,
    /// Equal pages of its memory are merged (`PR_SET_MEMORY_MERGE`).
    pub memory_merged: bool,
    /// What a core dump has (`/proc/PID/coredump_filter`); none: the kernel makes none.
    pub core_dump_filter: Option<u32>,
    /// Adjustment of the out-of-memory score.
    pub oom_score_adj: i32,
    /// Registered `membarrier` commands.
    pub membarrier: u32,
    /// New mappings are locked (`mlockall`): `MCL_FUTURE`, also `MCL_ONFAULT`; 0: they are not.
    pub locks_future: i32,
    /// Signals whose action is not the default with default flags.
    pub actions: Vec<Action>,
    /// Pending for the process as a whole: `siginfo_t`s.
    pub pending: Vec<SignalInfo>,
    /// Value and interval of `ITIMER_REAL`, `VIRTUAL`, `PROF`, in microseconds.
    pub interval_timers: [(u64, u64); 3],
    /// POSIX timers.
    pub timers: Vec<Timer>,
    /// Memory, ascending.
    pub mappings: Vec<Mapping>,
    /// Its table of descriptors is its parent's (`CLONE_FILES`).
    pub shares_descriptors: bool,
    /// Open descriptors, ascending.
    pub descriptors: Vec<Descriptor>,
    /// POSIX record locks.
    pub locks: Vec<RecordLock>,
    /// Adjustments of System V semaphores at its end (`SEM_UNDO`).
    pub adjustments: Vec<Adjustment>,
    /// Threads, the main thread first.
    pub threads: Vec<Thread>,
}

impl Process {
    /// A process with nothing in it.
    pub fn empty(pid: i32, parent: i32) -> Self {
        Self {
            pid,
            parent,
            group: 0,
            session: 0,
            zombie: None,
            zombie_user: 0,
            exit_signal: libc::SIGCHLD,
            stopped: 0,
            login_user: None,
            space: SpaceId(0),
            layout: Layout::default(),
            auxv: Vec::new(),
            executable: 0,
            directory: "/".to_owned(),
            root: None,
            umask: 0,
            limits: Vec::new(),
            dumpable: 1,
            terminal: None,
            subreaper: false,
            thp_disabled: false,
            huge_pages_only_advised: false,
            no_new_code: 0,
            memory_merged: false,
            core_dump_filter: None,
            oom_score_adj: 0,
            membarrier: 0,
            locks_future: 0,
            actions: Vec::new(),
            pending: Vec::new(),
            interval_timers: [(0, 0); 3],
            timers: Vec::new(),
            mappings: Vec::new(),
            shares_descriptors: false,
            descriptors: Vec::new(),
            locks: Vec::new(),
            adjustments: Vec::new(),
            threads: Vec::new(),
        }
    }
}

/// What a process does about a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The signal.
    pub signal: u8,
    /// Handler, or 0 for the default and 1 for ignoring.
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// The return trampoline.
    pub restorer: u64,
    /// Blocked while it runs.
    pub mask: u64,
}

/// A `siginfo_t` (128 bytes).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalInfo(pub Vec<u8>);

/// A POSIX timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// Its number.
    pub id: i32,
    /// `CLOCK_*`.
    pub clock: i32,
    /// `SIGEV_*`.
    pub notify: i32,
    /// Receiving thread, for `SIGEV_THREAD_ID`.
    pub thread: i32,
    /// Signal to send.
    pub signal: i32,
    /// Value to send with it.
    pub value: u64,
    /// Time until it fires, nanoseconds; 0: it is not armed.
    pub remaining_ns: u64,
    /// Period, nanoseconds.
    pub interval_ns: u64,
    /// Times that it fired unseen.
    pub overrun: i32,
}

/// A POSIX record lock that a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordLock {
    /// A descriptor of the locked file.
    pub descriptor: i32,
    /// Exclusive rather than shared.
    pub exclusive: bool,
    /// First byte.
    pub start: u64,
    /// Number of bytes; 0: to the end, however far it is.
    pub bytes: u64,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub tid: i32,
    /// Its name: any bytes.
    pub name: Vec<u8>,
    /// General registers.
    pub registers: Registers,
    /// The xsave area in its standard format, without zeroes at its end.
    pub xstate: Vec<u8>,
    /// Its length with them.
    pub xstate_bytes: u32,
    /// Blocked signals.
    pub blocked: u64,
    /// Pending for this thread.
    pub pending: Vec<SignalInfo>,
    /// Alternate signal stack: address, flags, bytes.
    pub alternate_stack: (u64, i32, u64),
    /// Head and length of the list of robust futexes.
    pub robust_list: (u64, u64),
    /// Word to clear and wake when it ends.
    pub clear_tid: u64,
    /// Restartable sequences: address (0: none), bytes, signature.
    pub rseq: (u64, u32, u32),
    /// Its credentials.
    pub credentials: Credentials,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// Signal on the death of its parent.
    pub parent_death_signal: i32,
    /// What restricts its system calls (seccomp).
    pub restrictions: Restrictions,
    /// What it has set for itself.
    pub settings: Settings,
}

/// What a thread sets for itself, and its children inherit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Slack of its timers, nanoseconds; 0: of a real-time thread.
    pub timer_slack_ns: u64,
    /// Execution domain flags.
    pub personality: u32,
    /// `PR_MCE_KILL_*`.
    pub machine_check: u32,
    /// It may read the time stamp counter (`PR_SET_TSC`).
    pub time_stamp: bool,
    /// It may use the instruction CPUID (`ARCH_SET_CPUID`).
    pub cpuid: bool,
    /// `MPOL_*` with its flags.
    pub memory_policy: u32,
    /// The nodes of that: a bit mask.
    pub memory_nodes: Vec<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timer_slack_ns: 50_000,
            personality: 0,
            machine_check: libc::PR_MCE_KILL_DEFAULT as u32,
            time_stamp: true,
            cpuid: true,
            memory_policy: 0,
            memory_nodes: Vec::new(),
        }
    }
}

/// `struct user_regs_struct`, word by word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub fs_base: u64,
    pub gs_base: u64,
}

/// Selectors of 64-bit user code and data: the only ones that a 64-bit program has.
const USER_CS: u64 = 0x33;
const USER_SS: u64 = 0x2b;
/// Flags that a thread in user mode may have of its own: CF PF AF ZF SF TF DF OF NT RF AC ID, and the
/// fixed bit 1. It has RF while it is stopped at an instruction that met a page fault.
const RFLAGS_USER: u64 = 0x0025_4dd7;
/// Of these, the one that ptrace does not set (ID).
const RFLAGS_NOT_BY_PTRACE: u64 = 0x0020_0000;

impl Registers {
    /// From what ptrace gives.
    pub fn from_user(user: &libc::user_regs_struct) -> Self {
        Self {
            r15: user.r15,
            r14: user.r14,
            r13: user.r13,
            r12: user.r12,
            rbp: user.rbp,
            rbx: user.rbx,
            r11: user.r11,
            r10: user.r10,
            r9: user.r9,
            r8: user.r8,
            rax: user.rax,
            rcx: user.rcx,
            rdx: user.rdx,
            rsi: user.rsi,
            rdi: user.rdi,
            orig_rax: user.orig_rax,
            rip: user.rip,
            rflags: user.eflags,
            rsp: user.rsp,
            fs_base: user.fs_base,
            gs_base: user.gs_base,
        }
    }

    /// The flags that the thread has to set itself, before it gets all others by ptrace.
    pub fn flags_to_set_itself(&self) -> u64 {
        self.rflags & RFLAGS_NOT_BY_PTRACE
    }

    /// For ptrace. Selectors and privileged flags are never taken from the description.
    pub fn to_user(self) -> libc::user_regs_struct {
        libc::user_regs_struct {
            r15: self.r15,
            r14: self.r14,
            r13: self.r13,
            r12: self.r12,
            rbp: self.rbp,
            rbx: self.rbx,
            r11: self.r11,
            r10: self.r10,
            r9: self.r9,
            r8: self.r8,
            rax: self.rax,
            rcx: self.rcx,
            rdx: self.rdx,
            rsi: self.rsi,
            rdi: self.rdi,
            orig_rax: self.orig_rax,
            rip: self.rip,
            cs: USER_CS,
            eflags: self.rflags & RFLAGS_USER | 0x202,
            rsp: self.rsp,
            ss: USER_SS,
            fs_base: self.fs_base,
            gs_base: self.gs_base,
            ds: 0,
            es: 0,
            fs: 0,
            gs: 0,
        }
    }
}

/// Credentials of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// Real, effective, saved, file-system user.
    pub users: [u32; 4],
    /// Real, effective, saved, file-system group.
    pub groups: [u32; 4],
    /// Supplementary groups.
    pub supplementary: Vec<u32>,
    /// Capabilities: inheritable, permitted, effective, bounding, ambient.
    pub capabilities: [u64; 5],
    /// `SECBIT_*`.
    pub securebits: u32,
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privileges: bool,
}

/// How a thread is scheduled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// Niceness.
    pub nice: i32,
    /// Real-time priority.
    pub priority: u32,
    /// Runtime, deadline and period of `SCHED_DEADLINE`, nanoseconds.
    pub deadline_ns: [u64; 3],
    /// CPUs that it may use: a bit mask; empty: no choice was made (it may use all).
    pub affinity: Vec<u8>,
    /// Class and level of its I/O.
    pub io_priority: u32,
}
