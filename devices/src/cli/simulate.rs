//! `dormouse devices simulate`.

use std::fmt::Write;

use dormouse_report::format::duration;
use dormouse_system::output;
use serde_json::json;

use super::analyze::{cycle_of, has_permissions, read_input};
use super::arguments::SimulateArguments;
use super::{DONE, Failure};
use crate::analyze::{cpus_of, overheads_of};
use crate::model::Direction;
use crate::simulate::table::{Prediction, Table, table, variants};
use crate::simulate::{Schedule, Setting};

/// Runs the verb; returns its exit code.
pub fn run(arguments: &SimulateArguments) -> Result<u8, Failure> {
    let (mut recording, number) = read_input(&arguments.input)?;
    let cpus = cpus_of(&recording, arguments.input.cpus.map(usize::from));
    let mut setting = Setting::new(Schedule::List, cpus);
    setting.workers = arguments.workers.map_or(cpus, usize::from);
    setting.sleepers = usize::from(arguments.sleepers);
    setting.wake_threshold_ns = arguments.wake_threshold.as_nanos() as u64;
    setting.overheads = overheads_of(&recording);
    for (name, time) in &arguments.overhead {
        let ns = time.as_nanos() as u64;
        match name.as_str() {
            "per-device" => setting.overheads.per_device_ns = ns,
            "queue" => setting.overheads.queue_ns = ns,
            "wake" => setting.overheads.wake_ns = ns,
            "latency" => setting.overheads.latency_ns = ns,
            "switch" => setting.overheads.switch_ns = ns,
            _ => setting.overheads.trace_ns = ns,
        }
    }
    recording.overheads = Some(setting.overheads);
    let threshold_ns = arguments.input.threshold.as_nanos() as u64;
    let variants = variants(threshold_ns, has_permissions(&recording));
    let table = table(
        &recording,
        cycle_of(&recording, number),
        &variants,
        &setting,
    );
    if arguments.json {
        output::json(&json!({
            "source": recording.machine.source,
            "cycle": number,
            "variants": variants,
            "simulation": table,
        }))?;
    } else {
        output::text(&rendered(&table, threshold_ns))?;
    }
    Ok(DONE)
}

fn rendered(table: &Table, threshold_ns: u64) -> String {
    let mut text = String::new();
    let overheads = table.setting.overheads;
    let _ = writeln!(
        text,
        "{} devices, {} dependencies, {} CPUs; a device costs {}, queueing {}, waking {}, until it \
         runs {}, a switch {}; tracing cost {} a callback",
        table.extent.devices,
        table.extent.edges,
        table.extent.cpus,
        duration(overheads.per_device_ns),
        duration(overheads.queue_ns),
        duration(overheads.wake_ns),
        duration(overheads.latency_ns),
        duration(overheads.switch_ns),
        duration(overheads.trace_ns),
    );
    if table.extent.refused_links > 0 {
        let _ = writeln!(
            text,
            "{} links would close a cycle and order nothing",
            table.extent.refused_links
        );
    }
    for total in &table.totals {
        let way = match total.direction {
            Direction::Suspend => "suspend",
            Direction::Resume => "resume",
        };
        let recorded = total.recorded_ns.map_or_else(|| "–".to_owned(), duration);
        let _ = writeln!(
            text,
            "\n{way}: recorded {recorded}, sum {}, bound {}",
            duration(total.sum_ns),
            duration(total.bound_ns)
        );
        let _ = writeln!(
            text,
            "  {:<22}{:>10}{:>9}{:>9}{:>8}{:>8}{:>10}",
            "schedule", "takes", "to list", "to bound", "items", "wakes", "overhead"
        );
        for prediction in &total.predictions {
            row(&mut text, prediction, threshold_ns);
        }
        let parts = table
            .phases
            .iter()
            .filter(|phase| phase.phase.direction() == total.direction && phase.callbacks > 0);
        for phase in parts {
            let times: Vec<String> = phase
                .predictions
                .iter()
                .map(|prediction| {
                    format!("{} {}", prediction.name, duration(prediction.makespan_ns))
                })
                .collect();
            let _ = writeln!(
                text,
                "  {} (bound {}): {}",
                phase.phase,
                duration(phase.bound.ns()),
                times.join(", ")
            );
        }
    }
    text
}

fn row(text: &mut String, prediction: &Prediction, threshold_ns: u64) {
    let name = match prediction.name {
        "threshold" => format!("threshold {}", duration(threshold_ns)),
        name => name.to_owned(),
    };
    let _ = writeln!(
        text,
        "  {name:<22}{:>10}{:>9.2}{:>9.2}{:>8}{:>8}{:>10}",
        duration(prediction.makespan_ns),
        prediction.ratio_to_list,
        prediction.ratio_to_bound,
        prediction.items,
        prediction.wakeups,
        duration(prediction.overhead_ns)
    );
}
