//! Errors where the engine reads them: in the file of `--log`, in the format that it asked for, and
//! on standard error.

use std::fs::OpenOptions;
use std::io::Write;

use jiff::Timestamp;
use serde_json::json;

use crate::command_line::CommandLine;

/// Reports why a container is not created. What cannot be written is on standard error all the
/// same.
pub fn report(line: &CommandLine, message: &str) {
    let message = format!("dormouse-oci: {}", message.replace('\n', " "));
    if let Some(path) = &line.log {
        let entry = entry(line.log_json, &message, &now());
        let file = OpenOptions::new().append(true).create(true).open(path);
        let written = file.and_then(|mut file| file.write_all(entry.as_bytes()));
        if let Err(error) = written {
            let _ = writeln!(
                std::io::stderr(),
                "dormouse-oci: {}: {error}",
                path.display()
            );
        }
    }
    let _ = writeln!(std::io::stderr(), "{message}");
}

fn now() -> String {
    let now = Timestamp::now();
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
    seconds.to_string()
}

/// One line, as runc writes it.
fn entry(as_json: bool, message: &str, time: &str) -> String {
    if as_json {
        let entry = json!({ "level": "error", "msg": message, "time": time });
        return format!("{entry}\n");
    }
    let quoted = json!(message);
    format!("time=\"{time}\" level=error msg={quoted}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_finds_the_reason_in_the_log_that_it_asked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log.json");
        let line = CommandLine {
            log: Some(path.clone()),
            log_json: true,
            ..CommandLine::default()
        };
        report(&line, "annotation \"x\"\nis wrong");
        let text = std::fs::read_to_string(path).expect("a log");
        let entry: serde_json::Value = serde_json::from_str(text.trim()).expect("JSON, one line");
        assert_eq!(entry["level"], "error");
        assert_eq!(entry["msg"], "dormouse-oci: annotation \"x\" is wrong");
        assert!(entry["time"].as_str().expect("a time").ends_with('Z'));
    }
}
