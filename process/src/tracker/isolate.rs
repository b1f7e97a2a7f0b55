//! A PID namespace of the program's own: as in a container, PIDs are free when it is restored, and
//! the program never outlives its init.
//!
//! ```text
//!  dormouse process run …      hands signals on, waits, ends with the same code
//!   └─ init                    PID 1 of the new namespace, with a /proc of its own; does the same
//!       └─ tracker
//!           └─ program …
//! ```
//!
//! The init has no file open but what it was started with. So it ends at once when it is killed,
//! whatever a file server does, and the kernel ends all others with it. In a container the first
//! process is the outermost one.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

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
/// The init of every PID namespace.
pub const INIT: i32 = 1;

/// This process is the tracker under an init of ours.
static INSIDE: AtomicBool = AtomicBool::new(false);

/// Whether this process is the tracker of a container or of a namespace of ours: it ends with its
/// program, and what is sent to it is for the program.
pub fn in_container() -> bool {
    INSIDE.load(Ordering::Acquire) || std::process::id() as i32 == INIT
}

/// Goes on as the tracker in a new namespace (in a container: in its own), as a child of its init.
/// Call it before there are threads.
///
/// # Errors
/// The kernel refuses.
pub fn enter() -> io::Result<()> {
    if std::process::id() as i32 != INIT {
        leave(libc::CLONE_NEWPID)?;
        go_on_in_child()?;
        become_init()?;
    }
    go_on_in_child()?;
    INSIDE.store(true, Ordering::Release);
    Ok(())
}

/// Returns in a child, which does not outlive this process; this process waits and ends with it.
fn go_on_in_child() -> io::Result<()> {
    let (mut ours, theirs) = io::pipe()?;
    // SAFETY: this process has no other thread that could hold a lock.
    match unsafe { libc::fork() } {
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
            wait_for(child)
        }
    }
}

/// Gets a namespace of its own; of PIDs, for children.
fn leave(namespace: i32) -> io::Result<()> {
    // SAFETY: no memory involved.
    match unsafe { libc::unshare(namespace) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn become_init() -> io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    // Not before: an engine enters the mount namespace of a container's first process to execute more
    // in it, which must find itself in /proc.
    leave(libc::CLONE_NEWNS)?;
    // What is mounted outside is still seen; what is mounted here is not seen outside.
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", propagation)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    Ok(())
}

/// Hands signals on until the child ends, and ends as it did. Other children are none of ours, and
/// are reaped.
fn wait_for(child: i32) -> ! {
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
                let ended = libc::waitpid(-1, &raw mut status, libc::WNOHANG);
                if ended == child {
                    libc::_exit(code_of(status));
                }
                if ended <= 0 {
                    break;
                }
            }
            let mut info = std::mem::zeroed::<libc::siginfo_t>();
            let signal = libc::sigwaitinfo(&raw const all, &raw mut info);
            // What comes from the terminal reaches the child as well.
            if signal > 0 && signal != libc::SIGCHLD && info.si_code <= 0 {
                libc::kill(child, signal);
            }
        }
    }
}

/// The exit code that stands for a child's end.
fn code_of(status: i32) -> i32 {
    if libc::WIFEXITED(status) {
        return libc::WEXITSTATUS(status);
    }
    let signal = libc::WTERMSIG(status);
    if std::process::id() as i32 != INIT {
        eprintln!(
            "dormouse: the tracker was killed by signal {signal}, and its program with it; its last \
             epoch is kept"
        );
    }
    128 + signal
}
