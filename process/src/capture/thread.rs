//! Threads, as /proc and ptrace report them.

use std::io;

use super::{Builder, Error};
use crate::memory;
use crate::procfs;
use crate::ptrace::{FrozenThread, Pid, sys, waits};
use crate::state;

pub(super) const PR_GET_SECUREBITS: u64 = 27;

/// What a thread reports through remote system calls.
pub(super) struct Reported {
    pub alternate_stack: (u64, i32, u64),
    pub clear_tid: u64,
    pub parent_death_signal: i32,
    pub securebits: u32,
    pub settings: state::Settings,
}

impl Builder<'_> {
    /// Describes a thread of the current process.
    pub(super) fn thread(
        &mut self,
        frozen: &FrozenThread,
        reported: Reported,
    ) -> Result<state::Thread, Error> {
        let pid = self.pid;
        let tid = frozen.tid;
        let stopped = frozen.registers()?;
        let named = waits::named(pid, tid, &stopped).unwrap_or_else(|waits::Unknown| {
            self.refuse(format!(
                "thread {tid} is in a wait that something else interrupted, and which system call it is \
                 cannot be seen until it ends"
            ));
            stopped
        });
        let mut registers = state::Registers::from_user(&named);
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
        let status = match self.statuses.remove(&tid) {
            Some(status) => status,
            None => procfs::status(pid, tid).map_err(self.failed("read a thread's status"))?,
        };
        let restrictions = self.restrictions(frozen, &status)?;
        let name = match self.seen.get(&tid) {
            Some(main) => main.name.clone(),
            None => {
                let stat = procfs::stat(pid, tid);
                stat.map_err(self.failed("read a thread's state"))?.name
            }
        };
        // A name may be any bytes: then this is not quite it.
        let name = match name.contains(char::REPLACEMENT_CHARACTER) {
            true => self.name_in_bytes(tid)?,
            false => name.into_bytes(),
        };
        Ok(state::Thread {
            tid,
            name,
            registers,
            xstate,
            xstate_bytes,
            blocked: frozen.signal_mask()?,
            pending: queue(tid, false)?,
            alternate_stack: reported.alternate_stack,
            robust_list,
            clear_tid: reported.clear_tid,
            rseq: (rseq.address, rseq.bytes, rseq.signature),
            credentials: credentials(&status, reported.securebits),
            scheduling: scheduling(tid).map_err(self.failed("read how it is scheduled"))?,
            parent_death_signal: reported.parent_death_signal,
            restrictions,
            settings: reported.settings,
        })
    }

    fn name_in_bytes(&self, tid: Pid) -> Result<Vec<u8>, Error> {
        let name = procfs::bytes(format!("/proc/{}/task/{tid}/comm", self.pid));
        let mut name = name.map_err(self.failed("read the name of a thread"))?;
        // The kernel adds a line feed.
        name.pop();
        Ok(name)
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

/// The credentials of the calling process. `no_new_privileges` is as given: comparisons
/// ignore it.
pub(crate) fn own_credentials(no_new_privileges: bool) -> state::Credentials {
    let status = procfs::text("/proc/self/status").unwrap_or_default();
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

/// How a thread is scheduled now.
pub(crate) fn scheduling(tid: Pid) -> io::Result<state::Scheduling> {
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
    // SAFETY: the mask is valid for its length.
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

pub(super) fn queue(tid: Pid, shared: bool) -> Result<Vec<state::SignalInfo>, Error> {
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
