//! Reading and writing the memory of another process, without its help.

use std::io;
use std::os::unix::fs::FileExt;

/// Reads memory; returns how many bytes could be read before the first hole.
///
/// # Errors
/// Not even the first page is readable, or we may not.
pub fn read(pid: i32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // One piece for each page: the call stops at the first piece that it cannot read whole.
    let end = address + into.len() as u64;
    let mut total = 0usize;
    let mut at = address;
    let mut local_at = local;
    while at < end {
        let mut pieces = Vec::with_capacity(64);
        let mut bytes = 0usize;
        while at < end && pieces.len() < 64 {
            let next = ((at | 4095) + 1).min(end);
            pieces.push(libc::iovec {
                iov_base: at as *mut libc::c_void,
                iov_len: (next - at) as usize,
            });
            bytes += (next - at) as usize;
            at = next;
        }
        local_at.iov_len = bytes;
        // SAFETY: the local vector lies in `into`; the remote one is only read, by the kernel.
        let got = unsafe {
            libc::process_vm_readv(
                pid,
                &raw const local_at,
                1,
                pieces.as_ptr(),
                pieces.len() as libc::c_ulong,
                0,
            )
        };
        if got < 0 {
            if total > 0 {
                return Ok(total);
            }
            return Err(io::Error::last_os_error());
        }
        total += got as usize;
        if (got as usize) < bytes {
            return Ok(total);
        }
        local_at.iov_base = local_at.iov_base.wrapping_byte_add(bytes);
    }
    Ok(total)
}

/// Reads exactly `N` bytes.
///
/// # Errors
/// They are not all readable.
pub fn read_array<const N: usize>(pid: i32, address: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0u8; N];
    if read(pid, address, &mut bytes)? < N {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    Ok(bytes)
}

/// Writes memory of a process that we trace, also where it may only read it (the kernel makes a
/// private copy of the page, as when a debugger sets a breakpoint).
///
/// # Errors
/// It is not mapped, is a shared mapping that may not be written, or we may not.
pub fn write(pid: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/{pid}/mem"))?;
    file.write_all_at(bytes, address)
}
