//! Init of a machine with one job in its initrd: answers after each step, and resets the machine,
//! which ends the emulator.

use std::fs::{self, File};
use std::io::Write;

use dormouse_guest::protocol::frame::encode;
use rustix::system::{RebootCommand, reboot};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Doing, GuestError};
use crate::system::serial::{CONTROL, open_raw};
use crate::system::{console, mounts};

/// Does a job of this name; never returns.
pub fn run(name: &str, serve: impl FnOnce() -> Result<(), GuestError>) -> ! {
    if let Err(error) = serve() {
        console::say(&format!("{name}: {error}"));
    }
    // The emulator's -no-reboot ends it here.
    let _ = reboot(RebootCommand::Restart);
    loop {
        std::thread::park();
    }
}

/// Mounts what every job needs, and `more` (source, target, type); the line to the lab, and the
/// steps that the initrd holds at `job`.
pub fn begin<Step: DeserializeOwned>(
    job: &str,
    more: &[(&str, &str, &str)],
) -> Result<(File, Vec<Step>), GuestError> {
    let always = [
        ("devtmpfs", "/dev", "devtmpfs"),
        ("proc", "/proc", "proc"),
        ("sysfs", "/sys", "sysfs"),
    ];
    for (source, target, kind) in always.iter().chain(more) {
        mounts::mount_at(source, target, kind, "")?;
    }
    let voice = open_raw(CONTROL)?;
    let text = fs::read(job).doing(format!("read {job}"))?;
    let steps = serde_json::from_slice(&text)
        .map_err(|error| GuestError::Other(format!("{job}: {error}")))?;
    Ok((voice, steps))
}

/// Answers, and waits until that is out: the next step may stop the line, and the last one the
/// machine.
pub fn say(voice: &mut File, answer: &impl Serialize) -> Result<(), GuestError> {
    voice.write_all(&encode(answer)).doing("answer the lab")?;
    rustix::termios::tcdrain(&*voice).doing("answer the lab")
}
