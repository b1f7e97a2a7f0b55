//! Placeholder processes for those that have ended, of which the program has pidfds or files of /proc.

use std::collections::HashMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::stub::CloneArguments;
use crate::ptrace::Pid;
use crate::state::Tree;

/// Processes that wait. Dropped, they end.
#[derive(Debug, Default)]
pub struct Dead {
    pids: Vec<Pid>,
    /// By what pidfds name: the number of the placeholder process.
    of_pidfds: HashMap<u32, Pid>,
}

impl Dead {
    /// Processes with the numbers of those whose files are open.
    ///
    /// # Errors
    /// The number that is taken, or cannot be had.
    pub fn with_numbers(tree: &Tree) -> Result<Self, (Pid, io::Error)> {
        let mut dead = Self::default();
        for pid in &tree.dead {
            let made = wait_as(Some(*pid)).map_err(|source| (*pid, source))?;
            dead.pids.push(made);
        }
        Ok(dead)
    }

    /// A pidfd of the dead process `which`; all of one number are of the same.
    ///
    /// # Errors
    /// There are no processes left.
    pub fn pidfd(&mut self, which: u32) -> io::Result<OwnedFd> {
        let pid = match self.of_pidfds.get(&which) {
            Some(pid) => *pid,
            None => {
                let pid = wait_as(None)?;
                self.pids.push(pid);
                self.of_pidfds.insert(which, pid);
                pid
            }
        };
        // SAFETY: no memory involved; the descriptor is new and ours.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            match fd < 0 {
                true => Err(io::Error::last_os_error()),
                false => Ok(OwnedFd::from_raw_fd(fd as RawFd)),
            }
        }
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        for pid in self.pids.drain(..) {
            // SAFETY: no memory involved; it is our child.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// A child of ours that only waits, with this number.
fn wait_as(pid: Option<Pid>) -> io::Result<Pid> {
    let wanted = pid.unwrap_or(0);
    let mut arguments = CloneArguments {
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArguments::default()
    };
    if pid.is_some() {
        arguments.set_tid = (&raw const wanted) as u64;
        arguments.set_tid_size = 1;
    }
    // SAFETY: a child with its own memory, which only makes system calls; it takes no lock and
    // allocates nothing. The arguments and the number live.
    unsafe {
        let words = arguments.words();
        let made = libc::syscall(libc::SYS_clone3, words.as_ptr(), size_of_val(&words));
        match made {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::syscall(libc::SYS_pause);
                }
            }
            made => Ok(made as Pid),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn pidfds_of_the_dead_are_dead_and_of_the_same_process_where_they_were() {
        let mut dead = Dead::default();
        let all = [1, 1, 2].map(|which| dead.pidfd(which).expect("made"));
        drop(dead);
        let inode = |fd: &OwnedFd| {
            let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
            std::fs::metadata(link).expect("open").ino()
        };
        assert_eq!(inode(&all[0]), inode(&all[1]));
        for fd in &all {
            // SAFETY: no memory involved; signal 0 is none.
            let sent =
                unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), 0, 0, 0) };
            let error = io::Error::last_os_error().raw_os_error();
            assert_eq!((sent, error), (-1, Some(libc::ESRCH)));
        }
    }
}
