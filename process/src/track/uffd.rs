//! userfaultfd, as far as we use it; documented in ioctl_userfaultfd(2).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use linux_raw_sys::general::{self as raw, UFFD_API};
use linux_raw_sys::ioctl::{
    UFFDIO_API, UFFDIO_COPY, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WAKE, UFFDIO_WRITEPROTECT,
    UFFDIO_ZEROPAGE,
};

use crate::store::PAGE_BYTES;

/// Faults on missing pages are reported.
pub const MODE_MISSING: u64 = raw::UFFDIO_REGISTER_MODE_MISSING as u64;
/// Pages can be write-protected.
pub const MODE_WP: u64 = raw::UFFDIO_REGISTER_MODE_WP as u64;

/// Write-protection that the kernel lifts by itself at the first write.
pub const FEATURE_WP_ASYNC: u64 = raw::UFFD_FEATURE_WP_ASYNC as u64;
/// Protection of what is not there yet.
pub const FEATURE_WP_UNPOPULATED: u64 = raw::UFFD_FEATURE_WP_UNPOPULATED as u64;
/// A fork is reported, with a userfaultfd of the child.
pub const FEATURE_EVENT_FORK: u64 = raw::UFFD_FEATURE_EVENT_FORK as u64;
/// A moving mremap is reported.
pub const FEATURE_EVENT_REMAP: u64 = raw::UFFD_FEATURE_EVENT_REMAP as u64;
/// MADV_DONTNEED and its like are reported.
pub const FEATURE_EVENT_REMOVE: u64 = raw::UFFD_FEATURE_EVENT_REMOVE as u64;
/// munmap is reported.
pub const FEATURE_EVENT_UNMAP: u64 = raw::UFFD_FEATURE_EVENT_UNMAP as u64;

/// Argument of userfaultfd(2): faults of the kernel on behalf of the program are not reported.
/// Enough for asynchronous protection, and needs no privilege in the program.
pub const USER_MODE_ONLY: u64 = raw::UFFD_USER_MODE_ONLY as u64;

fn ioctl<T>(uffd: &OwnedFd, request: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: the callers pass the structure that belongs to the request.
    match unsafe {
        libc::ioctl(
            uffd.as_raw_fd(),
            request.into(),
            std::ptr::from_mut(argument),
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens one, for faults of user mode only.
///
/// # Errors
/// ENOSYS: the kernel has none. EPERM: not permitted.
pub fn open(flags: i32) -> io::Result<OwnedFd> {
    let flags = flags as u64 | USER_MODE_ONLY;
    // SAFETY: no memory involved.
    let uffd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if uffd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor of ours, from the call above.
    Ok(unsafe { OwnedFd::from_raw_fd(uffd as i32) })
}

/// Agrees on features; the first thing that is done with a userfaultfd.
///
/// # Errors
/// EINVAL: the kernel lacks one of them.
pub fn enable(uffd: &OwnedFd, features: u64) -> io::Result<()> {
    ioctl(uffd, UFFDIO_API, &mut [u64::from(UFFD_API), features, 0])
}

/// Registers a range of bytes.
///
/// # Errors
/// EBUSY: another userfaultfd is registered. EINVAL, ENOMEM: it is no such mapping (any
/// more). ESRCH: the address space is gone (exec, exit).
pub fn register(uffd: &OwnedFd, start: u64, end: u64, mode: u64) -> io::Result<()> {
    ioctl(uffd, UFFDIO_REGISTER, &mut [start, end - start, mode, 0])
}

/// Registers a range for write-protection, without any protection to begin with. A registration
/// that mremap(2) dropped can leave its marks in the page tables (where mappings merge), and a page
/// that was written to since then would still appear protected: they are lifted.
///
/// # Errors
/// As [`register`] and [`unprotect`].
pub fn begin(uffd: &OwnedFd, start: u64, end: u64) -> io::Result<()> {
    register(uffd, start, end, MODE_WP)?;
    unprotect(uffd, start, end)
}

/// Ends the registration; waiting threads go on.
///
/// # Errors
/// As [`register`].
pub fn unregister(uffd: &OwnedFd, start: u64, end: u64) -> io::Result<()> {
    ioctl(uffd, UFFDIO_UNREGISTER, &mut [start, end - start])
}

/// Lifts the write-protection of a registered range, whatever set it.
///
/// # Errors
/// As [`register`]; EAGAIN: the mappings are being changed.
pub fn unprotect(uffd: &OwnedFd, start: u64, end: u64) -> io::Result<()> {
    ioctl(uffd, UFFDIO_WRITEPROTECT, &mut [start, end - start, 0])
}

/// Whether mappings of this address space are being changed: an event reports it now or soon.
pub fn is_changing(uffd: &OwnedFd, address: u64) -> bool {
    // Where nothing is protected against writes, lifting it does nothing; but the kernel checks
    // for changes in progress before it searches the mapping.
    let lifted = unprotect(uffd, address, address + PAGE_BYTES);
    lifted.is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN))
}

/// Lets threads go on that wait for pages of a range.
///
/// # Errors
/// The address space is gone.
pub fn wake(uffd: &OwnedFd, start: u64, bytes: u64) -> io::Result<()> {
    ioctl(uffd, UFFDIO_WAKE, &mut [start, bytes])
}

/// Fills missing pages, write-protected if requested; threads that wait for them continue.
/// Returns the bytes that were put.
///
/// # Errors
/// EEXIST: there is one already. EAGAIN: the mappings are being changed, after this many bytes.
/// ENOENT: no registered mapping has all of it (any more). ESRCH: the address space is gone.
pub fn copy(
    uffd: &OwnedFd,
    to: u64,
    from: &[u8],
    protected: bool,
) -> Result<u64, (u64, io::Error)> {
    let mode = if protected { 2 } else { 0 };
    let mut argument = [
        to,
        from.as_ptr().addr() as u64,
        from.len() as u64,
        mode,
        0u64,
    ];
    let result = ioctl(uffd, UFFDIO_COPY, &mut argument);
    finish(result, argument[4])
}

/// Puts the page of zeros where none is.
///
/// # Errors
/// As [`copy`].
pub fn zero(uffd: &OwnedFd, to: u64) -> Result<u64, (u64, io::Error)> {
    let mut argument = [to, PAGE_BYTES, 0, 0u64];
    let result = ioctl(uffd, UFFDIO_ZEROPAGE, &mut argument);
    finish(result, argument[3])
}

fn finish(result: io::Result<()>, done: u64) -> Result<u64, (u64, io::Error)> {
    // The kernel returns how far it came, or a negative error number.
    let done_bytes = if (done as i64) < 0 { 0 } else { done };
    match result {
        Ok(()) => Ok(done_bytes),
        Err(error) => Err((done_bytes, error)),
    }
}
