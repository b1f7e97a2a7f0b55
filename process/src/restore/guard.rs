//! A guard process that kills a partly filled program if the tracker dies.
//!
//! When the last descriptor of a userfaultfd is closed, missing memory reads as zeros. The guard
//! holds all of the tracker's descriptors, so the program's threads continue to wait, and kills the
//! program when the tracker's end of a pipe is closed without a message.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::ptrace::Pid;

/// The guard, until it is dismissed.
#[derive(Debug)]
pub struct Guard {
    pid: Pid,
    pipe: OwnedFd,
}

impl Guard {
    /// Starts it, for these processes.
    ///
    /// # Errors
    /// There are no descriptors or processes left.
    pub fn start(processes: &[Pid]) -> io::Result<Self> {
        let (reader, pipe) = pipe_with(PipeFlags::CLOEXEC)?;
        let pidfds: Vec<OwnedFd> = processes
            .iter()
            .filter_map(|pid| rustix::process::Pid::from_raw(*pid))
            .filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
            .collect();
        // SAFETY: the child calls nothing but system calls: other threads' locks do not matter.
        let pid = unsafe { libc::fork() };
        match pid {
            ..0 => Err(io::Error::last_os_error()),
            0 => watch(&reader, &pipe, &pidfds),
            _ => Ok(Self { pid, pipe }),
        }
    }

    /// Its process number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// It is not needed any more; returns when it is gone.
    pub fn dismiss(self) {
        let _ = rustix::io::write(&self.pipe, &[1]);
        let pid = rustix::process::Pid::from_raw(self.pid);
        let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
    }
}

fn watch(reader: &OwnedFd, pipe: &OwnedFd, pidfds: &[OwnedFd]) -> ! {
    let mut word = 0u8;
    // SAFETY: system calls only; the buffer lives, and nothing of what is closed or left behind
    // is used by this process again.
    unsafe {
        libc::close(pipe.as_raw_fd());
        let got = loop {
            let got = libc::read(reader.as_raw_fd(), (&raw mut word).cast(), 1);
            if got >= 0 || *libc::__errno_location() != libc::EINTR {
                break got;
            }
        };
        if got != 1 {
            for pidfd in pidfds {
                libc::syscall(
                    libc::SYS_pidfd_send_signal,
                    pidfd.as_raw_fd(),
                    libc::SIGKILL,
                    0,
                    0,
                );
            }
        }
        libc::_exit(0)
    }
}
