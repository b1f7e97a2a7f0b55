//! Opens, reopens and positions descriptors of the tracker.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::Error;
use crate::state::File;

pub(super) fn open(path: &str, flags: i32) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(path)?;
    // SAFETY: the path lives.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
}

/// A new description of what a descriptor of ours leads to.
pub(super) fn reopen(number: RawFd, flags: u32) -> io::Result<OwnedFd> {
    open(
        &format!("/proc/self/fd/{number}"),
        flags as i32 & !(libc::O_CREAT | libc::O_TRUNC | libc::O_ASYNC),
    )
}

pub(super) fn seek(file: &OwnedFd, position: u64) -> io::Result<()> {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Start(position))
        .map(drop)
        .map_err(Into::into)
}

pub(super) fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        Err(io::Error::last_os_error())
    } else {
        // SAFETY: the kernel has just given it to us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Opens a file of the tree by its path, as it was open.
pub(super) fn open_image(file: &File, path: &str) -> Result<OwnedFd, Error> {
    let failed = |source| Error::Open {
        path: path.to_owned(),
        source,
    };
    let flags = file.flags as i32 & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_ASYNC);
    let opened = open(path, flags | libc::O_NOCTTY).map_err(failed)?;
    // Devices and terminals have no position.
    if file.position != 0 {
        seek(&opened, file.position).map_err(failed)?;
    }
    Ok(opened)
}
