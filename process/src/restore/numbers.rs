//! The numbers that a tree wants back must be free.
//!
//! What was killed a moment ago still has its number: it gives its memory back first, and its parent
//! must take its end. Such numbers are waited for; one that a living process has is refused at once.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use super::Error;
use crate::procfs;
use crate::ptrace::Pid;
use crate::state::Tree;

/// How long all that is ending may take. A process with many gigabytes needs seconds.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// A zombie goes when its parent wakes; one that is still there then is forgotten by its parent.
const REAPED_WITHIN: Duration = Duration::from_secs(5);
const BETWEEN_CHECKS: Duration = Duration::from_millis(1);

/// Waits until no process or thread has a number of this tree.
///
/// # Errors
/// [`Error::PidTaken`]: one that does not end has it.
pub fn free(tree: &Tree) -> Result<(), Error> {
    let threads = tree.processes.iter().flat_map(|process| &process.threads);
    let numbers: BTreeSet<Pid> = tree
        .processes
        .iter()
        .map(|process| process.pid)
        .chain(threads.map(|thread| thread.tid))
        .chain(super::plan::leaderless(tree))
        .chain(tree.dead.iter().copied())
        .collect();
    let started = Instant::now();
    for number in numbers {
        wait_until_free(number, started)?;
    }
    Ok(())
}

/// Waits until no process or thread has this number.
///
/// # Errors
/// [`Error::PidTaken`]: one that does not end has it.
pub fn free_number(number: Pid) -> Result<(), Error> {
    wait_until_free(number, Instant::now())
}

/// Whether a process or thread has this number.
pub fn is_there(number: Pid) -> bool {
    fs::exists(format!("/proc/{number}")).unwrap_or(false)
}

/// Whether this error names a number that nobody has. The kernel takes a process out of /proc a moment
/// before its number can be had again (Linux 6.15 and later).
pub fn is_nearly_free(error: &Error) -> bool {
    matches!(error, Error::PidTaken { pid, .. } if !is_there(*pid))
}

fn wait_until_free(number: Pid, started: Instant) -> Result<(), Error> {
    while is_there(number) {
        let limit = match procfs::ending(number) {
            // It may have gone between the two questions.
            procfs::Ending::No if is_there(number) => return Err(taken(number)),
            procfs::Ending::No => return Ok(()),
            procfs::Ending::Dies => ENDS_WITHIN,
            procfs::Ending::Zombie => {
                reap(number);
                REAPED_WITHIN
            }
        };
        if started.elapsed() > limit {
            return Err(taken(number));
        }
        std::thread::sleep(BETWEEN_CHECKS);
    }
    Ok(())
}

/// Takes the end of our own child: one that an earlier try created, and that died with its parent. We have no
/// others before a restore.
fn reap(number: Pid) {
    // SAFETY: no memory involved.
    unsafe { libc::waitpid(number, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
}

/// The error that names the process with a number.
pub fn taken(pid: Pid) -> Error {
    let name = procfs::text(format!("/proc/{pid}/comm")).map_or_else(
        |_| "another process".to_owned(),
        |name| name.trim().to_owned(),
    );
    let name = match (procfs::ending(pid), procfs::stat(pid, pid)) {
        (procfs::Ending::Zombie, Ok(stat)) => {
            format!("{name}, a zombie of process {}", stat.parent)
        }
        _ => name,
    };
    Error::PidTaken { pid, name }
}
