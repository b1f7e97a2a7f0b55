//! `dormouse devices analyze`.

use std::path::{Path, PathBuf};

use dormouse_system::output;
use serde_json::json;

use super::arguments::{AnalyzeArguments, Input};
use super::{DONE, Failure};
use crate::analyze::{Analysis, Options, analyze, page, text};
use crate::model::{Cycle, Recording};
use crate::read;
use crate::simulate::Setting;
use crate::simulate::table::{Table, table, variants};

/// The recording and the cycle that were asked for.
pub fn read_input(input: &Input) -> Result<(Recording, usize), Failure> {
    let recording = read::read(&input.file, input.strict)?;
    let count = recording.cycles.len();
    let number = input.cycle.unwrap_or(count);
    if count == 0 {
        return Err(Failure::failed(format!(
            "{}: holds no suspend",
            input.file.display()
        )));
    }
    if number == 0 || number > count {
        return Err(Failure::usage(format!(
            "{}: there is no cycle {number}; it holds 1 to {count}",
            input.file.display()
        )));
    }
    Ok((recording, number))
}

/// The cycle of that number, which [`read_input`] has checked.
pub fn cycle_of(recording: &Recording, number: usize) -> &Cycle {
    &recording.cycles[number - 1]
}

/// Whether anything is known of permissions.
pub fn has_permissions(recording: &Recording) -> bool {
    let mut devices = recording.graph.devices.iter();
    devices.any(|device| device.is_async.is_some())
}

/// Runs the verb; returns its exit code.
pub fn run(arguments: &AnalyzeArguments) -> Result<u8, Failure> {
    let input = &arguments.input;
    let (recording, number) = read_input(input)?;
    if let Some(path) = &arguments.save {
        recording.save(path)?;
    }
    let options = Options {
        threshold_ns: input.threshold.as_nanos() as u64,
        cpus: input.cpus.map(usize::from),
        max_rows: arguments.slowest,
    };
    let analysis = analyze(&recording, Some(number), &options)
        .ok_or_else(|| Failure::failed("there is no such cycle".to_owned()))?;
    let written = match page_paths(arguments) {
        Some((html, trace)) => {
            let table = simulated(&recording, number, &analysis, &options);
            let title = title_of(&input.file);
            Some(page::write(
                &recording, &analysis, &table, &title, &html, &trace,
            )?)
        }
        None => None,
    };
    if arguments.json {
        let mut object = json!({
            "source": recording.machine.source,
            "cycles": recording.cycles.len(),
            "analysis": analysis,
        });
        if let Some(paths) = &written {
            object["html"] = json!(paths.html);
            object["trace"] = json!(paths.trace);
        }
        output::json(&object)?;
        return Ok(DONE);
    }
    let mut shown = text::render(&analysis);
    if let Some(paths) = &written {
        shown.push_str(&format!(
            "\n{}\n{}\n",
            paths.html.display(),
            paths.trace.display()
        ));
    }
    output::text(&shown)?;
    Ok(DONE)
}

fn simulated(
    recording: &Recording,
    number: usize,
    analysis: &Analysis,
    options: &Options,
) -> Table {
    let mut setting = Setting::new(crate::simulate::Schedule::List, analysis.extent.cpus);
    setting.overheads = crate::analyze::overheads_of(recording);
    let variants = variants(options.threshold_ns, has_permissions(recording));
    table(recording, cycle_of(recording, number), &variants, &setting)
}

/// Where page and trace go, if anywhere.
fn page_paths(arguments: &AnalyzeArguments) -> Option<(PathBuf, PathBuf)> {
    if let Some(path) = &arguments.output {
        return Some((path.clone(), path.with_extension("trace.json")));
    }
    let file = &arguments.input.file;
    let folder = if file.is_dir() {
        file
    } else if file
        .file_name()
        .is_some_and(|name| name == "recording.json")
    {
        file.parent().unwrap_or(Path::new("."))
    } else {
        return None;
    };
    Some((folder.join("report.html"), folder.join("trace.json")))
}

fn title_of(file: &Path) -> String {
    let path = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let own = name(&path).unwrap_or_else(|| "devices".to_owned());
    if own == "recording.json" {
        return path.parent().and_then(name).unwrap_or(own);
    }
    own
}
