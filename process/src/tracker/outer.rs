//! A process that stands where the tracker was started, and waits for it: the tracker itself goes on as its
//! child, in another PID namespace ([`super::isolate`]) or under another number ([`super::number`]).

use std::io;
use std::ptr;

use crate::ptrace::Pid;
use crate::restore::CloneArguments;

/// The init of every PID namespace.
pub(super) const INIT: Pid = 1;

/// Signals that are about the process itself, and not handed on.
const OWN: [i32; 8] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGPIPE,
];

/// What a violent end of the tracker means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The program ends with it.
    WithProgram,
    /// The program goes on.
    Alone,
}

/// Returns in a child, which does not outlive this process; this process waits and ends with it. Call it
/// before there are threads.
///
/// # Errors
/// The kernel refuses. With a number that is taken: `EEXIST`.
pub(super) fn go_on_in_child(number: Option<Pid>, end: End) -> io::Result<()> {
    let (mut ours, theirs) = io::pipe()?;
    let child = match number {
        // SAFETY: this process has no other thread that could hold a lock.
        None => unsafe { libc::fork() },
        Some(number) => fork_as(number)?,
    };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            // SAFETY: no memory involved.
            let set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            drop(theirs);
            match set {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }
        child => {
            drop(theirs);
            // Until its death signal is set, it is not to be left alone.
            let _ = io::Read::read(&mut ours, &mut [0]);
            wait_for(child, end)
        }
    }
}

/// `fork(2)`, with the number that the child gets.
fn fork_as(number: Pid) -> io::Result<Pid> {
    // The C library keeps the number of a thread, and has the kernel write it there, as here.
    let mut kept: u64 = 0;
    // SAFETY: the kernel writes an address there.
    if unsafe { libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut kept) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let arguments = CloneArguments {
        flags: (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) as u64,
        child_tid: kept,
        exit_signal: libc::SIGCHLD as u64,
        set_tid: &raw const number as u64,
        set_tid_size: 1,
        ..CloneArguments::default()
    };
    let words = arguments.words();
    // SAFETY: the arguments live. Without a stack of its own the child goes on here with a copy of all memory, and
    // no other thread of this process could hold a lock.
    match unsafe { libc::syscall(libc::SYS_clone3, words.as_ptr(), size_of_val(&words)) } {
        -1 => Err(io::Error::last_os_error()),
        child => Ok(child as Pid),
    }
}

/// Hands signals on until the child ends, and ends as it did. Other children are none of ours, and
/// are reaped.
fn wait_for(child: i32, end: End) -> ! {
    // SAFETY: the set and the information live; nothing else involves memory.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for signal in OWN {
            libc::sigdelset(&raw mut all, signal);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
        loop {
            let mut status = 0;
            loop {
                let changed = libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED);
                if changed <= 0 {
                    break;
                }
                if changed != child {
                    continue;
                }
                if !libc::WIFSTOPPED(status) {
                    end_as(status, end);
                }
                // The shell that it stands in is to see that. The kernel lets no init stop.
                libc::raise(libc::SIGSTOP);
            }
            let mut info = std::mem::zeroed::<libc::siginfo_t>();
            let signal = libc::sigwaitinfo(&raw const all, &raw mut info);
            // What comes from the terminal reaches the child as well.
            if signal > 0 && signal != libc::SIGCHLD && info.si_code <= 0 {
                // With its sender. What `kill` sends, another process can only queue.
                info.si_code = libc::SI_QUEUE;
                libc::syscall(libc::SYS_rt_sigqueueinfo, child, signal, &raw const info);
            }
        }
    }
}

/// Ends as the child did.
fn end_as(status: i32, end: End) -> ! {
    if libc::WIFEXITED(status) {
        // SAFETY: no memory involved.
        unsafe { libc::_exit(libc::WEXITSTATUS(status)) };
    }
    let signal = libc::WTERMSIG(status);
    let program = match end {
        End::WithProgram => "and its program with it",
        End::Alone => "and its program, if it lives, is tracked no more",
    };
    // Of other signals the tracker has said so itself.
    let is_silent = signal == libc::SIGKILL || end == End::WithProgram;
    if is_silent && std::process::id() as i32 != INIT {
        eprintln!(
            "dormouse: the tracker was killed by signal {signal}, {program}; its last epoch is kept"
        );
    }
    if end == End::Alone {
        end_by(signal);
    }
    // SAFETY: no memory involved.
    unsafe { libc::_exit(128 + signal) }
}

/// Ends by a signal, so that a caller that waits for the tracker sees no difference. There is no second core.
fn end_by(signal: i32) {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the set and the limit live; nothing else involves memory.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        let mut only = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const only, ptr::null_mut());
        libc::raise(signal);
    }
}
