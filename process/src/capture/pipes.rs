//! Pipes, with and without a name, and what is in them.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use super::files::Open;
use super::objects::{is_at, without_mark};
use super::{Builder, Error};
use crate::ptrace::Pid;
use crate::state::{FileKind, Pipe};

impl Builder<'_> {
    pub(super) fn pipe(&mut self, open: &Open<'_>) -> Result<FileKind, Error> {
        let inode = open.metadata.ino();
        if let Some(&index) = self.pipe_index.get(&inode) {
            return Ok(FileKind::Pipe(index));
        }
        let failed = || format!("read the pipe behind its descriptor {}", open.number);
        let (content, capacity) =
            pipe_content(self.pid, open.number).map_err(self.failed(failed()))?;
        let path = (!open.link.starts_with("pipe:")).then(|| open.link.to_owned());
        let path = path.map(|path| without_mark(&path, open.metadata).to_owned());
        let link = format!("/proc/{}/fd/{}", self.pid, open.number);
        if let Some(path) = &path
            && !is_at(path, open.metadata)
            && !self.ghost(&link, path, open.metadata)
        {
            self.refuse(format!(
                "fd {} is a named pipe that was removed, or is covered by something else",
                open.number
            ));
        }
        let index = self.tree.pipes.len() as u32;
        self.tree.pipes.push(Pipe {
            content,
            capacity,
            path,
        });
        self.pipe_index.insert(inode, index);
        Ok(FileKind::Pipe(index))
    }
}

/// Copies what is in a pipe without taking it out.
fn pipe_content(pid: Pid, number: RawFd) -> io::Result<(Vec<u8>, u32)> {
    let reader = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(format!("/proc/{pid}/fd/{number}"))?;
    let capacity = rustix::pipe::fcntl_getpipe_size(&reader)?;
    let mut waiting = 0i32;
    // SAFETY: the number lives.
    if unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut waiting) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut content = Vec::new();
    if waiting > 0 {
        let (copy, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // As many slots as the original has: each write of the program may hold one.
        rustix::pipe::fcntl_setpipe_size(&into, capacity)?;
        // SAFETY: no memory involved.
        let copied = unsafe {
            libc::tee(
                reader.as_raw_fd(),
                into.as_raw_fd(),
                waiting as usize,
                libc::SPLICE_F_NONBLOCK,
            )
        };
        if copied < 0 {
            return Err(io::Error::last_os_error());
        }
        drop(into);
        fs::File::from(copy).read_to_end(&mut content)?;
        if content.len() != waiting as usize {
            return Err(io::Error::other("its content could not be copied whole"));
        }
    }
    Ok((content, capacity as u32))
}

#[cfg(test)]
#[path = "pipes_tests.rs"]
mod tests;
