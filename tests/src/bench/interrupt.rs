//! Ctrl-C in a benchmark or a run of tests: nothing that it started outlives it, not even what left its process
//! group.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use dormouse_system::{Root, proc};

use crate::processes::with_descendants;

/// In the environment of this program after an interrupt: the folder to remove, or nothing.
const CLEAN_UP: &str = "DORMOUSE_INTERRUPTED";
/// As a shell says it of SIGINT.
const EXIT_CODE: i32 = 130;

/// What its own parent leaves behind becomes a child of this process, and can still be found.
///
/// # Errors
/// The kernel refuses it.
pub fn adopts_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// What the same command does after an interrupt.
pub const GOES_ON: &str = "goes on from here";
/// The same, of a command that keeps no results.
pub const BEGINS_ANEW: &str = "begins anew";

/// From now on SIGINT, SIGTERM and SIGHUP end all descendants, remove the folder, if one is given, say what the same
/// command does `next`, and end this process.
///
/// # Errors
/// The signals cannot be handled.
pub fn leaves_nothing(folder: Option<PathBuf>, next: &'static str) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_none() {
            return;
        }
        eprintln!("\ninterrupted; the same command {next}");
        // Another thread may be about to start a program. None is left after this, and the children stay this process'.
        let mut anew = Command::new("/proc/self/exe");
        anew.env(CLEAN_UP, folder.unwrap_or_default());
        eprintln!("{}", anew.exec());
        std::process::exit(EXIT_CODE);
    });
    Ok(())
}

/// To be called first in a program that calls [`leaves_nothing`]: after an interrupt it is executed anew, without its
/// threads, and this does the rest and ends the process.
pub fn clean_up_if_interrupted() {
    let Some(folder) = std::env::var_os(CLEAN_UP) else {
        return;
    };
    end_descendants();
    if !folder.is_empty() {
        // The last measurement's contents.
        let _ = std::fs::remove_dir_all(folder);
    }
    std::process::exit(EXIT_CODE);
}

/// Until only those are left that have ended.
fn end_descendants() {
    let root = Root::host();
    let own = getpid().as_raw_nonzero().get();
    loop {
        let mut live = 0;
        for pid in with_descendants(vec![own]).into_iter().skip(1) {
            let ended = proc::stat(&root, pid).map_or(true, |stat| stat.state == 'Z');
            if let (false, Some(pid)) = (ended, Pid::from_raw(pid)) {
                live += 1;
                // It may have ended by now.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if live == 0 {
            return;
        }
        std::thread::yield_now();
    }
}
