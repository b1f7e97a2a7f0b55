//! One function for each ptrace request in use: the call and its error.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, c_long, c_void, user_regs_struct};

use super::Pid;
use crate::procfs;

/// ELF note type of the extended (xsave) register state.
const NT_X86_XSTATE: usize = 0x202;
/// Larger than any xsave area of today (AMX: 11,008 bytes).
const XSTATE_BYTES_MAX: usize = 64 << 10;

/// What every tracee is traced with.
pub(super) const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD;

/// A set of signals as the kernel sees it: bit 0 is signal 1.
pub type SignalMask = u64;

/// `struct ptrace_rseq_configuration`: where a thread registered its restartable sequences.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RseqConfiguration {
    /// Address of `struct rseq`; 0: not registered.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u32,
    /// The signature in front of abort handlers.
    pub signature: u32,
    flags: u32,
    pad: u32,
}

fn request(kind: u32, pid: Pid, address: usize, data: usize) -> io::Result<c_long> {
    // SAFETY: callers pass addresses of live objects of the type that the request wants.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            c_long::from(kind),
            c_long::from(pid),
            address,
            data,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Becomes the tracer of a thread without stopping it.
pub fn seize(tid: Pid, options: c_int) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

/// Asks a seized thread to stop.
pub fn interrupt(tid: Pid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Lets a stopped thread run, with a signal (0: none).
pub fn cont(tid: Pid, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// Lets a stopped thread run until it enters or leaves a system call.
pub fn cont_to_syscall(tid: Pid) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, 0).map(drop)
}

/// Lets a stopped thread run one instruction.
pub fn step(tid: Pid) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, 0).map(drop)
}

/// Stops being the tracer of a stopped thread; it runs on, with a signal (0: none).
pub fn detach(tid: Pid, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

/// Changes the `PTRACE_O_*` options of a stopped thread.
pub fn set_options(tid: Pid, options: c_int) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, options as usize).map(drop)
}

/// Filter number `at` of a stopped thread, the oldest first: its instructions, each as a word, and
/// whether it logs; `None`: it has no more.
pub fn seccomp_filter(tid: Pid, at: usize) -> io::Result<Option<(Vec<u64>, bool)>> {
    const PTRACE_SECCOMP_GET_FILTER: u32 = 0x420c;
    const PTRACE_SECCOMP_GET_METADATA: u32 = 0x420d;
    const LOG: u64 = 2;
    let count = match request(PTRACE_SECCOMP_GET_FILTER, tid, at, 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        count => count?,
    };
    let mut instructions = vec![0u64; count as usize];
    request(
        PTRACE_SECCOMP_GET_FILTER,
        tid,
        at,
        instructions.as_mut_ptr() as usize,
    )?;
    // struct seccomp_metadata: which filter, its flags.
    let mut metadata = [at as u64, 0];
    let bytes = size_of_val(&metadata);
    request(
        PTRACE_SECCOMP_GET_METADATA,
        tid,
        bytes,
        metadata.as_mut_ptr() as usize,
    )?;
    Ok(Some((instructions, metadata[1] & LOG != 0)))
}

/// A descriptor of another process, as our own.
///
/// # Errors
/// It has none of this number, or we may not.
pub fn take_fd(pid: Pid, number: i32) -> io::Result<OwnedFd> {
    take_fd_of(&pidfd(pid)?, number)
}

/// A descriptor that stands for a process.
pub fn pidfd(pid: Pid) -> io::Result<OwnedFd> {
    let target = rustix::process::Pid::from_raw(pid)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    let flags = rustix::process::PidfdFlags::empty();
    Ok(rustix::process::pidfd_open(target, flags)?)
}

/// As [`take_fd`], from the process that a descriptor stands for.
pub fn take_fd_of(pidfd: &OwnedFd, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory involved.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor of ours, from the call above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The general registers of a stopped thread.
pub fn registers(tid: Pid) -> io::Result<user_regs_struct> {
    let mut registers = MaybeUninit::<user_regs_struct>::zeroed();
    request(
        libc::PTRACE_GETREGS,
        tid,
        0,
        registers.as_mut_ptr() as usize,
    )?;
    // SAFETY: plain integers, filled by the kernel.
    Ok(unsafe { registers.assume_init() })
}

/// Sets the general registers of a stopped thread.
pub fn set_registers(tid: Pid, registers: &user_regs_struct) -> io::Result<()> {
    request(
        libc::PTRACE_SETREGS,
        tid,
        0,
        std::ptr::from_ref(registers) as usize,
    )
    .map(drop)
}

/// The FPU, vector and further extended registers as an xsave area in its standard format.
pub fn xstate(tid: Pid) -> io::Result<Vec<u8>> {
    let mut area = vec![0u8; XSTATE_BYTES_MAX];
    let mut vector = libc::iovec {
        iov_base: area.as_mut_ptr().cast::<c_void>(),
        iov_len: area.len(),
    };
    request(
        libc::PTRACE_GETREGSET,
        tid,
        NT_X86_XSTATE,
        std::ptr::from_mut(&mut vector) as usize,
    )?;
    area.truncate(vector.iov_len);
    Ok(area)
}

/// Sets the extended registers from an xsave area.
pub fn set_xstate(tid: Pid, area: &[u8]) -> io::Result<()> {
    let mut vector = libc::iovec {
        iov_base: area.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: area.len(),
    };
    request(
        libc::PTRACE_SETREGSET,
        tid,
        NT_X86_XSTATE,
        std::ptr::from_mut(&mut vector) as usize,
    )
    .map(drop)
}

/// The signals that a stopped thread blocks; inside a call that changes the mask for its duration
/// (`ppoll`, `sigsuspend`), the mask that will hold after it.
pub fn signal_mask(tid: Pid) -> io::Result<SignalMask> {
    let mut mask: SignalMask = 0;
    request(
        libc::PTRACE_GETSIGMASK,
        tid,
        size_of::<SignalMask>(),
        std::ptr::from_mut(&mut mask) as usize,
    )?;
    Ok(mask)
}

/// Sets the signals that a stopped thread blocks.
pub fn set_signal_mask(tid: Pid, mask: SignalMask) -> io::Result<()> {
    request(
        libc::PTRACE_SETSIGMASK,
        tid,
        size_of::<SignalMask>(),
        std::ptr::from_ref(&mask) as usize,
    )
    .map(drop)
}

/// Where a stopped thread registered restartable sequences.
pub fn rseq_configuration(tid: Pid) -> io::Result<RseqConfiguration> {
    const PTRACE_GET_RSEQ_CONFIGURATION: u32 = 0x420f;
    let mut configuration = RseqConfiguration::default();
    request(
        PTRACE_GET_RSEQ_CONFIGURATION,
        tid,
        size_of::<RseqConfiguration>(),
        std::ptr::from_mut(&mut configuration) as usize,
    )?;
    Ok(configuration)
}

/// Whether a stopped thread has some of its system calls dispatched to itself
/// (`PR_SET_SYSCALL_USER_DISPATCH`). Before Linux 6.4 nobody can tell.
pub fn dispatches_calls(tid: Pid) -> bool {
    const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: u32 = 0x4211;
    // Mode, address of the selector, and the range of code that may call.
    let mut configuration = [0u64; 4];
    let got = request(
        PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG,
        tid,
        size_of_val(&configuration),
        configuration.as_mut_ptr() as usize,
    );
    got.is_ok() && configuration[0] != 0
}

/// Bytes of a `siginfo_t`.
pub const SIGINFO_BYTES: usize = 128;

/// The queue of pending signals of a stopped thread, or the one that its process shares.
pub fn pending_signals(tid: Pid, shared: bool) -> io::Result<Vec<[u8; SIGINFO_BYTES]>> {
    #[repr(C)]
    struct PeekArguments {
        offset: u64,
        flags: u32,
        count: i32,
    }
    const BATCH: usize = 32;
    let mut queue = Vec::new();
    loop {
        let mut infos = [[0u8; SIGINFO_BYTES]; BATCH];
        let arguments = PeekArguments {
            offset: queue.len() as u64,
            flags: u32::from(shared),
            count: BATCH as i32,
        };
        let got = request(
            libc::PTRACE_PEEKSIGINFO,
            tid,
            std::ptr::from_ref(&arguments) as usize,
            infos.as_mut_ptr() as usize,
        )? as usize;
        queue.extend_from_slice(&infos[..got]);
        if got < BATCH {
            return Ok(queue);
        }
    }
}

/// What `wait` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Nothing yet.
    Nothing,
    /// It has ended.
    Gone,
    /// It stopped as `interrupt` asked.
    Stopped {
        /// The stop signal that has stopped its process, or 0.
        group: c_int,
    },
    /// It stopped on its way into or out of a system call.
    Syscall,
    /// It stopped because this signal is about to be delivered.
    Signal(c_int),
    /// Another event (a `PTRACE_EVENT_*` number).
    Other(c_int),
}

/// Waits for a traced thread to stop; with `block` false, does not wait.
pub fn wait(tid: Pid, block: bool) -> io::Result<Event> {
    let mut status: c_int = 0;
    let flags = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: status lives.
        let got = unsafe { libc::waitpid(tid, &raw mut status, flags) };
        if got == 0 {
            return Ok(Event::Nothing);
        }
        if got == tid {
            break;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(Event::Gone),
            _ => return Err(error),
        }
    }
    if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
        return Ok(Event::Gone);
    }
    Ok(stop_event(status >> 8))
}

/// What a stop means: the signal in the low byte, above it the number of a `PTRACE_EVENT_*`.
fn stop_event(stop: c_int) -> Event {
    let signal = stop & 0xff;
    match stop >> 8 {
        libc::PTRACE_EVENT_STOP => Event::Stopped {
            group: if signal == libc::SIGTRAP { 0 } else { signal },
        },
        0 if signal == libc::SIGTRAP | 0x80 => Event::Syscall,
        0 => Event::Signal(signal),
        other => Event::Other(other),
    }
}

/// What a thread has to report now, without waiting. Unlike [`wait`], it leaves the end of our own
/// child to the code that started it and waits for its exit status.
///
/// A stopped thread may be killed at any instant, also between two calls: so a stop is taken by a
/// call that cannot take an end.
pub fn peek(tid: Pid) -> io::Result<Event> {
    loop {
        if let Ok(Some(info)) = wait_id(tid, libc::WSTOPPED) {
            // SAFETY: waitid fills this field.
            return Ok(stop_event(unsafe { info.si_status() }));
        }
        match wait_id(tid, libc::WEXITED | libc::WNOWAIT) {
            Ok(None) => return Ok(Event::Nothing),
            // The kernel reports the stop of a tracee to every wait: it has stopped since the first.
            Ok(Some(info)) if info.si_code == libc::CLD_TRAPPED => {}
            Ok(Some(_)) if is_our_child(tid) => return Ok(Event::Gone),
            // An error: it is not ours any more.
            Ok(Some(_)) | Err(_) => return wait(tid, false),
        }
    }
}

/// `waitid` for one traced thread, without waiting; `None`: there is nothing to report.
fn wait_id(tid: Pid, kinds: c_int) -> io::Result<Option<libc::siginfo_t>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::__WALL | libc::WNOHANG | kinds;
    // SAFETY: the structure lives.
    if unsafe { libc::waitid(libc::P_PID, tid.cast_unsigned(), info.as_mut_ptr(), flags) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, and filled by the kernel if there is something to report.
    let info = unsafe { info.assume_init() };
    // SAFETY: waitid fills this field.
    let reports = unsafe { info.si_pid() } != 0;
    Ok(reports.then_some(info))
}

/// Whether this is a process (not just a thread of one) that we are the parent of.
fn is_our_child(tid: Pid) -> bool {
    let status = procfs::status(tid, tid).unwrap_or_default();
    let number = |name| procfs::field(&status, name)?.parse::<Pid>().ok();
    number("Tgid") == Some(tid) && number("PPid") == Some(std::process::id().cast_signed())
}
