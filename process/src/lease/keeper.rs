//! The keeper: a process that renews the lease, and that init, tracker and program do not outlive.
//!
//! ```text
//!  init of the PID namespace ── tracker ── program …      the kernel ends them with their init
//!     ▲
//!     │ PTRACE_O_EXITKILL: the kernel kills the init when the keeper is gone
//!     │
//!  keeper ── thread: renews, and sets the timer forward
//!     ▲
//!     └──── timer of the kernel: SIGKILL when the term is over
//! ```
//!
//! Nothing of this needs a process of ours to run at the decisive moment: stopped, frozen, swapped
//! out or stuck in a write to a dead file server, they end in time. The init itself cannot carry the
//! timer: an init is not killed by its own. It is not the tracker that is killed first: with files
//! on a dead server open, it may take for ever to end.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use super::record::Record;
use super::{Lease, LeaseError, now_ns, rules};
use crate::procfs;
use crate::ptrace::Pid;

/// The init of this PID namespace, which ends all others with it.
const INIT: Pid = 1;

/// The keeper of this process.
static KEEPER: AtomicI32 = AtomicI32::new(0);
/// In the keeper: the lease was given back, and the init may go on alone.
static RELEASED: AtomicBool = AtomicBool::new(false);

/// After a renewal that failed.
const RETRY: Duration = Duration::from_millis(200);
const READY: u8 = b'.';

/// The running keeper of this process's lease. Dropping it ends what is left of the program, then
/// gives the lease back.
#[derive(Debug)]
pub struct Keeper {
    pid: Pid,
    generation: u64,
    control: UnixStream,
}

/// The keeper's number, which is a child of this process and no part of its program.
pub fn keeper_pid() -> Option<Pid> {
    Some(KEEPER.load(Ordering::Acquire)).filter(|pid| *pid != 0)
}

impl Keeper {
    /// The generation that it keeps.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        end_children(self.pid);
        // It answers when the lease is given back, or has ended.
        let _ = self.control.write_all(b"r");
        let _ = self.control.read(&mut [0]);
        // SAFETY: no memory involved; our child.
        unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
        KEEPER.store(0, Ordering::Release);
    }
}

/// Nothing of the program may run when another node may start it.
fn end_children(keeper: Pid) {
    let own = std::process::id() as Pid;
    loop {
        let mut children = procfs::children(own).unwrap_or_default();
        children.retain(|child| *child != keeper);
        if children.is_empty() {
            return;
        }
        for child in children {
            // SAFETY: no memory involved.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, ptr::null_mut(), libc::__WALL);
            }
        }
    }
}

/// Starts the keeper; returns when it holds the init.
pub fn start(lease: Lease) -> Result<Keeper, LeaseError> {
    let path = lease.files.of(lease.record.generation);
    let failed = |doing| {
        let path = path.clone();
        move |source| LeaseError::Io {
            path,
            doing,
            source,
        }
    };
    let generation = lease.record.generation;
    let doing = "start the keeper of the lease";
    let (mut control, its) = UnixStream::pair().map_err(failed(doing))?;
    // SAFETY: this process has no other thread yet that could hold a lock.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(failed(doing)(std::io::Error::last_os_error())),
        0 => {
            drop(control);
            keep(lease, its)
        }
        _ => drop(its),
    }
    KEEPER.store(pid, Ordering::Release);
    let mut answer = Vec::new();
    let mut byte = [0];
    while matches!(control.read(&mut byte), Ok(1)) && byte[0] != READY {
        answer.push(byte[0]);
    }
    if byte[0] == READY {
        // The lock is held through the keeper as well as by us.
        std::mem::forget(lease);
        return Ok(Keeper {
            pid,
            generation,
            control,
        });
    }
    // SAFETY: no memory involved; our child.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
    KEEPER.store(0, Ordering::Release);
    let reason = String::from_utf8_lossy(&answer).into_owned();
    Err(failed(doing)(std::io::Error::other(reason)))
}

/// The keeper's life; never returns.
fn keep(lease: Lease, mut control: UnixStream) -> ! {
    // SAFETY: system calls of this process about itself; the handler does nothing.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"dormouse-lease".as_ptr());
        // What the terminal and administrators send is for the tracker.
        libc::setsid();
        for signal in 1..=libc::SIGRTMAX() {
            if ![libc::SIGCHLD, libc::SIGKILL, libc::SIGSTOP].contains(&signal) {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        let mut interrupt = std::mem::zeroed::<libc::sigaction>();
        interrupt.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(WAKE, &raw const interrupt, ptr::null_mut());
    }
    let term_ns = lease.record.term_ns;
    let begun = Timer::new().and_then(|timer| {
        timer.set(rules::valid_until_ns(lease.claimed_ns, term_ns))?;
        // SAFETY: no memory involved.
        let seized = unsafe {
            let options = libc::PTRACE_O_EXITKILL;
            libc::ptrace(libc::PTRACE_SEIZE, INIT, ptr::null_mut::<u8>(), options)
        };
        match seized {
            0 => Ok(timer),
            _ => Err(std::io::Error::last_os_error()),
        }
    });
    let timer = match begun {
        Ok(timer) => timer,
        Err(error) => {
            let _ = control.write_all(error.to_string().replace('.', " ").as_bytes());
            drop(control);
            // SAFETY: ends this process.
            unsafe { libc::_exit(1) }
        }
    };
    let renewing = std::thread::Builder::new()
        .name("renew".to_owned())
        .spawn(move || renew(lease, &timer, control));
    if renewing.is_err() {
        // SAFETY: ends this process; the init dies with it.
        unsafe { libc::_exit(1) }
    }
    follow()
}

/// Interrupts the main thread's wait.
const WAKE: i32 = libc::SIGUSR2;
const BETWEEN_WAKES: Duration = Duration::from_millis(20);

extern "C" fn nothing(_: i32) {}

/// Lets the init receive its signals, until it ends or may go on alone.
fn follow() -> ! {
    const PTRACE_EVENT_STOP: i32 = 128;
    let request = |request, signal: usize| {
        // SAFETY: no memory involved.
        unsafe { libc::ptrace(request, INIT, ptr::null_mut::<u8>(), signal) }
    };
    loop {
        let mut status = 0;
        // SAFETY: the status lives.
        let got = unsafe { libc::waitpid(INIT, &raw mut status, libc::__WALL) };
        let released = RELEASED.load(Ordering::Acquire);
        if got < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted {
            if released {
                // To be let go it must stand for a moment.
                request(libc::PTRACE_INTERRUPT, 0);
            }
            continue;
        }
        if got != INIT || !libc::WIFSTOPPED(status) {
            // SAFETY: ends this process: there is nothing left to keep.
            unsafe { libc::_exit(0) }
        }
        match (status >> 16, libc::WSTOPSIG(status)) {
            (0, signal) if released => {
                request(libc::PTRACE_DETACH, signal as usize);
                // SAFETY: ends this process; the init is no longer held.
                unsafe { libc::_exit(0) }
            }
            (PTRACE_EVENT_STOP, _) if released => {
                request(libc::PTRACE_DETACH, 0);
                // SAFETY: as above.
                unsafe { libc::_exit(0) }
            }
            (PTRACE_EVENT_STOP, signal) if signal != libc::SIGTRAP => {
                // It is stopped as a whole, and stays so until it is continued.
                request(libc::PTRACE_LISTEN, 0)
            }
            (0, signal) => request(libc::PTRACE_CONT, signal as usize),
            _ => request(libc::PTRACE_CONT, 0),
        };
    }
}

/// Renews the lease until the tracker asks to give it back.
fn renew(lease: Lease, timer: &Timer, mut control: UnixStream) {
    let Lease {
        files, mut record, ..
    } = lease;
    let term_ns = record.term_ns;
    let _ = control.write_all(&[READY]);
    let mut pause = Duration::from_nanos(rules::renewal_interval_ns(term_ns));
    loop {
        if asked(&control, pause) {
            release(&files, record)
        }
        let began_ns = now_ns();
        record.renewals += 1;
        pause = match files.write(&record) {
            Ok(()) => {
                // A term that was over meanwhile has killed this process in the system call.
                if timer.set(rules::valid_until_ns(began_ns, term_ns)).is_err() {
                    // SAFETY: ends this process, and with it all others.
                    unsafe { libc::_exit(1) }
                }
                Duration::from_nanos(rules::renewal_interval_ns(term_ns))
            }
            Err(error) => {
                tracing::error!("{error}; the program is killed if that goes on");
                RETRY
            }
        };
    }
}

/// Whether the tracker asks within that time.
fn asked(control: &UnixStream, within: Duration) -> bool {
    let mut wanted = libc::pollfd {
        fd: control.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = i32::try_from(within.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one descriptor, which lives.
    unsafe { libc::poll(&raw mut wanted, 1, milliseconds) > 0 }
}

/// Nothing of the program is left: others need not wait. Wakes the main thread until it has let go.
fn release(files: &super::files::Files, mut record: Record) -> ! {
    record.released = true;
    if let Err(error) = files.write(&record) {
        tracing::warn!("{error}: other nodes wait until it has run out");
    }
    RELEASED.store(true, Ordering::Release);
    let own = std::process::id();
    loop {
        // SAFETY: no memory involved; the main thread has this process's number.
        unsafe { libc::syscall(libc::SYS_tgkill, own, own, WAKE) };
        std::thread::sleep(BETWEEN_WAKES);
    }
}

/// A timer of the kernel that kills this process.
struct Timer(libc::timer_t);

// SAFETY: a number of this process, for any of its threads.
unsafe impl Send for Timer {}
// SAFETY: as above.
unsafe impl Sync for Timer {}

impl Timer {
    fn new() -> std::io::Result<Self> {
        // SAFETY: both structures live; the number is written by the call.
        unsafe {
            let mut event = std::mem::zeroed::<libc::sigevent>();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = libc::SIGKILL;
            let mut timer = std::mem::zeroed::<libc::timer_t>();
            match libc::timer_create(libc::CLOCK_BOOTTIME, &raw mut event, &raw mut timer) {
                0 => Ok(Self(timer)),
                _ => Err(std::io::Error::last_os_error()),
            }
        }
    }

    /// Sets it to a time since the boot.
    fn set(&self, at_ns: u64) -> std::io::Result<()> {
        let second = 1_000_000_000;
        let nothing = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = libc::itimerspec {
            it_interval: nothing,
            it_value: libc::timespec {
                tv_sec: (at_ns / second) as i64,
                // All zero would switch it off.
                tv_nsec: ((at_ns % second) as i64).max(1),
            },
        };
        // SAFETY: the structure lives.
        match unsafe {
            libc::timer_settime(
                self.0,
                libc::TIMER_ABSTIME,
                &raw const value,
                ptr::null_mut(),
            )
        } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}
