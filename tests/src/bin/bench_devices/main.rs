//! The benchmark of devices' suspend and resume: `make bench-devices` runs it.
//!
//! For each graph it runs `dormouse lab devices time`, which times list order, the stock kernel
//! with all devices async, the threshold's choice and ours in the emulated machine, in turns; on
//! 6.12 with the series, and on the newest kernel of the distribution with the module. The
//! simulator of `dormouse devices simulate` then gets the trace of list order and the overhead of
//! scheduling in that machine, and its prediction is printed beside the measurement.

mod bounds;
mod cases;
mod overheads;
mod predict;
mod recording;
mod rows;
mod tables;

use std::process::ExitCode;

use cases::Case;
use clap::Parser;
use dormouse_tests::bench::options::KeepingOptions;
use dormouse_tests::bench::outcome::{Outcome, ended};
use dormouse_tests::bench::{date, machine};

const COMMAND: &str = "make bench-devices";

/// Suspend and resume of devices: list order, stock async, threshold and ours, in the lab
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    bench: KeepingOptions,
}

fn main() -> ExitCode {
    ended(bench(&Options::parse()))
}

fn all() -> impl Iterator<Item = Case> {
    cases::CASES.iter().flat_map(|case| case.on_kernels())
}

fn bench(options: &Options) -> Result<(), String> {
    let folder = options.bench.folder()?;
    let kept = folder.join("devices");
    if !options.bench.no_run {
        for case in all() {
            case.run(&kept, options.bench.rounds)?;
        }
    }
    let measured = all()
        .map(|case| case.read(&kept))
        .collect::<Result<Vec<_>, _>>()?;
    let costs = overheads::measured(&measured)?;
    let predictions = predict::all(&measured, &costs)?;
    let bounds = bounds::all(&measured, &costs)?;
    let rows = rows::rows(&measured, &bounds);
    let rounds = measured[0].times.modes[0].down_ms.len();
    let mut kernels: Vec<String> = measured
        .iter()
        .map(|one| format!("{} ({} devices)", one.times.kernel, one.own_devices))
        .collect();
    kernels.sort();
    kernels.dedup();
    let facts = format!(
        "{}; medians of {rounds} transitions in each mode; 2 processors; kernels, and devices of \
         each and of the machine itself, which are included in all times: {}.",
        date(),
        kernels.join(", ")
    );
    let tables = tables::markdown(&facts, &measured, &bounds, &costs, &predictions, &rows);
    let outcome = Outcome {
        name: "devices",
        command: COMMAND,
        date: &date(),
        machine: &machine(),
        rows: &rows,
        tables: &tables,
        figures: &[],
    };
    outcome.put(folder, options.bench.publish)
}
