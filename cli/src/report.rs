//! `dormouse report DIR`: the timeline on the terminal, the page and the trace beside the run.

use std::process::ExitCode;

use anyhow::Result;
use dormouse_report::{Timeline, read_run, terminal, write_report};
use serde_json::json;

use crate::arguments::ReportArguments;
use crate::output;

/// Runs the verb.
///
/// # Errors
/// The directory holds no run, or the report cannot be written.
pub fn run(arguments: &ReportArguments) -> Result<ExitCode> {
    let paths = write_report(&arguments.directory)?;
    let run = read_run(&arguments.directory)?;
    if arguments.json {
        output::print_json(&json!({
            "html": paths.html,
            "trace": paths.trace,
            "events": run.events.len(),
            "cycles": run.cycles.len(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let timeline = Timeline::from_events(&run.events);
    let mut text = terminal::render(&timeline, &run.cycles, output::style());
    for note in &run.notes {
        text.push_str(&format!("{note}\n"));
    }
    text.push_str(&format!(
        "\n{}\n{}\n",
        paths.html.display(),
        paths.trace.display()
    ));
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
