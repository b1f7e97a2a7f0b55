//! What the benchmarks share: their journal, their rows, their results, and the page that shows them.

pub mod journal;
pub mod outcome;
pub mod page;
pub mod rows;

use std::fs;
use std::process::Command;

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
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let cpu = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    json!({"cpu": cpu, "cores": cores, "kernel": read("/proc/sys/kernel/osrelease").trim()})
}

/// Three digits that count.
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
