//! When a wait with a time limit ends that freezes interrupt again and again.
//!
//! A call that the kernel does not restart by itself starts again with its whole time limit (see
//! [`waits`](super::waits)). Frozen more often than that, a program would wait for ever. So a wait that
//! is interrupted again after its limit is given the result of one that has ended.
//!
//! The arguments of a call do not say whether it is the one that was started again or a new one: a loop
//! makes the same call at the same place. The flags do. A call that is started again has a zero flag and
//! a sign flag, which no comparison sets together, and the kernel keeps the flags of a call. No program
//! needs them afterwards: a compiler takes them for destroyed.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libc::{c_long, user_regs_struct};

use super::{FrozenThread, Pid, sys};
use crate::memory;

const PARITY: u64 = 1 << 2;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
/// Of a result of zero, the parity is even, too.
const MARK: u64 = ZERO | SIGN;
const MARKED: u64 = PARITY | ZERO | SIGN;

/// A wait that was started again.
#[derive(Debug, Clone, Copy)]
struct Wait {
    /// Call, address and arguments.
    identity: [u64; 6],
    /// None: it has no limit, or one that is not known.
    ends: Option<Instant>,
}

/// By process and thread.
static STARTED_AGAIN: Mutex<Option<HashMap<Pid, HashMap<Pid, Wait>>>> = Mutex::new(None);

/// Whether a wait that was interrupted at this instant has lasted for its time limit.
///
/// Its first part is not known: it ends later than asked for by at most that and the time to the next
/// freeze.
pub(super) fn passed(pid: Pid, tid: Pid, registers: &user_regs_struct) -> bool {
    let identity = [
        registers.orig_rax,
        registers.rip,
        registers.rsp,
        registers.rdi,
        registers.rsi,
        registers.rdx,
    ];
    let mut all = STARTED_AGAIN.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    if !all.contains_key(&pid) {
        all.retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
    }
    let waits = all.entry(pid).or_default();
    let is_marked = registers.eflags & MARKED == MARK;
    let known = waits.get(&tid).copied();
    let known = known.filter(|wait| is_marked && wait.identity == identity);
    let wait = known.unwrap_or_else(|| {
        let ends = limit(pid, registers).and_then(|limit| Instant::now().checked_add(limit));
        Wait { identity, ends }
    });
    let passed = wait.ends.is_some_and(|ends| ends <= Instant::now());
    if passed {
        waits.remove(&tid);
    } else {
        waits.insert(tid, wait);
    }
    passed
}

/// Forgets the waits of other threads of a process than these.
pub(super) fn keep_only(pid: Pid, threads: &[FrozenThread]) {
    let mut all = STARTED_AGAIN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(waits) = all.as_mut().and_then(|all| all.get_mut(&pid)) else {
        return;
    };
    let threads: HashSet<Pid> = threads.iter().map(|thread| thread.tid).collect();
    waits.retain(|tid, _| threads.contains(tid));
}

/// Marks a call that starts again.
pub(super) fn mark(registers: &mut user_regs_struct) {
    registers.eflags = registers.eflags & !MARKED | MARK;
}

/// What a wait returns that has lasted for its time limit.
pub(super) fn result(call: c_long) -> u64 {
    match call {
        libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_io_getevents => 0,
        libc::SYS_io_uring_enter => (-i64::from(libc::ETIME)) as u64,
        _ => (-i64::from(libc::EAGAIN)) as u64,
    }
}

/// The time limit of a wait, which the call has as an argument, or its socket as an option.
fn limit(pid: Pid, registers: &user_regs_struct) -> Option<Duration> {
    let milliseconds = |value: u64| u64::try_from(value as i32).ok().map(Duration::from_millis);
    match registers.orig_rax as c_long {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => milliseconds(registers.r10),
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => in_memory(pid, registers.r10),
        libc::SYS_io_getevents => in_memory(pid, registers.r8),
        libc::SYS_rt_sigtimedwait => in_memory(pid, registers.rdx),
        libc::SYS_io_uring_enter => of_ring(pid, registers.r10, registers.r8),
        libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_accept
        | libc::SYS_accept4 => of_socket(pid, registers.rdi as i32, libc::SO_RCVTIMEO),
        libc::SYS_sendto | libc::SYS_sendmsg => {
            of_socket(pid, registers.rdi as i32, libc::SO_SNDTIMEO)
        }
        _ => None,
    }
}

/// A `struct timespec`; none at address 0.
fn in_memory(pid: Pid, address: u64) -> Option<Duration> {
    if address == 0 {
        return None;
    }
    let bytes = memory::read_array::<16>(pid, address).ok()?;
    let (seconds, nanoseconds) = bytes.split_at(8);
    let seconds = u64::from_ne_bytes(seconds.try_into().ok()?);
    let nanoseconds = u64::from_ne_bytes(nanoseconds.try_into().ok()?);
    Some(Duration::new(seconds, u32::try_from(nanoseconds).ok()?))
}

/// The limit in a `struct io_uring_getevents_arg`, unless it is an instant.
fn of_ring(pid: Pid, flags: u64, argument: u64) -> Option<Duration> {
    const EXT_ARG: u64 = 1 << 3;
    const ABS_TIMER: u64 = 1 << 5;
    /// After a signal mask, its length, and a least time to wait.
    const LIMIT: u64 = 16;
    if flags & (EXT_ARG | ABS_TIMER) != EXT_ARG {
        return None;
    }
    let address = memory::read_array::<8>(pid, argument.checked_add(LIMIT)?).ok()?;
    in_memory(pid, u64::from_ne_bytes(address))
}

fn of_socket(pid: Pid, number: i32, option: i32) -> Option<Duration> {
    let socket = sys::take_fd(pid, number).ok()?;
    let limit = if option == libc::SO_RCVTIMEO {
        rustix::net::sockopt::socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv)
    } else {
        rustix::net::sockopt::socket_timeout(&socket, rustix::net::sockopt::Timeout::Send)
    };
    limit.ok()?
}
