//! The results as Markdown, for `docs/evaluation/devices.md`.

use std::fmt::Write;

use dormouse_lab::devices::Mode;
use dormouse_tests::bench::short;
use serde_json::Value;

use crate::bounds::Bounds;
use crate::cases::{Kernel, Measured};
use crate::overheads::Costs;
use crate::predict::Prediction;

/// Modes in their order; each name but that of list order has the kernel's version behind it.
const MODE_NAMES: [(Mode, &str); 4] = [
    (Mode::List, "list order"),
    (Mode::Async, "stock async"),
    (Mode::Threshold, "threshold"),
    (Mode::Graph, "**ours**"),
];
/// Predictions of one case.
const PREDICTED: usize = 3;
/// The simulator's goal.
const ALLOWED: f64 = 0.15;

pub fn markdown(
    facts: &str,
    measured: &[Measured],
    bounds: &[Bounds],
    costs: &Costs,
    predictions: &[Prediction],
    rows: &[Value],
) -> String {
    let mut text = format!("{facts}\n\n");
    modes(&mut text, measured, bounds);
    goals(&mut text, rows, predictions);
    empty_phases(&mut text, measured);
    simulated(&mut text, costs, predictions);
    text
}

fn modes(text: &mut String, all: &[Measured], bounds: &[Bounds]) {
    text.push_str("| graph | devices | kernel | mode | suspend, ms | resume, ms | sum, ms | of list order | of the lower bound | of that with handling |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (measured, bounds) in all.iter().zip(bounds) {
        let times = &measured.times;
        let list_ms = times
            .of(Mode::List)
            .map_or(f64::NAN, |list| list.sum_median_ms);
        for (mode, name) in MODE_NAMES {
            let Some(mode) = times.of(mode) else { continue };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {name} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
                measured.case.name(),
                times.devices,
                measured.version(),
                mode.down_median_ms,
                mode.up_median_ms,
                mode.sum_median_ms,
                mode.sum_median_ms / list_ms,
                mode.sum_median_ms / bounds.sum_ms(),
                mode.sum_median_ms / bounds.handled_ms,
            );
        }
        let _ = writeln!(
            text,
            "| | | | lower bound | {:.2} | {:.2} | {:.2} | {:.2} | 1 | |",
            bounds.down_ms,
            bounds.up_ms,
            bounds.sum_ms(),
            bounds.sum_ms() / list_ms,
        );
        let _ = writeln!(
            text,
            "| | | | with handling | | | {:.2} | {:.2} | | 1 |",
            bounds.handled_ms,
            bounds.handled_ms / list_ms,
        );
    }
    text.push('\n');
}

fn goals(text: &mut String, rows: &[Value], predictions: &[Prediction]) {
    text.push_str("| goal | case | value | |\n|---|---|---|---|\n");
    for row in rows.iter().filter(|row| row["goal"].is_string()) {
        let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let (value, what) = match row["peer_name"].as_str() {
            None => (&row["ours"], "ours to the bound with handling".to_owned()),
            Some(peer) => (&row["ratio"], format!("{peer} to ours")),
        };
        let met = if row["met"] == true { "met" } else { "missed" };
        let _ = writeln!(
            text,
            "| {what} {} | {} | {} | {met} |",
            word("goal").trim_start_matches("ratio "),
            word("case"),
            value.as_f64().map(short).unwrap_or_default(),
        );
    }
    let within = predictions.iter().filter(|p| p.error().abs() <= ALLOWED);
    let count = within.count();
    let _ = writeln!(
        text,
        "| simulated within 15 % | all | {count} of {} | {} |\n",
        predictions.len(),
        if count == predictions.len() {
            "met"
        } else {
            "missed"
        },
    );
}

/// What work items cost where devices have nothing to do.
fn empty_phases(text: &mut String, all: &[Measured]) {
    text.push_str("Phases in which no device has work (`suspend_late`, `suspend_noirq`, `resume_noirq`, `resume_early` together), ms:\n\n");
    text.push_str(
        "| graph | kernel | list order | stock async | threshold | ours |\n|---|---|---|---|---|---|\n",
    );
    for measured in all.iter().filter(|one| one.case.shape != "random") {
        let (name, kernel) = (measured.case.name(), measured.version());
        let mut line = format!("| {name} | {kernel} |");
        for (mode, _) in MODE_NAMES {
            let Some(times) = measured.times.of(mode) else {
                line.push_str(" |");
                continue;
            };
            let phases = times.phases_ms.iter();
            let empty = phases.filter(|(name, _)| !["suspend", "resume"].contains(&name.as_str()));
            let ms: f64 = empty.map(|(_, ms)| ms).sum();
            let _ = write!(line, " {ms:.2} |");
        }
        let _ = writeln!(text, "{line}");
    }
    text.push('\n');
}

fn simulated(text: &mut String, costs: &Costs, predictions: &[Prediction]) {
    text.push_str(
        "Simulated from the trace of list order, suspend and resume together, and the error:\n\n",
    );
    text.push_str("| graph | kernel | list order: simulated, ms | error | stock async | error | ours | error |\n|---|---|---|---|---|---|---|---|\n");
    for of_case in predictions.chunks(PREDICTED) {
        let mut line = format!("| {} | {} |", of_case[0].case, of_case[0].kernel);
        for prediction in of_case {
            let _ = write!(
                line,
                " {:.2} | {:+.0} % |",
                prediction.predicted_ms,
                prediction.error() * 100.0
            );
        }
        let _ = writeln!(text, "{line}");
    }
    for ((kernel, ns), costs) in costs {
        let kernel = match kernel {
            Kernel::Series => "the lab's kernel",
            Kernel::Newest => "the newest kernel",
        };
        let _ = writeln!(
            text,
            "\nOn {kernel} with {ns} ns an instruction: {} ns for a device, {} ns for a work item, {} ns from \
             a wakeup until an idle processor runs the thread; tracing adds {} ns to a callback.",
            costs.per_device_ns, costs.queue_ns, costs.latency_ns, costs.trace_ns
        );
    }
}
