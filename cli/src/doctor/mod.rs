//! `dormouse doctor`: what this machine lacks, for each capability, and how to get it.
//!
//! Probes (thin, on a root path so that tests use a fake tree) fill plain facts; pure functions
//! turn facts into checks; this file groups and prints them.

mod devices;
mod kernel;
mod lab;
mod process;
mod programs;
mod sleep;
mod snapshot;

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use dormouse_report::terminal::Style;
use dormouse_system::Root;
use serde::Serialize;

use crate::arguments::{DoctorArguments, Part};
use crate::{exit, output};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Status {
    #[serde(rename = "ok")]
    Ok,
    /// It works, but not as well as it could.
    #[serde(rename = "warn")]
    Warn,
    /// The part does not work without it.
    #[serde(rename = "missing")]
    Missing,
    /// Cannot be found out, or does not matter on this machine.
    #[serde(rename = "n/a")]
    NotApplicable,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable, for scripts.
    pub id: &'static str,
    pub status: Status,
    pub found: String,
    /// What to do; empty where there is nothing to do.
    pub todo: String,
}

impl Check {
    fn ok(id: &'static str, found: impl Into<String>) -> Check {
        Check {
            id,
            status: Status::Ok,
            found: found.into(),
            todo: String::new(),
        }
    }

    fn not_applicable(id: &'static str, found: impl Into<String>) -> Check {
        Check {
            id,
            status: Status::NotApplicable,
            found: found.into(),
            todo: String::new(),
        }
    }

    fn warn(id: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Check {
        Check {
            id,
            status: Status::Warn,
            found: found.into(),
            todo: todo.into(),
        }
    }

    fn missing(id: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Check {
        Check {
            id,
            status: Status::Missing,
            found: found.into(),
            todo: todo.into(),
        }
    }
}

/// The checks of one part.
#[derive(Clone, Debug, Serialize)]
struct PartReport {
    part: Part,
    /// Nothing required is missing.
    ready: bool,
    checks: Vec<Check>,
}

impl PartReport {
    fn new(part: Part, checks: Vec<Check>) -> PartReport {
        let ready = checks.iter().all(|check| check.status != Status::Missing);
        PartReport {
            part,
            ready,
            checks,
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    ready: bool,
    parts: Vec<PartReport>,
}

/// Runs the verb.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(arguments: &DoctorArguments) -> Result<ExitCode> {
    let root = Root::host();
    let mut parts = Vec::new();
    let mut examine = |part, checks: &dyn Fn() -> Vec<Check>| {
        if arguments.part.is_none_or(|named| named == part) {
            parts.push(PartReport::new(part, checks()));
        }
    };
    examine(Part::Lab, &|| lab::checks(&lab::Facts::probe()));
    examine(Part::Sleep, &|| sleep::checks(&sleep::Facts::probe(&root)));
    examine(Part::Process, &|| {
        process::checks(&process::Facts::probe(&root))
    });
    examine(Part::Kernel, &|| {
        kernel::checks(&kernel::Facts::probe(&root))
    });
    examine(Part::Devices, &|| {
        devices::checks(&devices::Facts::probe(&root))
    });
    // What the kernel offers makes no part ready by itself.
    let is_kernel = |part: &PartReport| matches!(part.part, Part::Kernel | Part::Devices);
    let counts = |part: &PartReport| !is_kernel(part) || arguments.part.is_some();
    let report = Report {
        ready: parts.iter().any(|part| part.ready && counts(part)),
        parts,
    };
    if arguments.json {
        output::json(&report)?;
    } else {
        output::text(&describe(&report, output::style()))?;
    }
    Ok(ExitCode::from(if report.ready { 0 } else { exit::LACKING }))
}

fn describe(report: &Report, style: Style) -> String {
    let mut text = String::new();
    for part in &report.parts {
        let title = match part.part {
            Part::Lab => "lab: the emulated machine",
            Part::Sleep => "sleep: this machine itself, in CXL memory",
            Part::Process => "process: keeping programs across a power loss",
            Part::Kernel => "kernel: features of the running kernel, by capability",
            Part::Devices => "devices: suspend and resume in graph order, by a module",
        };
        let verdict = match part.ready {
            true => output::painted("ready", "32", style),
            false => output::painted("not ready", "31", style),
        };
        let title = output::painted(title, "1", style);
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{title}: {verdict}");
        for check in &part.checks {
            let (word, colour) = match check.status {
                Status::Ok => ("ok", "32"),
                Status::Warn => ("warn", "33"),
                Status::Missing => ("missing", "31"),
                Status::NotApplicable => ("n/a", "2"),
            };
            let word = output::painted(&format!("{word:<8}"), colour, style);
            let _ = writeln!(text, "  {word} {:<18} {}", check.id, check.found);
            if !check.todo.is_empty() {
                let _ = writeln!(text, "  {:<8} {:<18} -> {}", "", "", check.todo);
            }
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_ready_with_warnings_and_not_with_anything_missing() {
        let warned = PartReport::new(Part::Lab, vec![Check::warn("kvm", "none", "nothing")]);
        assert!(warned.ready);
        let missing = vec![
            Check::ok("a", "b"),
            Check::missing("qemu", "no", "install it"),
        ];
        assert!(!PartReport::new(Part::Lab, missing).ready);
    }

    #[test]
    fn what_is_missing_is_printed_with_what_to_do() {
        let checks = vec![Check::missing("qemu", "not found", "apt-get install qemu")];
        let report = Report {
            ready: false,
            parts: vec![PartReport::new(Part::Lab, checks)],
        };
        let style = Style {
            width: 80,
            colour: false,
            unicode: true,
        };
        let text = describe(&report, style);
        assert!(
            text.contains("not ready") && text.contains("-> apt-get install qemu"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn statuses_have_their_documented_names() {
        let names = [
            Status::Ok,
            Status::Warn,
            Status::Missing,
            Status::NotApplicable,
        ]
        .map(|status| serde_json::to_value(status).unwrap());
        assert_eq!(names, ["ok", "warn", "missing", "n/a"]);
    }
}
