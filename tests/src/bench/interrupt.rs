//! Ctrl-C in a benchmark or a run of tests: nothing that it started outlives it, not even what left its process
//! group.

use std::io;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use dormouse_system::{Root, proc};

use crate::processes::with_descendants;

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
        end_descendants();
        // The last measurement's contents.
        let _ = folder.map(std::fs::remove_dir_all);
        std::process::exit(EXIT_CODE);
    });
    Ok(())
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
