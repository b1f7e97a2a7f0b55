//! Faults of a restore, for tests: the copy is made different in one thing before it is observed.

use crate::memory;
use crate::ptrace::FrozenTree;
use crate::ptrace::sys;

/// Names the fault; not set: none.
pub const VARIABLE: &str = "DORMOUSE_REHEARSAL_FAULT";

/// Makes the copy different if the environment says so.
///
/// # Errors
/// There is no such fault, or it cannot be made.
pub fn inject(copy: &mut FrozenTree) -> Result<(), String> {
    let Ok(fault) = std::env::var(VARIABLE) else {
        return Ok(());
    };
    make(&fault, copy).map_err(|error| format!("{VARIABLE}={fault}: {error}"))
}

fn make(fault: &str, copy: &mut FrozenTree) -> Result<(), String> {
    /// Of the area of vector registers: the first of them, and the part of its header that says which are used.
    const XMM: usize = 160;
    const HEADER: usize = 512;
    let words = |error: std::io::Error| error.to_string();
    let living = copy.processes.iter_mut().find(|p| !p.threads.is_empty());
    let process = living.ok_or("there is no process")?;
    let (pid, tid) = (process.pid, process.threads[0].tid);
    let mut call = |number, arguments| {
        let result = process.syscall(0, number, arguments);
        let result = result.map_err(|error| error.to_string())?.map_err(words);
        process.end_injections();
        result
    };
    let stack = sys::registers(tid).map_err(words)?.rsp;
    let (page, free) = (stack & !4095, stack - 1024);
    let lowest = || -> Result<u64, String> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(words)?;
        let number = |name: std::ffi::OsString| name.to_str()?.parse::<u64>().ok();
        let numbers = entries
            .flatten()
            .filter_map(|entry| number(entry.file_name()));
        let lowest = numbers.filter(|number| *number > 2).min();
        lowest.ok_or("there is no descriptor above 2".to_owned())
    };
    match fault {
        "register" => {
            let mut registers = sys::registers(tid).map_err(words)?;
            registers.r12 ^= 1;
            sys::set_registers(tid, &registers).map_err(words)
        }
        "vector-register" => {
            let mut area = sys::xstate(tid).map_err(words)?;
            area[XMM] ^= 1;
            area[HEADER] |= 2;
            sys::set_xstate(tid, &area).map_err(words)
        }
        "signal-mask" => {
            let mask = sys::signal_mask(tid).map_err(words)?;
            sys::set_signal_mask(tid, mask ^ 1 << (libc::SIGUSR1 - 1)).map_err(words)
        }
        "memory" => {
            let [byte] = memory::read_array::<1>(pid, stack).map_err(words)?;
            memory::write(pid, stack, &[!byte]).map_err(words)
        }
        "mapping" => {
            let read_only = libc::PROT_READ as u64;
            call(libc::SYS_mprotect, [page, 4096, read_only, 0, 0, 0]).map(drop)
        }
        "advice" => {
            let advice = libc::MADV_DONTFORK as u64;
            call(libc::SYS_madvise, [page, 4096, advice, 0, 0, 0]).map(drop)
        }
        "descriptor" => call(libc::SYS_close, [lowest()?, 0, 0, 0, 0, 0]).map(drop),
        "offset" => {
            let current = libc::SEEK_CUR as u64;
            call(libc::SYS_lseek, [lowest()?, 1, current, 0, 0, 0]).map(drop)
        }
        "lock" => {
            let unlock = libc::LOCK_UN as u64;
            call(libc::SYS_flock, [lowest()?, unlock, 0, 0, 0, 0]).map(drop)
        }
        "description" => {
            // Another description of the same file, in the place of a shared one.
            let path = format!("/proc/{pid}/fd/{}\0", lowest()?);
            memory::write(pid, free, path.as_bytes()).map_err(words)?;
            let flags = libc::O_RDWR as u64;
            let opened = call(libc::SYS_open, [free, flags, 0, 0, 0, 0])?;
            call(libc::SYS_dup2, [opened, lowest()?, 0, 0, 0, 0])?;
            call(libc::SYS_close, [opened, 0, 0, 0, 0, 0]).map(drop)
        }
        "directory" => {
            memory::write(pid, free, b"/proc\0").map_err(words)?;
            call(libc::SYS_chdir, [free, 0, 0, 0, 0, 0]).map(drop)
        }
        "limit" => {
            let limit = [7u64.to_ne_bytes(), 7u64.to_ne_bytes()].concat();
            memory::write(pid, free, &limit).map_err(words)?;
            let resource = u64::from(libc::RLIMIT_CORE);
            call(libc::SYS_setrlimit, [resource, free, 0, 0, 0, 0]).map(drop)
        }
        // SAFETY: no memory involved; nothing of ours runs at an exit.
        "end" => unsafe { libc::_exit(1) },
        "restore" => Err("it fails, as was asked for".to_owned()),
        _ => Err("there is no such fault".to_owned()),
    }
}
