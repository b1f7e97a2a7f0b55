//! `dormouse devices record`.

use std::io::Write;
use std::path::{Path, PathBuf};

use dormouse_report::format::duration;
use dormouse_system::output;
use serde_json::json;

use super::arguments::RecordArguments;
use super::{DONE, Failure};
use crate::analyze::{self, analyze};
use crate::record::{Options, record};

/// Where recordings without a directory go.
const DEFAULT_ROOT: &str = "out/devices";

/// Runs the verb; returns its exit code.
pub fn run(arguments: &RecordArguments) -> Result<u8, Failure> {
    let options = Options {
        state: arguments.state.into(),
        test: arguments.test.map(Into::into),
        wake_after_s: match arguments.wake_after {
            Some(super::arguments::Wake::Never) => None,
            Some(super::arguments::Wake::After(seconds)) => Some(seconds),
            None => Some(10),
        },
        trust_clock: arguments.trust_clock,
        cycles: arguments.cycles,
        pause: arguments.pause,
        switches: !arguments.no_switches,
        buffer_kib: arguments.buffer_kib,
        directory: folder(&arguments.output),
        sys: PathBuf::from("/sys"),
    };
    let mut progress = |text: &str| {
        // The terminal may be gone; the recording continues.
        let _ = writeln!(std::io::stderr(), "{text}");
    };
    let recording = record(&options, &mut progress)?;
    let path = options.directory.join("recording.json");
    let last = analyze(&recording, None, &analyze::Options::default());
    if arguments.json {
        output::json(&json!({
            "recording": path,
            "cycles": recording.cycles.len(),
            "devices": recording.graph.devices.len(),
            "links": recording.graph.links.len(),
            "suspend_ns": last.as_ref().map(|last| last.totals.suspend_ns),
            "resume_ns": last.as_ref().map(|last| last.totals.resume_ns),
            "overheads": recording.overheads,
            "notes": recording.notes,
        }))?;
        return Ok(DONE);
    }
    let mut text = String::new();
    for (index, cycle) in recording.cycles.iter().enumerate() {
        if let Some(analysis) = analyze(&recording, Some(index + 1), &analyze::Options::default()) {
            text.push_str(&format!(
                "cycle {}: {} down, {} up, {} callbacks\n",
                index + 1,
                duration(analysis.totals.suspend_ns),
                duration(analysis.totals.resume_ns),
                cycle.callbacks.len()
            ));
        }
    }
    for note in &recording.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    let folder = options.directory.display();
    text.push_str(&format!(
        "{} devices, {} links\n{}\nnext: dormouse devices analyze {folder}\n",
        recording.graph.devices.len(),
        recording.graph.links.len(),
        path.display()
    ));
    output::text(&text)?;
    Ok(DONE)
}

/// A bare name is a folder below the default root; anything else is a path.
fn folder(name: &Path) -> PathBuf {
    if name.components().count() == 1 && !name.starts_with(".") {
        Path::new(DEFAULT_ROOT).join(name)
    } else {
        name.to_owned()
    }
}
