//! Shared by the benchmarks: journal, rows, results, and the page that shows them.

pub mod interrupt;
pub mod journal;
pub mod options;
pub mod outcome;
pub mod page;
pub mod rows;

use std::process::Command;

use dormouse_system::{Root, kernel, memory};
use serde_json::{Value, json};

/// The first line that a command prints; nothing where it cannot be run.
pub fn first_line(command: &mut Command) -> String {
    let said = command.output().map(|output| output.stdout);
    let said = said.unwrap_or_default();
    let text = String::from_utf8_lossy(&said);
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Today.
pub fn date() -> String {
    first_line(Command::new("date").arg("--iso-8601"))
}

/// Processor, cores and kernel of this machine.
pub fn machine() -> Value {
    let host = Root::host();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    json!({"cpu": kernel::processor(&host), "cores": cores, "kernel": kernel::release(&host)})
}

/// All memory of this machine, in bytes; 0 where it cannot be read.
pub fn memory_bytes() -> u64 {
    let meminfo = memory::read(&Root::host());
    meminfo.get("MemTotal").copied().unwrap_or(0)
}

/// A number with three significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 1.0 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 0.1234, 1.234, 12.34, 123.4].map(short);
        assert_eq!(shown, ["0", "0.123", "1.23", "12.3", "123"]);
    }
}
