//! Reads memory of the kernel by a BPF program (`bpf/read_kernel.bpf.c`), which a test run executes once for
//! each piece.
//!
//! It needs CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and a kernel that is not locked down for
//! confidentiality.

use std::io;
use std::sync::{Mutex, PoisonError};

use dormouse_bpf::libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};

use crate::bpf;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/read_kernel.o"));
/// Most bytes of a piece; one page.
pub const PIECE_BYTES: usize = 4096;

/// Loaded at the first use.
fn with<T>(use_it: impl FnOnce(&Object) -> io::Result<T>) -> io::Result<T> {
    static LOADED: Mutex<Option<Object>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if loaded.is_none() {
        *loaded = Some(bpf::load(OBJECT)?);
    }
    loaded
        .as_ref()
        .map_or_else(|| Err(io::Error::from_raw_os_error(libc::ENOSYS)), use_it)
}

/// The map is of one page: it is used by one thread at a time.
fn run(object: &Object, address: u64, into: &mut [u8]) -> io::Result<()> {
    let absent = || io::Error::from_raw_os_error(libc::ENOSYS);
    let program = object.progs_mut().next().ok_or_else(absent)?;
    let map = object.maps().next().ok_or_else(absent)?;
    let mut arguments = [address, into.len() as u64].map(u64::to_ne_bytes).concat();
    let input = ProgramInput {
        context_in: Some(&mut arguments),
        ..ProgramInput::default()
    };
    let output = program.test_run(input).map_err(bpf::failed("run BPF"))?;
    let result = output.return_value as i32;
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    let piece = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let piece = piece
        .map_err(bpf::failed("read a BPF map"))?
        .ok_or_else(absent)?;
    into.copy_from_slice(&piece[..into.len()]);
    Ok(())
}

/// Copies memory of the kernel, at most [`PIECE_BYTES`].
///
/// # Errors
/// There is none at that address, or it may not be read.
pub fn read(address: u64, into: &mut [u8]) -> io::Result<()> {
    if address == 0 || into.len() > PIECE_BYTES {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    with(|object| run(object, address, into))
}

/// A word of the kernel's memory.
///
/// # Errors
/// As [`read`].
pub fn word(address: u64) -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    read(address, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The address of the calling thread's `struct task_struct`.
///
/// # Errors
/// The program cannot be loaded.
pub fn current_task() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    with(|object| run(object, 0, &mut bytes))?;
    Ok(u64::from_ne_bytes(bytes))
}
