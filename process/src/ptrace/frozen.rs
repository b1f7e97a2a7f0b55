//! Stopped threads and processes.

use std::io;

use libc::user_regs_struct;

use super::{Error, Pid, sys};
use crate::procfs;

/// A stopped thread.
#[derive(Debug)]
pub struct FrozenThread {
    /// Its number.
    pub tid: Pid,
    /// The stop signal (SIGSTOP, Ctrl-Z) that had stopped its process when we froze it; 0: none.
    pub group_stopped: i32,
    pub(super) stopped: bool,
    pub(super) injection: Option<Injection>,
    /// Came while it ran calls for us, and is sent again.
    pub(super) stop_signal: Option<i32>,
}

/// A stopped process.
#[derive(Debug)]
pub struct FrozenProcess {
    /// Its number.
    pub pid: Pid,
    /// Its stopped threads, the main thread first. Empty for a zombie.
    pub threads: Vec<FrozenThread>,
    pub(super) syscall_instruction: Option<u64>,
    pub(super) vdso: Option<u64>,
    pub(super) trap_is_ignored: Option<bool>,
}

impl FrozenThread {
    pub(super) fn new(tid: Pid) -> Self {
        Self {
            tid,
            group_stopped: 0,
            stopped: false,
            injection: None,
            stop_signal: None,
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }
}

impl FrozenProcess {
    /// Suspends the seccomp filters of its threads for as long as they are traced and stopped, so that
    /// they can make calls for us. They are set when a thread stands: one that runs must not be without.
    ///
    /// # Errors
    /// We lack CAP_SYS_ADMIN, or have a filter of our own.
    pub fn suspend_filters(&mut self) -> io::Result<()> {
        const PTRACE_O_SUSPEND_SECCOMP: i32 = 1 << 21;
        let options = sys::OPTIONS | libc::PTRACE_O_EXITKILL | PTRACE_O_SUSPEND_SECCOMP;
        for thread in &self.threads {
            let status = procfs::status(self.pid, thread.tid)?;
            if procfs::has_own_filter(thread.tid, &status) {
                sys::set_options(thread.tid, options)?;
            }
        }
        Ok(())
    }
}

pub(super) fn request(action: &'static str, tid: Pid, source: io::Error) -> Error {
    if source.raw_os_error() == Some(libc::ESRCH) {
        Error::Gone { tid }
    } else {
        Error::Request {
            action,
            tid,
            source,
        }
    }
}

/// What a thread had before we used it.
#[derive(Debug)]
pub struct Injection {
    pub(super) registers: user_regs_struct,
    pub(super) mask: sys::SignalMask,
    /// SIGTRAP may stop it: the program neither blocks nor ignores it.
    pub(super) trap: bool,
    /// A stop signal that came meanwhile; the thread gets it again.
    pub(super) stop_signal: Option<i32>,
}
