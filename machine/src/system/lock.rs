//! One dormouse at a time: a locked file in /run/dormouse. A sleep asks a running `migrate-back` to stop;
//! another verb gets the PID of the holder.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::time::{Duration, Instant};

use dormouse_system::Root;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::SleepError;

pub const RUN_DIRECTORY: &str = "run/dormouse";
const LOCK: &str = "run/dormouse/lock";
/// A `migrate-back` stops after its current batch and block.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Verbs that may be stopped at any time and called again; the second is the name in 0.1.
const INTERRUPTIBLE: [&str; 2] = ["migrate-back", "home"];

/// Held as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Takes the lock. With `interrupt`, a `migrate-back` that holds it is sent SIGTERM and waited for.
///
/// # Errors
/// [`SleepError::Busy`], or the file cannot be made.
pub fn take(root: &Root, verb: &str, interrupt: bool) -> Result<Lock, SleepError> {
    let path = root.path(LOCK);
    let wrap = |source| SleepError::write("take the lock", root.path(LOCK), "check /run")(source);
    fs::create_dir_all(root.path(RUN_DIRECTORY)).map_err(wrap)?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(wrap)?;
    let deadline = Instant::now() + STOP_TIMEOUT;
    let mut asked = false;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        let _ = file
            .rewind()
            .and_then(|()| file.read_to_string(&mut holder));
        let mut words = holder.split_ascii_whitespace();
        let (name, pid) = (
            words.next().unwrap_or(""),
            words.next().unwrap_or("?").to_owned(),
        );
        if !interrupt || !INTERRUPTIBLE.contains(&name) || Instant::now() >= deadline {
            return Err(SleepError::Busy { pid });
        }
        if !asked && let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
            // It holds the lock, so the pid in it is its own; if it just ended, the next try wins.
            let _ = kill_process(pid, Signal::TERM);
            asked = true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = format!("{verb} {}\n", std::process::id());
    file.rewind()
        .and_then(|()| file.set_len(0))
        .and_then(|()| file.write_all(text.as_bytes()))
        .map_err(wrap)?;
    Ok(Lock { _file: file })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::machine_in_boot;

    #[test]
    fn a_second_holder_gets_the_pid_of_the_first() {
        let (_directory, root) = machine_in_boot("one");
        let held = take(&root, "sleep", true).unwrap();
        let error = take(&root, "migrate-back", false).unwrap_err();
        assert!(error.to_string().contains(&std::process::id().to_string()));
        drop(held);
        assert!(take(&root, "migrate-back", false).is_ok());
    }
}
