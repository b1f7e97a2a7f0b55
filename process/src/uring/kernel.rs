// SPDX-License-Identifier: MIT OR GPL-2.0-only
//! Reads memory of the kernel by a BPF program, which a test run executes once for each piece.
//!
//! It needs CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and a kernel that is not locked down for
//! confidentiality. It writes nothing but its own map.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const MMAPABLE: u32 = 1 << 10;
/// Functions of the kernel by which this program is restricted to compatible licences.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";
const GET_CURRENT_TASK: u64 = 35;
const PROBE_READ_KERNEL: u64 = 113;
/// Most bytes of a piece; one page, which the map is.
pub const PIECE_BYTES: usize = 4096;

/// The program, loaded, and the map that it writes.
struct Reader {
    program: OwnedFd,
    piece: *const u8,
    _map: OwnedFd,
}

// SAFETY: the page is there for as long as this process, and is read under a lock.
unsafe impl Send for Reader {}

/// The start of `union bpf_attr` for the commands that are used here.
fn bpf(command: libc::c_int, attributes: &mut [u64]) -> io::Result<libc::c_long> {
    // SAFETY: the attributes live, and hold addresses of what lives.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            attributes.len() * 8,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn made(number: libc::c_long) -> OwnedFd {
    // SAFETY: the descriptor is new and ours.
    unsafe { OwnedFd::from_raw_fd(number as i32) }
}

/// An instruction: operation, registers, offset, immediate value.
const fn instruction(operation: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    operation as u64
        | (to as u64) << 8
        | (from as u64) << 12
        | (offset as u16 as u64) << 16
        | (value as u32 as u64) << 32
}

/// `read(address, bytes)`: copies a piece into the map; of address 0, the address of the running task.
fn code(map: i32) -> [u64; 15] {
    const LOAD_WORD: u8 = 0x79;
    const STORE_WORD: u8 = 0x7b;
    const LOAD_IMMEDIATE: u8 = 0x18;
    const MAP_VALUE: u8 = 2;
    const MOVE: u8 = 0xbf;
    const MOVE_VALUE: u8 = 0xb7;
    const IF_ABOVE: u8 = 0x25;
    const IF_EQUAL: u8 = 0x15;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    let failed = -libc::EINVAL;
    [
        instruction(LOAD_WORD, 3, 1, 0, 0),
        instruction(LOAD_WORD, 2, 1, 8, 0),
        instruction(LOAD_IMMEDIATE, 6, MAP_VALUE, 0, map),
        instruction(0, 0, 0, 0, 0),
        instruction(IF_EQUAL, 3, 0, 6, 0),
        instruction(MOVE_VALUE, 0, 0, 0, failed),
        instruction(IF_ABOVE, 2, 0, 3, PIECE_BYTES as i32),
        instruction(MOVE, 1, 6, 0, 0),
        instruction(CALL, 0, 0, 0, PROBE_READ_KERNEL as i32),
        instruction(EXIT, 0, 0, 0, 0),
        instruction(EXIT, 0, 0, 0, 0),
        instruction(CALL, 0, 0, 0, GET_CURRENT_TASK as i32),
        instruction(STORE_WORD, 6, 0, 0, 0),
        instruction(MOVE_VALUE, 0, 0, 0, 0),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

impl Reader {
    fn load() -> io::Result<Self> {
        // Type, bytes of a key, bytes of a value, entries, flags.
        let mut map = [0u64; 4];
        map[0] = u64::from(MAP_TYPE_ARRAY) | 4 << 32;
        map[1] = PIECE_BYTES as u64 | 1 << 32;
        map[2] = u64::from(MMAPABLE);
        let map = made(bpf(MAP_CREATE, &mut map)?);
        let code = code(map.as_raw_fd());
        // Type, number of instructions, their address, licence.
        let mut program = [0u64; 8];
        program[0] = u64::from(PROG_TYPE_RAW_TRACEPOINT) | (code.len() as u64) << 32;
        program[1] = code.as_ptr() as u64;
        program[2] = LICENSE.as_ptr() as u64;
        let program = made(bpf(PROG_LOAD, &mut program)?);
        // SAFETY: a new mapping, of a page that the map has.
        let piece = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PIECE_BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if piece == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let piece = piece.cast_const().cast();
        Ok(Self {
            program,
            piece,
            _map: map,
        })
    }

    fn run(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let arguments = [address, into.len() as u64];
        // Descriptor, result, lengths and addresses of data, repeat and duration, then the lengths and
        // addresses of the arguments.
        let mut run = [0u64; 8];
        run[0] = self.program.as_raw_fd() as u64;
        run[5] = size_of_val(&arguments) as u64;
        run[6] = arguments.as_ptr() as u64;
        bpf(PROG_TEST_RUN, &mut run)?;
        let result = (run[0] >> 32) as u32 as i32;
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        // SAFETY: a piece is no longer than the page.
        unsafe { ptr::copy_nonoverlapping(self.piece, into.as_mut_ptr(), into.len()) };
        Ok(())
    }
}

fn with<T>(use_it: impl FnOnce(&Reader) -> io::Result<T>) -> io::Result<T> {
    static LOADED: OnceLock<Mutex<Option<Reader>>> = OnceLock::new();
    let loaded = LOADED.get_or_init(Mutex::default);
    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
    if loaded.is_none() {
        *loaded = Some(Reader::load()?);
    }
    loaded
        .as_ref()
        .map_or_else(|| Err(io::Error::from_raw_os_error(libc::ENOSYS)), use_it)
}

/// Copies memory of the kernel, at most [`PIECE_BYTES`].
///
/// # Errors
/// There is none at that address, or it may not be read.
pub fn read(address: u64, into: &mut [u8]) -> io::Result<()> {
    if address == 0 || into.len() > PIECE_BYTES {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    with(|reader| reader.run(address, into))
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
    with(|reader| reader.run(0, &mut bytes))?;
    Ok(u64::from_ne_bytes(bytes))
}
