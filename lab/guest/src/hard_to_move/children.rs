//! Children of a process with hard-to-move memory; each does one thing on request.

use std::io::{PipeReader, PipeWriter, Read, Write};

use super::memory::ok;
use crate::error::{Doing, GuestError};

/// A forked process that checks something each time it is asked.
pub struct Child {
    pid: libc::pid_t,
    orders: PipeWriter,
    answers: PipeReader,
}

/// Forks a process that runs `check` for each order, until we end.
pub fn fork(check: impl Fn() -> Result<(), String>) -> Result<Child, GuestError> {
    let (mut order, orders) = std::io::pipe().doing("make a pipe")?;
    let (answers, mut answer) = std::io::pipe().doing("make a pipe")?;
    let pid = fork_with(move || {
        // The end of our own copy would keep the pipe open.
        while order.read_exact(&mut [0]).is_ok() {
            let good = check().is_ok();
            if answer.write_all(&[u8::from(good)]).is_err() {
                break;
            }
        }
        0
    })?;
    Ok(Child {
        pid,
        orders,
        answers,
    })
}

/// Forks a process that runs `work`, ends with what it returns, and never outlives us. For
/// processes with one thread only.
pub fn fork_with(work: impl FnOnce() -> i32) -> Result<libc::pid_t, GuestError> {
    let parent = std::process::id();
    // SAFETY: this process has one thread, so the child may do whatever the parent may.
    let pid = ok(unsafe { libc::fork() }).doing("fork")?;
    if pid == 0 {
        // SAFETY: plain calls; `_exit` runs nothing of the parent's.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            libc::_exit(work());
        }
    }
    Ok(pid as libc::pid_t)
}

/// Waits for a child; its exit status, 128 + signal where a signal ended it.
pub fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: writes the status only.
    if unsafe { libc::waitpid(pid, &mut status, 0) } != pid {
        return -1;
    }
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    }
}

impl Child {
    /// Lets the child check.
    pub fn ask(&mut self) -> Result<(), String> {
        let mut answer = [0];
        self.orders
            .write_all(&[1])
            .and_then(|()| self.answers.read_exact(&mut answer))
            .map_err(|error| format!("process {}: {error}", self.pid))?;
        if answer == [1] {
            Ok(())
        } else {
            Err(format!("process {} sees other contents", self.pid))
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        wait(self.pid);
    }
}
