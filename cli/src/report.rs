//! `dormouse report DIR…`: the timeline of one run, or several runs side by side.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use dormouse_report::compare::{self, Case};
use dormouse_report::energy::{self, Energy, Profile};
use dormouse_report::{Run, Timeline, read_run, terminal, write_comparison, write_report};
use serde_json::{Value, json};

use crate::arguments::ReportArguments;
use crate::output;

/// Runs the verb.
///
/// # Errors
/// A directory holds no run, the power profile is none, or the report cannot be written.
pub fn run(arguments: &ReportArguments) -> Result<ExitCode> {
    let profile = profile(arguments)?;
    match &arguments.directories[..] {
        [only] => one(only, profile.as_ref(), arguments),
        several => {
            let directories = several.iter().map(AsRef::as_ref).collect::<Vec<&Path>>();
            compared(&directories, profile.as_ref(), arguments)
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

fn profile(arguments: &ReportArguments) -> Result<Option<Profile>> {
    let Some(name) = &arguments.power_profile else {
        return Ok(None);
    };
    let mut profile = Profile::find(name)?;
    for (of, watts) in &arguments.watts {
        profile.set(of, *watts).map_err(anyhow::Error::msg)?;
    }
    Ok(Some(profile))
}

/// The timeline of one run, with what its cycles have in common.
fn one(directory: &Path, profile: Option<&Profile>, arguments: &ReportArguments) -> Result<()> {
    let paths = write_report(directory, profile, arguments.output.as_deref())?;
    let run = read_run(directory)?;
    let cases = compare::cases(std::slice::from_ref(&run));
    let energy = profile.map(|profile| energy::of_cases(profile, &cases));
    if arguments.json {
        let mut object = json!({
            "html": paths.html,
            "trace": paths.trace,
            "svg": paths.svg,
            "events": run.events.len(),
            "cycles": run.cycles.len(),
        });
        add_comparison(&mut object, &cases, energy.as_ref())?;
        return Ok(output::json(&object)?);
    }
    let style = output::style();
    let timeline = Timeline::from_events(&run.events);
    let mut text = terminal::render(&timeline, &run.cycles, style);
    for note in &run.notes {
        text.push_str(&format!("{note}\n"));
    }
    if cases.len() > 1 {
        text.push('\n');
        text.push_str(&terminal::comparison::render(
            &cases,
            &compare::rows(&cases),
            style,
        ));
    }
    push_energy(&mut text, energy.as_ref());
    text.push_str(&format!(
        "\n{}\n{}\n",
        paths.html.display(),
        paths.trace.display()
    ));
    Ok(output::text(&text)?)
}

/// Several runs side by side.
fn compared(
    directories: &[&Path],
    profile: Option<&Profile>,
    arguments: &ReportArguments,
) -> Result<()> {
    let runs: Vec<Run> = directories
        .iter()
        .map(|directory| read_run(directory))
        .collect::<Result<_, _>>()?;
    let cases = compare::cases(&runs);
    let energy = profile.map(|profile| energy::of_cases(profile, &cases));
    let page = match &arguments.output {
        Some(path) => path.clone(),
        None => directories[0].join("comparison.html"),
    };
    write_comparison(&runs, profile, &page)?;
    if arguments.json {
        let mut object = json!({
            "html": page,
            "runs": directories,
            "cycles": runs.iter().map(|run| run.cycles.len()).sum::<usize>(),
        });
        add_comparison(&mut object, &cases, energy.as_ref())?;
        return Ok(output::json(&object)?);
    }
    let rows = compare::rows(&cases);
    let mut text = terminal::comparison::render(&cases, &rows, output::style());
    for note in runs.iter().flat_map(|run| &run.notes) {
        text.push_str(&format!("{note}\n"));
    }
    push_energy(&mut text, energy.as_ref());
    text.push_str(&format!("\n{}\n", page.display()));
    Ok(output::text(&text)?)
}

fn add_comparison(object: &mut Value, cases: &[Case], energy: Option<&Energy>) -> Result<()> {
    object["cases"] = serde_json::to_value(cases)?;
    object["rows"] = serde_json::to_value(compare::rows(cases))?;
    if let Some(energy) = energy {
        object["energy"] = serde_json::to_value(energy)?;
    }
    Ok(())
}

fn push_energy(text: &mut String, energy: Option<&Energy>) {
    if let Some(energy) = energy {
        text.push('\n');
        text.push_str(&terminal::energy::render(energy, output::style()));
    }
}
