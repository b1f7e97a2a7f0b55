//! The kernel's log, and which of its lines report a fault of the kernel.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use crate::error::{Doing, GuestError};

/// In a line that begins a report: of lockdep, KASAN, UBSAN, KCSAN, a failed assertion, a crash, a
/// task that hangs, a failed KUnit test, or runtime PM that was enabled once too often.
const BEGINNINGS: [&str; 7] = [
    "BUG: ",
    "WARNING: ",
    "INFO: ",
    "UBSAN: ",
    "Oops: ",
    "not ok ",
    "Unbalanced ",
];
/// Lines that a report has at most here; the console has all.
const LINES: usize = 60;
/// Reports that are passed on: the first ones explain the others.
const MAX_REPORTS: usize = 5;

/// The kernel's log, from the boot on.
pub struct KernelLog {
    file: File,
    reports: Reports,
}

impl KernelLog {
    pub fn open() -> Result<KernelLog, GuestError> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .doing("open /dev/kmsg")?;
        Ok(KernelLog {
            file,
            reports: Reports::default(),
        })
    }

    /// The messages since the last call, without their heads.
    pub fn lines(&mut self) -> Result<Vec<String>, GuestError> {
        let mut lines = Vec::new();
        let mut record = [0; 8192];
        loop {
            match self.file.read(&mut record) {
                Ok(0) => return Ok(lines),
                Ok(count) => {
                    let text = String::from_utf8_lossy(&record[..count]);
                    // Continuation lines (" SUBSYSTEM=…") are about the same message.
                    let first = text.lines().next().unwrap_or_default();
                    if let Some((_, words)) = first.split_once(';') {
                        self.reports.receive(words);
                        lines.push(words.to_owned());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(lines),
                // Messages were overwritten before they were read; the next read goes on.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error).doing("read the kernel's log"),
            }
        }
    }

    /// The reports that began since the last call, each with the lines that followed it.
    pub fn take_reports(&mut self) -> Result<Vec<String>, GuestError> {
        self.lines()?;
        Ok(self.reports.take())
    }
}

#[derive(Default)]
struct Reports {
    begun: usize,
    /// Lines of each.
    open: Vec<Vec<String>>,
}

impl Reports {
    fn receive(&mut self, line: &str) {
        if let Some(report) = self.open.last_mut().filter(|report| report.len() < LINES) {
            report.push(line.to_owned());
        } else if self.begun < MAX_REPORTS && BEGINNINGS.iter().any(|begin| line.contains(begin)) {
            self.begun += 1;
            self.open.push(vec![line.to_owned()]);
        }
    }

    fn take(&mut self) -> Vec<String> {
        let reports = self.open.drain(..);
        reports.map(|lines| lines.join("\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_told_once_with_what_follows() {
        let mut reports = Reports::default();
        reports.receive("PM: suspend entry (s2idle)");
        assert!(reports.take().is_empty());
        reports.receive("WARNING: possible circular locking dependency detected");
        reports.receive("BUG: KASAN: in the same report");
        let taken = reports.take();
        assert_eq!(taken.len(), 1);
        assert!(taken[0].ends_with("in the same report"), "{taken:?}");
        reports.receive("    not ok 3 pm_graph_falls");
        assert_eq!(reports.take(), ["    not ok 3 pm_graph_falls"]);
    }

    #[test]
    fn what_follows_a_long_report_may_be_another() {
        let mut reports = Reports::default();
        for _ in 0..=LINES {
            reports.receive("UBSAN: shift-out-of-bounds in x.c:1");
        }
        assert_eq!(reports.take().len(), 2);
    }
}
