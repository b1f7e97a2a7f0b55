//! Runs of BPF iterators (the kernel's `Documentation/bpf/bpf_iterators.rst`).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys::{bpf_iter_link_info, bpf_link_create_opts};

/// The descriptor that a call of libbpf returned.
fn owned(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Runs an iterator program once, over what `what` says; what it writes is read from the file.
///
/// # Errors
/// The kernel refuses: there is nothing of that kind any more, or the program is no iterator.
pub fn run(program: BorrowedFd<'_>, mut what: bpf_iter_link_info) -> io::Result<File> {
    let options = bpf_link_create_opts {
        sz: size_of::<bpf_link_create_opts>() as _,
        iter_info: &raw mut what,
        iter_info_len: size_of_val(&what) as u32,
        ..Default::default()
    };
    // SAFETY: the options and what they point to live during the call.
    let link = owned(unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            0,
            libbpf_sys::BPF_TRACE_ITER,
            &raw const options,
        )
    })?;
    // SAFETY: no memory involved.
    let iterator = owned(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) })?;
    Ok(File::from(iterator))
}
