//! Threads that are still ours after a freeze was given up, because they had not stopped.
//!
//! The kernel lets go only of a thread that stands. One in an uninterruptible wait was asked to
//! stop and will, but later; then it would stand for ever. And one that was killed stays a zombie,
//! and its process with it, until its tracer has seen its end.

use std::cell::RefCell;

use super::{Pid, sys};

thread_local! {
    /// The kernel ties ptrace to the thread that seized.
    static LATE: RefCell<Vec<Pid>> = const { RefCell::new(Vec::new()) };
}

/// Lets the threads run on that have stopped since this thread gave up freezing them. A tracker
/// calls it whenever it hears of a child (the kernel sends SIGCHLD for tracees, too).
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

/// Lets a thread run on if it stands, with the signal that it was about to receive. True: it is
/// not ours any more.
pub(super) fn detach(tid: Pid) -> bool {
    let signal = match sys::peek(tid) {
        Ok(sys::Event::Gone) => return true,
        Ok(sys::Event::Signal(signal)) => signal,
        // Nothing new does not mean that it runs: somebody may have seen that it stopped.
        Ok(_) | Err(_) => 0,
    };
    sys::detach(tid, signal).is_ok()
}
