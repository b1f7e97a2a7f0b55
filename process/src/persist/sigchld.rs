//! Keeps the reports of tracees from interrupting us.
//!
//! Each stop of a tracee sends SIGCHLD to its tracer, also where the tracer waits for that very stop. A freeze
//! and a capture make hundreds, each of which would run a handler and interrupt a system call in some thread.

use std::ptr;

/// SIGCHLD is blocked in this thread, and in threads that it starts, while this lives. One that has come meanwhile is
/// delivered afterwards.
///
/// The kernel gives a signal of the process to any thread that does not block it: threads that live longer are
/// to be started while this exists.
#[derive(Debug)]
pub struct SigchldBlocked {
    /// Nothing else blocked it before.
    ours: bool,
}

fn child() -> libc::sigset_t {
    // SAFETY: an empty set is made of it at once.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        set
    }
}

impl SigchldBlocked {
    /// From now on.
    pub fn begin() -> Self {
        let child = child();
        // SAFETY: both sets live.
        let before = unsafe {
            let mut before = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const child, &raw mut before);
            libc::sigismember(&raw const before, libc::SIGCHLD)
        };
        Self { ours: before == 0 }
    }
}

impl Drop for SigchldBlocked {
    fn drop(&mut self) {
        // Not the whole mask: another guard may have changed it meanwhile, and ends before or after this one.
        if self.ours {
            let child = child();
            // SAFETY: the set lives.
            unsafe {
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const child, ptr::null_mut());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked() -> bool {
        // SAFETY: the set lives; nothing is changed.
        unsafe {
            let mut now = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut now);
            libc::sigismember(&raw const now, libc::SIGCHLD) == 1
        }
    }

    #[test]
    fn the_first_guard_ends_it_whatever_the_order() {
        assert!(!is_blocked());
        let outer = SigchldBlocked::begin();
        let inner = SigchldBlocked::begin();
        assert!(is_blocked());
        assert!(std::thread::spawn(is_blocked).join().unwrap());
        drop(inner);
        assert!(is_blocked());
        drop(outer);
        assert!(!is_blocked());
    }
}
