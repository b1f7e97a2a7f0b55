//! Waits that a freeze interrupts.
//!
//! Most calls the kernel starts again by itself. Some it ends with EINTR; these start again here, until
//! their time limit (`deadlines.rs`). Other timed waits go on with the rest of their time, by
//! `restart_syscall` and by what the kernel alone remembers
//! (`struct restart_block`). When such a wait is interrupted once more, its registers no longer say which
//! call it was. A restored thread has no memory in the kernel: there `restart_syscall` returns EINTR,
//! which `poll` and `nanosleep` never do without a signal. So the first interruption is remembered
//! here, and where it was not seen, the code before the call says which one it is.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libc::user_regs_struct;

use super::{FrozenThread, Pid, deadlines, sys};
use crate::memory;
use crate::procfs;

/// System calls that the kernel does not restart after a stop: they return EINTR, which a program
/// without signal handlers need not expect. A call that returns EINTR has received, sent and waited
/// for nothing, so it can start again.
const NOT_RESTARTED: [libc::c_long; 15] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const SYSCALL_BYTES: u64 = SYSCALL.len() as u64;
/// What the kernel leaves in `rax` of an interrupted wait with a rest of time.
pub const ERESTART_RESTARTBLOCK: u64 = (-516i64) as u64;
const RESTART_SYSCALL: u64 = libc::SYS_restart_syscall as u64;
/// The calls that leave it, by the kernel's source.
const TIMED_WAITS: [libc::c_long; 4] = [
    libc::SYS_poll,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_futex,
];

/// A timed wait that a freeze has interrupted: where it is, and which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wait {
    call: u64,
    rip: u64,
    rsp: u64,
    first_argument: u64,
}

/// By process and thread: a few bytes for each thread that waits.
static SEEN: Mutex<Option<HashMap<Pid, HashMap<Pid, Wait>>>> = Mutex::new(None);

/// Takes note of what the stop of these threads has interrupted.
pub(super) fn interrupted(pid: Pid, threads: &[FrozenThread]) {
    deadlines::keep_only(pid, threads);
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = seen.get_or_insert_default();
    if !seen.contains_key(&pid) {
        seen.retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
    }
    let before = seen.remove(&pid).unwrap_or_default();
    let mut now = HashMap::new();
    for thread in threads {
        let Ok(registers) = sys::registers(thread.tid) else {
            continue;
        };
        hide_interruption(pid, thread.tid, registers);
        let Some(rip) = timed_wait(pid, &registers) else {
            continue;
        };
        let wait = if registers.orig_rax == RESTART_SYSCALL {
            let known = before.get(&thread.tid);
            known.filter(|wait| wait.is_at(rip, &registers)).copied()
        } else {
            Some(Wait::new(registers.orig_rax, rip, &registers))
        };
        now.extend(wait.map(|wait| (thread.tid, wait)));
    }
    seen.insert(pid, now);
}

impl Wait {
    fn new(call: u64, rip: u64, registers: &user_regs_struct) -> Self {
        Self {
            call,
            rip,
            rsp: registers.rsp,
            first_argument: registers.rdi,
        }
    }

    fn is_at(&self, rip: u64, registers: &user_regs_struct) -> bool {
        *self == Self::new(self.call, rip, registers)
    }
}

/// Where an interrupted wait with a rest of time returns to; none: it is no such wait.
fn timed_wait(pid: Pid, registers: &user_regs_struct) -> Option<u64> {
    if registers.orig_rax as i64 >= 0 && registers.rax == ERESTART_RESTARTBLOCK {
        return Some(registers.rip);
    }
    // Let go and stopped again before the call was made.
    let call = registers.orig_rax;
    let is_one = call == RESTART_SYSCALL || TIMED_WAITS.contains(&(call as libc::c_long));
    let prepared = registers.rax == RESTART_SYSCALL && is_one;
    (prepared && memory::read_array(pid, registers.rip).ok() == Some(SYSCALL))
        .then(|| registers.rip + SYSCALL_BYTES)
}

/// A wait of which nobody knows any more what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown;

/// Registers of a stopped thread in which an interrupted wait is named by its own call.
///
/// # Errors
/// It was interrupted before by something else, and which call it is cannot be seen.
pub fn named(
    pid: Pid,
    tid: Pid,
    registers: &user_regs_struct,
) -> Result<user_regs_struct, Unknown> {
    let mut registers = *registers;
    let Some(rip) = timed_wait(pid, &registers) else {
        return Ok(registers);
    };
    if registers.orig_rax == RESTART_SYSCALL {
        let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = seen.as_ref().and_then(|seen| seen.get(&pid)?.get(&tid));
        let known = wait.filter(|wait| wait.is_at(rip, &registers));
        let call = known.map(|wait| wait.call);
        drop(seen);
        let call = call.or_else(|| call_before(pid, rip));
        registers.orig_rax = call.ok_or(Unknown)?;
    }
    registers.rax = ERESTART_RESTARTBLOCK;
    registers.rip = rip;
    Ok(registers)
}

/// The call that the code before a return address makes: `mov $number, %eax; syscall`.
fn call_before(pid: Pid, rip: u64) -> Option<u64> {
    const MOV_EAX: u8 = 0xb8;
    let [mov, a, b, c, d, syscall @ ..] = memory::read_array::<7>(pid, rip - 7).ok()?;
    let call = i64::from(i32::from_le_bytes([a, b, c, d]));
    (mov == MOV_EAX && syscall == SYSCALL && TIMED_WAITS.contains(&call)).then_some(call as u64)
}

/// Restarts a system call that only our stop has interrupted. If a signal is pending for the
/// thread, the signal may have interrupted it, and the result stays. One that was restarted often enough
/// to have lasted for its time limit ends.
fn hide_interruption(pid: Pid, tid: Pid, mut registers: user_regs_struct) {
    let call = registers.orig_rax as libc::c_long;
    let interrupted = registers.rax as i64 == -i64::from(libc::EINTR);
    if !interrupted || !NOT_RESTARTED.contains(&call) || signal_waits(pid, tid) {
        return;
    }
    if deadlines::passed(pid, tid, &registers) {
        registers.rax = deadlines::result(call);
    } else {
        registers.rax = registers.orig_rax;
        registers.rip -= SYSCALL_BYTES;
        deadlines::mark(&mut registers);
    }
    registers.orig_rax = u64::MAX;
    let _ = sys::set_registers(tid, &registers);
}

/// Whether a signal is pending that the thread does not block.
fn signal_waits(pid: Pid, tid: Pid) -> bool {
    let status = procfs::status(pid, tid).unwrap_or_default();
    let set =
        |name| procfs::field(&status, name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let (Some(own), Some(shared), Some(blocked)) = (set("SigPnd"), set("ShdPnd"), set("SigBlk"))
    else {
        return true;
    };
    (own | shared) & !blocked != 0
}
