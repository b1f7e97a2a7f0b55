//! What a machine is doing that says nothing any more: its kernel is asked for its tasks by the
//! system request key on the console, the emulator for the registers of its processors.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::emulator::monitor::Monitor;
use crate::emulator::qmp::EXAMINATION;
use crate::error::{Doing, LabError};

/// The console's name in the emulator.
pub const CONSOLE: &str = "console";

/// `Documentation/admin-guide/sysrq.rst`: everything to the console, the processors' stacks, blocked
/// tasks, all tasks.
const REQUESTS: &[u8] = b"9lwt";
/// A request ends when nothing was printed for so long.
const PRINTED: Duration = Duration::from_secs(5);

/// The keyboard of a machine's console, which nobody uses as long as all is well.
pub struct Keyboard {
    console: UnixStream,
    printed: Receiver<()>,
}

impl Keyboard {
    /// Reads the console and drops what comes: the emulator writes the log, and waits while nobody
    /// reads here.
    ///
    /// # Errors
    /// The line cannot be shared.
    pub fn new(console: UnixStream) -> Result<Keyboard, LabError> {
        let mut output = console.try_clone().doing("share the console")?;
        // One signal is enough: that something came, not how much.
        let (sender, printed) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let mut bytes = [0; 1 << 16];
            while let Ok(1..) = output.read(&mut bytes) {
                let _ = sender.try_send(());
            }
        });
        Ok(Keyboard { console, printed })
    }

    /// Writes the registers into `log` and lets the kernel print its tasks on the console. What
    /// fails is written there, too: the caller has an error to report already.
    pub fn examine(&mut self, monitor: &Monitor, log: &Path) {
        let mut text = String::new();
        if let Err(error) = self.ask(monitor, &mut text) {
            text += &format!("{error}\n");
        }
        let _ = fs::write(log, text);
    }

    fn ask(&mut self, monitor: &Monitor, text: &mut String) -> Result<(), LabError> {
        for question in EXAMINATION {
            let answer = monitor.ask(question)?;
            *text += &format!("(qemu) {question}\n{}\n", answer.trim_end());
        }
        for request in REQUESTS {
            while self.printed.try_recv().is_ok() {}
            monitor.execute(&qapi::qmp::chardev_send_break { id: CONSOLE.into() })?;
            self.console
                .write_all(&[*request])
                .doing("write to the console")?;
            while self.printed.recv_timeout(PRINTED).is_ok() {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::process::Command;

    use super::*;
    use crate::child;
    use crate::emulator::qemu::PROGRAM;

    #[test]
    fn a_machine_that_stands_still_shows_its_registers() {
        let folder = tempfile::tempdir().unwrap();
        let (console, console_end) = UnixStream::pair().unwrap();
        let (monitor, monitor_end) = UnixStream::pair().unwrap();
        let ends: [OwnedFd; 2] = [console_end.into(), monitor_end.into()];
        let mut command = Command::new(PROGRAM);
        command
            .args(["-nodefaults", "-display", "none", "-accel", "tcg", "-S"])
            .arg("-chardev")
            .arg(format!("socket,id={CONSOLE},fd={}", ends[0].as_raw_fd()))
            .arg("-chardev")
            .arg(format!("socket,id=monitor,fd={}", ends[1].as_raw_fd()))
            .args(["-mon", "chardev=monitor,mode=control"])
            .args(["-serial", &format!("chardev:{CONSOLE}")]);
        child::keep_open(&mut command, ends);
        let mut emulator = child::spawn(&mut command).unwrap();
        let log = folder.path().join("stall.log");
        let monitor = Monitor::attend(monitor, BTreeMap::new());
        // Until it has greeted.
        while monitor.execute(&qapi::qmp::stop {}).is_err() {
            thread::yield_now();
        }
        Keyboard::new(console).unwrap().examine(&monitor, &log);
        emulator.kill().unwrap();
        emulator.wait().unwrap();
        let log = fs::read_to_string(log).unwrap();
        assert!(log.contains("(qemu) info registers -a"), "{log}");
        // The processor is at its reset vector.
        assert!(log.contains("EIP=0000fff0"), "{log}");
        assert!(!log.contains("does not answer"), "{log}");
    }
}
