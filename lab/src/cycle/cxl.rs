//! Suspend-to-CXL, as `dormouse sleep` does it in the machine.

use dormouse_guest::protocol::{Call, RunResult};
use serde_json::Value;

use super::method::{Moment, SleepMethod};
use crate::cycle::line::{CycleLine, ResumeTimes, SuspendTimes};
use crate::cycle::times::{Down, Up};
use crate::emulator::power::Signal;
use crate::error::LabError;

/// One sleep in CXL memory.
pub(crate) struct CxlSleep {
    arguments: Vec<String>,
    down: Down,
    up: Up,
}

impl CxlSleep {
    /// With these further arguments for `dormouse sleep`.
    pub fn new(arguments: &[String]) -> CxlSleep {
        let home = ["--home", "wait"].map(String::from);
        CxlSleep {
            arguments: home.into_iter().chain(arguments.iter().cloned()).collect(),
            down: Down::default(),
            up: Up::default(),
        }
    }
}

impl SleepMethod for CxlSleep {
    fn request(&self) -> Call {
        Call::Sleep {
            arguments: self.arguments.clone(),
        }
    }

    fn reached(&mut self, moment: Moment, at_ns: u64) {
        match moment {
            Moment::Requested => self.down.requested_ns = at_ns,
            Moment::Off => self.down.firmware.end_ns = Some(at_ns),
            Moment::PowerOn => self.up.power_on_ns = at_ns,
        }
    }

    fn receive_down(&mut self, signal: &Signal) {
        self.down.receive(signal);
    }

    fn receive_up(&mut self, signal: &Signal) {
        self.up.receive(signal);
    }

    fn is_running(&self) -> bool {
        self.up.thawed_ns.is_some()
    }

    fn suspend_times(&self) -> SuspendTimes {
        self.down.times()
    }

    fn resume_times(&self) -> ResumeTimes {
        self.up.times()
    }

    fn woken(&mut self, answer: Value, line: &mut CycleLine) -> Result<(), LabError> {
        let result = run_result(answer)?;
        if result.status != 0 {
            return Err(LabError::Guest(format!(
                "dormouse sleep ended with {} after waking: {}",
                result.status,
                last_line(&result.stderr)
            )));
        }
        let report = last_object(&result.stdout);
        line.saved_bytes = number(&report, "/saved_bytes");
        line.restored_bytes = number(&report, "/restored_bytes");
        line.pages_failed = number(&report, "/pages_failed");
        line.not_moved = report["not_moved"].as_array().cloned().unwrap_or_default();
        line.home_bytes = number(&report, "/home/home_bytes");
        line.home_s = report.pointer("/home/home_s").and_then(Value::as_f64);
        if let Some(devices_s) = report.pointer("/devices_s").and_then(Value::as_f64) {
            line.suspend_s.devices = Some(devices_s);
        }
        Ok(())
    }

    fn refusal(&self, answer: Value) -> Result<String, LabError> {
        let result = run_result(answer)?;
        if result.status == 0 {
            return Err(LabError::Unexpected(
                "dormouse sleep reports success, but the power was never gone".into(),
            ));
        }
        Ok(refusal(&result))
    }

    fn cold_boot_reason(&self, console: &str) -> Option<String> {
        cold_boot_reason(console)
    }
}

fn run_result(answer: Value) -> Result<RunResult, LabError> {
    serde_json::from_value(answer)
        .map_err(|error| LabError::Unexpected(format!("the answer to sleep: {error}")))
}

/// The reason in `dormouse: cold boot: <name>: <text> (detail …)`, or why there was no image.
pub(crate) fn cold_boot_reason(console: &str) -> Option<String> {
    let said = |text: &str| console.lines().find_map(|line| line.split_once(text));
    let reason = match said("dormouse: cold boot: ") {
        Some((_, reason)) => reason.trim().to_owned(),
        None => format!("no-image: {}", said("dormouse: no sleep image: ")?.1.trim()),
    };
    Some(reason)
}

fn last_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// The reason's name and what it means here, as `dormouse sleep --json` prints them.
fn refusal(result: &RunResult) -> String {
    let report = last_object(&result.stdout);
    match (report["reason"].as_str(), report["error"].as_str()) {
        (Some(reason), Some(error)) => format!("{reason}: {error}"),
        _ => last_line(&result.stderr),
    }
}

/// The last JSON object among the lines, or null.
fn last_object(text: &str) -> Value {
    text.lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok().filter(Value::is_object))
        .or_else(|| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> u64 {
    value
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_cold_boot_is_read_from_the_console() {
        let console =
            "x\n[NOTE ]  dormouse: cold boot: incomplete: power was lost (detail 0x2)\r\n";
        let reason = cold_boot_reason(console).unwrap();
        assert_eq!(reason, "incomplete: power was lost (detail 0x2)");
        assert_eq!(cold_boot_reason("nothing"), None);
    }

    #[test]
    fn the_report_is_found_behind_other_output() {
        assert_eq!(last_object("{\"a\":1}\n{\"a\":2}\n")["a"], 2);
        assert_eq!(last_object("{\n \"a\": 3\n}\n")["a"], 3);
        assert!(last_object("no report").is_null());
    }
}
