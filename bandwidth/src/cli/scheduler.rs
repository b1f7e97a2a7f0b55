//! `dormouse bandwidth scheduler`: the overhead of a sched_ext scheduler's callbacks.

use std::fmt::Write as _;
use std::time::Duration;

use dormouse_report::output;
use serde_json::json;

use super::arguments::SchedulerArguments;
use super::{CliError, DONE};
use crate::enforce::EnforceError;
use crate::enforce::bpf_statistics::{Cost, Statistics};
use crate::enforce::ext::{self, Empty, Ext, IdleCpus};

pub fn run(arguments: &SchedulerArguments) -> Result<u8, CliError> {
    ext::in_force().map_err(EnforceError::from)?;
    let statistics = Statistics::switch_on()
        .map_err(|error| CliError::Failed(format!("BPF statistics: {error}")))?;
    let wait = || std::thread::sleep(Duration::from_secs(arguments.seconds));
    let (name, costs) = if arguments.empty {
        let _scheduler = Empty::load().map_err(EnforceError::from)?;
        wait();
        ("dormouse_empty", statistics.of("empty_"))
    } else {
        let scheduler = Ext::load(IdleCpus::Hold).map_err(EnforceError::from)?;
        wait();
        if let Some(exit_record) = scheduler.exit_record() {
            return Err(CliError::Failed(format!(
                "the kernel ended the scheduler: {exit_record}"
            )));
        }
        ("dormouse", statistics.of("dormouse_"))
    };
    if arguments.json {
        output::json(&json!({"scheduler": name, "calls": costs}))?;
    } else {
        output::text(&rendered(name, &costs))?;
    }
    Ok(DONE)
}

fn rendered(name: &str, costs: &[Cost]) -> String {
    let mut text = format!("{name}: {:>28} {:>9}\n", "calls", "mean ns");
    for cost in costs {
        let _ = writeln!(
            text,
            "{:24} {:>13} {:>9.0}",
            cost.name, cost.runs, cost.mean_ns
        );
    }
    text
}
