//! Threads that remain traced after a freeze was given up, because they had not stopped.
//!
//! The kernel detaches only from a stopped thread. A thread in an uninterruptible wait stops later,
//! and would then stay stopped for ever. A killed thread stays a zombie, and so does its process,
//! until its tracer has seen its end.

use std::cell::RefCell;

use super::{Pid, sys};

thread_local! {
    /// The kernel ties ptrace to the thread that seized.
    static LATE: RefCell<Vec<Pid>> = const { RefCell::new(Vec::new()) };
}

/// Detaches from the threads that have stopped or ended since this thread gave up on them. A
/// tracker calls it on each SIGCHLD, which the kernel sends for tracees, too.
pub fn release_late() {
    LATE.with_borrow_mut(|late| late.retain(|&tid| !detach(tid)));
}

/// Remembers threads that could not be detached.
pub(super) fn leave(threads: Vec<Pid>) {
    for &tid in &threads {
        tracing::debug!(tid, "does not stop; it is let go when it does");
    }
    LATE.with_borrow_mut(|late| late.extend(threads));
}

/// Whether a thread is ours since an earlier freeze; from now on the caller's.
pub(super) fn take(tid: Pid) -> bool {
    LATE.with_borrow_mut(|late| {
        let at = late.iter().position(|&other| other == tid);
        at.map(|at| late.swap_remove(at)).is_some()
    })
}

/// Detaches from a thread if it is stopped, with the signal that it was about to receive. True: it
/// is not ours any more.
pub(super) fn detach(tid: Pid) -> bool {
    let signal = match sys::peek(tid) {
        Ok(sys::Event::Gone) => return true,
        Ok(sys::Event::Signal(signal)) => signal,
        // No news does not mean that it runs: an earlier call may have seen the stop.
        Ok(_) | Err(_) => 0,
    };
    sys::detach(tid, signal).is_ok()
}
