//! Reads what a run left in its directory: events and results of cycles.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::cycle::Cycle;
use crate::event::{Clock, Event, HOST_STAMPS};
use crate::plot::PlotError;
use crate::timeline::Timeline;

/// A run as its directory holds it.
#[derive(Debug, Default)]
pub struct Run {
    /// The directory's name.
    pub title: String,
    /// All events, in the order of the files.
    pub events: Vec<Event>,
    /// The results of the cycles.
    pub cycles: Vec<Cycle>,
    /// Lines that were neither.
    pub notes: Vec<String>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Nothing to report in the directory.
    #[error(
        "{}: no events.jsonl and no cycles.jsonl in it or in its cycle-* directories; \
         name the directory that `dormouse lab cycle` wrote, for instance out/demo",
        .0.display()
    )]
    /// The directory holds no run.
    NoRun(PathBuf),
    /// A file of the run cannot be read.
    #[error("{}: cannot be read: {source}; check the path and its permissions", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// A file of the report cannot be written.
    #[error("{}: cannot be written: {source}; check permissions and free space", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// A plot of the page cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

impl dormouse_system::failure::CommandError for ReportError {}

/// Reads a run: `events.jsonl` and `cycles.jsonl` in the directory itself, or, for a run of
/// several cycles, in directories `cycle-001`, `cycle-002`, … within it. Lines that are no
/// record are counted in the notes, not refused: a run that was cut off leaves half a line.
///
/// # Errors
/// The directory holds no run, or a file cannot be read.
pub fn read_run(run_dir: &Path) -> Result<Run, ReportError> {
    let title = fs::canonicalize(run_dir)
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| run_dir.display().to_string());
    let mut run = Run {
        title,
        ..Run::default()
    };
    let mut found = false;
    let mut parts = Vec::new();
    for (cycle, directory) in run_directories(run_dir)? {
        let mut objects = |name: &str| -> Result<Vec<Map<String, Value>>, ReportError> {
            let path = directory.join(name);
            let Some(text) = read_if_there(&path)? else {
                return Ok(Vec::new());
            };
            found = true;
            let (objects, skipped) = parse_lines(&text);
            if skipped > 0 {
                run.notes.push(format!(
                    "{}: {skipped} lines are no record.",
                    path.display()
                ));
            }
            Ok(objects)
        };
        let mut events = Vec::new();
        let mut not_events = 0;
        for object in objects("events.jsonl")? {
            match serde_json::from_value::<Event>(Value::Object(object)) {
                Ok(event) => events.push(event),
                Err(_) => not_events += 1,
            }
        }
        let cycles = objects("cycles.jsonl")?;
        if not_events > 0 {
            run.notes.push(format!(
                "{}: {not_events} records are no event.",
                directory.display()
            ));
        }
        if let Some(cycle) = cycle {
            for event in &mut events {
                event
                    .detail
                    .entry("cycle")
                    .or_insert_with(|| Value::from(cycle));
            }
        }
        run.cycles.extend(cycles.iter().map(Cycle::from_object));
        parts.push(events);
    }
    if !found {
        return Err(ReportError::NoRun(run_dir.to_owned()));
    }
    run.events = join_parts(parts);
    // The same cycle may stand in the run's and in its own directory.
    let mut known = Vec::new();
    run.cycles.retain(|cycle| {
        let is_new = !known.contains(cycle);
        known.push(cycle.clone());
        is_new
    });
    Ok(run)
}

/// The timeline of a run, with the notes on reading it.
pub fn timeline(run: &Run) -> Timeline {
    let mut timeline = Timeline::from_events(&run.events);
    timeline.notes.extend(run.notes.iter().cloned());
    timeline
}

/// The run's own directory, then `cycle-*` in the order of their numbers.
fn run_directories(run_dir: &Path) -> Result<Vec<(Option<u64>, PathBuf)>, ReportError> {
    let failed = |source| ReportError::Read {
        path: run_dir.to_owned(),
        source,
    };
    let mut cycles = Vec::new();
    for entry in fs::read_dir(run_dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("cycle-")?.parse().ok());
        if let (Some(number), true) = (number, entry.path().is_dir()) {
            cycles.push((Some(number), entry.path()));
        }
    }
    cycles.sort();
    cycles.insert(0, (None, run_dir.to_owned()));
    Ok(cycles)
}

fn read_if_there(path: &Path) -> Result<Option<String>, ReportError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReportError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The JSON objects of a text, one a line, and how many lines were none.
fn parse_lines(text: &str) -> (Vec<Map<String, Value>>, usize) {
    let mut skipped = 0;
    let objects = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .filter_map(|line| match serde_json::from_str(line) {
            Ok(Value::Object(object)) => Some(object),
            _ => {
                skipped += 1;
                None
            }
        })
        .collect();
    (objects, skipped)
}

/// One list from the parts of a run; a part whose host clock starts again is moved behind the
/// part before it.
fn join_parts(parts: Vec<Vec<Event>>) -> Vec<Event> {
    let mut joined: Vec<Event> = Vec::new();
    let mut last_host_ns = None;
    for mut part in parts {
        let host_times = || {
            part.iter().filter_map(|event| match event.clock {
                Clock::Host => Some(event.t_ns),
                _ => HOST_STAMPS
                    .iter()
                    .find_map(|key| event.detail.get(*key)?.as_u64()),
            })
        };
        let (first, last) = (host_times().min(), host_times().max());
        let shift_ns = match (first, last_host_ns) {
            (Some(first), Some(before)) if first < before => before - first,
            _ => 0,
        };
        if shift_ns > 0 {
            for event in &mut part {
                if event.clock == Clock::Host {
                    event.t_ns = event.t_ns.saturating_add(shift_ns);
                }
                for key in HOST_STAMPS {
                    if let Some(host_ns) = event.detail.get(key).and_then(Value::as_u64) {
                        let moved_ns = host_ns.saturating_add(shift_ns);
                        event.detail.insert(key.to_owned(), Value::from(moved_ns));
                    }
                }
            }
        }
        last_host_ns = last
            .map(|last| last.saturating_add(shift_ns))
            .or(last_host_ns);
        joined.extend(part);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Kind, write_events};

    fn event(t_ns: u64, name: &str) -> Event {
        Event::new(t_ns, Clock::Host, "suspend", name, Kind::Mark)
    }

    #[test]
    fn directories_of_cycles_follow_each_other_even_where_each_starts_at_zero() {
        let directory = tempfile::tempdir().unwrap();
        for cycle in ["cycle-002", "cycle-010", "cycle-001"] {
            write_events(
                &directory.path().join(cycle),
                &[event(0, cycle), event(10, cycle)],
            );
        }
        let run = read_run(directory.path()).unwrap();
        let seen: Vec<_> = run
            .events
            .iter()
            .map(|e| (e.t_ns, e.detail["cycle"].clone()))
            .collect();
        let expected = [(0, 1), (10, 1), (10, 2), (20, 2), (20, 10), (30, 10)];
        assert_eq!(
            seen,
            expected.map(|(t_ns, cycle)| (t_ns, Value::from(cycle)))
        );
    }

    #[test]
    fn a_line_cut_in_half_is_noted_and_the_rest_is_read() {
        let directory = tempfile::tempdir().unwrap();
        write_events(directory.path(), &[event(1, "a")]);
        let path = directory.path().join("events.jsonl");
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend_from_slice(b"{\"t_ns\":7}\n\xff\xfe\n{\"t_ns\":5,\"clo");
        fs::write(&path, bytes).unwrap();
        let run = read_run(directory.path()).unwrap();
        assert_eq!((run.events.len(), run.notes.len()), (1, 2));
    }
}
