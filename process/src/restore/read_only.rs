//! Writes memory that its process may only read.
//!
//! Only a debugger's way leads there, /proc/PID/mem. Since 6.12 a kernel may be built to let nobody
//! but the tracer pass (`CONFIG_PROC_MEM_FORCE_PTRACE`, as Debian's 7.x); others get `EIO`. The
//! restorer's processes are traced only later, so such a process is traced while it is filled.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::ptrace::{Pid, sys};

pub(super) struct ReadOnlyMemory {
    pid: Pid,
    file: File,
    traced: bool,
}

impl ReadOnlyMemory {
    pub(super) fn open(pid: Pid) -> io::Result<Self> {
        let path = format!("/proc/{pid}/mem");
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        Ok(Self {
            pid,
            file,
            traced: false,
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8], address: u64) -> io::Result<()> {
        match self.file.write_all_at(bytes, address) {
            Err(error) if error.raw_os_error() == Some(libc::EIO) && !self.traced => {
                self.trace()?;
                self.file.write_all_at(bytes, address)
            }
            written => written,
        }
    }

    fn trace(&mut self) -> io::Result<()> {
        sys::seize(self.pid, 0)?;
        self.traced = true;
        Ok(())
    }

    /// Lets the process go: it waits at a gate, and a system call that waits begins anew.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.traced) {
            return Ok(());
        }
        sys::interrupt(self.pid)?;
        match sys::wait(self.pid, true)? {
            sys::Event::Gone => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            sys::Event::Signal(signal) => sys::detach(self.pid, signal),
            _ => sys::detach(self.pid, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory, procfs};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_had_to_be_traced_has_the_bytes_and_goes_on() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id() as Pid;
        // Until it is the program that we started.
        while std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() != "cat\n" {
            std::thread::yield_now();
        }
        let maps = procfs::maps(pid).unwrap();
        let only_read = |map: &&procfs::MapsLine| {
            map.protection == libc::PROT_READ && !map.shared && map.inode != 0
        };
        let address = maps.iter().find(only_read).expect("its headers").start;
        let mut read_only = ReadOnlyMemory::open(pid).unwrap();
        // What a kernel that lets only tracers pass makes of the first EIO.
        read_only.trace().unwrap();
        read_only.write(b"by its tracer", address).unwrap();
        read_only.finish().unwrap();
        let bytes: [u8; 13] = memory::read_array(pid, address).unwrap();
        assert_eq!(&bytes, b"by its tracer");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
        // It reads the end of its input, which no signal had disturbed.
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
