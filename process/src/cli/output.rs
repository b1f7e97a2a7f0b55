//! Output of the verbs.

use std::io::{self, Write};

use bytesize::ByteSize;
use serde::Serialize;

use super::Failure;
use crate::persist::Report;

/// Writes a line to standard output; a closed pipe ends the program.
pub fn line(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result
            .map_err(|error| Failure::failed(format!("cannot write to standard output: {error}"))),
    }
}

/// Writes one JSON object on one line.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value);
    line(&text.map_err(|error| Failure::failed(error.to_string()))?)
}

/// Bytes in readable units.
pub fn bytes(count: u64) -> String {
    ByteSize(count).display().iec().to_string()
}

/// Nanoseconds in readable units.
pub fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.1} ms", nanoseconds as f64 / 1e6)
}

/// How long ago a moment was, in readable units.
pub fn ago(seconds_since_1970: f64) -> String {
    let now = crate::store::file::now_ns() as f64 / 1e9;
    match (now - seconds_since_1970).max(0.0) {
        seconds if seconds < 100.0 => format!("{seconds:.1} s ago"),
        seconds if seconds < 6000.0 => format!("{:.0} min ago", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.0} h ago", seconds / 3600.0),
        seconds => format!("{:.0} days ago", seconds / 86400.0),
    }
}

/// A persist in two lines: its total and its steps.
pub fn report(report: &Report) -> String {
    let rehearsal = match report.rehearsal_ns {
        0 => String::new(),
        time => format!(", rehearsal {}", milliseconds(time)),
    };
    format!(
        "epoch {} committed after {}: {} written, {} processes, {} threads\n  \
         freeze {}, capture {}, scan {}, copy {}, files {}, commit {}{rehearsal}",
        report.epoch,
        milliseconds(report.total_ns),
        bytes(report.stored_bytes),
        report.processes,
        report.threads,
        milliseconds(report.freeze_ns),
        milliseconds(report.capture_ns),
        milliseconds(report.scan_ns.max(report.look_ns)), // until 0.3
        milliseconds(report.copy_ns),
        milliseconds(report.files_ns),
        milliseconds(report.commit_ns),
    )
}
