//! Writes what people open: `report.html`, `timeline.svg` and `trace.json` of a run, `comparison.html`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::compare;
use crate::energy::{self, Profile};
use crate::event::Event;
use crate::page::{self, OwnPage};
use crate::run::{ReportError, Run, read_run, timeline};
use crate::timeline::{Timeline, trace_event};

/// What [`write_report`] wrote.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ReportPaths {
    /// The page.
    pub html: PathBuf,
    /// The trace.
    pub trace: PathBuf,
    /// The timeline alone as a picture, for a run of the lab.
    pub svg: Option<PathBuf>,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ReportError {
    let path = path.to_owned();
    move |source| ReportError::Write { path, source }
}

/// Writes `report.html`, `timeline.svg` and `trace.json` into the run's directory, or the page where `page_path`
/// says, with the trace beside it. The page has an energy section where there is a power profile.
///
/// # Errors
/// As [`read_run`], or a file cannot be written.
pub fn write_report(
    run_dir: &Path,
    profile: Option<&Profile>,
    page_path: Option<&Path>,
) -> Result<ReportPaths, ReportError> {
    let run = read_run(run_dir)?;
    let timeline = timeline(&run);
    let paths = match page_path {
        None => ReportPaths {
            html: run_dir.join("report.html"),
            trace: run_dir.join("trace.json"),
            svg: Some(run_dir.join("timeline.svg")),
        },
        Some(path) => ReportPaths {
            html: path.to_owned(),
            trace: path.with_extension("trace.json"),
            svg: Some(path.with_extension("svg")),
        },
    };
    let trace_name = paths
        .trace
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let cases = compare::cases(std::slice::from_ref(&run));
    let energy = profile.map(|profile| energy::of_cases(profile, &cases));
    let page = page::page(&page::Page {
        title: &run.title,
        timeline: &timeline,
        cycles: &run.cycles,
        cases: &cases,
        energy: energy.as_ref(),
        trace_name: &trace_name,
        own: None,
    })?;
    write_both(&page, &timeline, paths)
}

/// Writes a page whose words and tables are not of a run of the lab, around the timeline of these
/// events, and the trace.
///
/// # Errors
/// A file cannot be written.
pub fn write_page(
    events: &[Event],
    own: &OwnPage,
    page_path: &Path,
    trace_path: &Path,
) -> Result<ReportPaths, ReportError> {
    let mut timeline = Timeline::from_events(events);
    timeline.notes.extend(own.notes.iter().cloned());
    let paths = ReportPaths {
        html: page_path.to_owned(),
        trace: trace_path.to_owned(),
        svg: None,
    };
    let trace_name = trace_path.file_name().unwrap_or_default().to_string_lossy();
    let page = page::page(&page::Page {
        title: &own.title,
        timeline: &timeline,
        cycles: &[],
        cases: &[],
        energy: None,
        trace_name: &trace_name,
        own: Some(own),
    })?;
    write_both(&page, &timeline, paths)
}

fn write_both(
    page: &str,
    timeline: &Timeline,
    paths: ReportPaths,
) -> Result<ReportPaths, ReportError> {
    fs::write(&paths.html, page).map_err(failed(&paths.html))?;
    if let Some(path) = &paths.svg {
        fs::write(path, page::picture(timeline)).map_err(failed(path))?;
    }
    let write_trace = || {
        let mut output = BufWriter::new(File::create(&paths.trace)?);
        trace_event::write_trace(timeline, &mut output)?;
        output.flush()
    };
    write_trace().map_err(failed(&paths.trace))?;
    Ok(paths)
}

/// Writes the page that compares runs.
///
/// # Errors
/// A plot cannot be drawn, or the file cannot be written.
pub fn write_comparison(
    runs: &[Run],
    profile: Option<&Profile>,
    page_path: &Path,
) -> Result<(), ReportError> {
    let timelines: Vec<Timeline> = runs.iter().map(timeline).collect();
    let cases = compare::cases(runs);
    let energy = profile.map(|profile| energy::of_cases(profile, &cases));
    let rows = compare::rows(&cases);
    let page = page::comparison::page(runs, &timelines, &cases, &rows, energy.as_ref())?;
    fs::write(page_path, page).map_err(failed(page_path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Clock, Kind, write_events};
    use serde_json::Value;

    #[test]
    fn a_directory_without_a_run_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_report(directory.path(), None, None).unwrap_err();
        assert!(matches!(error, ReportError::NoRun(_)));
        assert!(error.to_string().contains("dormouse lab cycle"));
        let missing = write_report(&directory.path().join("none"), None, None).unwrap_err();
        assert!(matches!(missing, ReportError::Read { .. }));
    }

    #[test]
    fn an_empty_run_still_gives_a_page_and_a_trace() {
        let directory = tempfile::tempdir().unwrap();
        write_events(directory.path(), &[]);
        let paths = write_report(directory.path(), None, None).unwrap();
        assert!(fs::read_to_string(paths.html).unwrap().contains("</html>"));
        let trace: Value = serde_json::from_slice(&fs::read(paths.trace).unwrap()).unwrap();
        assert_eq!(trace["traceEvents"], serde_json::json!([]));
    }

    #[test]
    fn ten_thousand_events_give_a_page_that_is_not_huge() {
        let directory = tempfile::tempdir().unwrap();
        let events: Vec<Event> = (0..10_000u64)
            .map(|i| {
                let kind = if i % 2 == 0 { Kind::Begin } else { Kind::End };
                Event::new(
                    i * 1_000,
                    Clock::Host,
                    "suspend",
                    format!("step {}", i / 2),
                    kind,
                )
                .with("bytes", i)
            })
            .collect();
        write_events(directory.path(), &events);
        let paths = write_report(directory.path(), None, None).unwrap();
        assert!(fs::metadata(paths.html).unwrap().len() < 4 << 20);
    }
}
