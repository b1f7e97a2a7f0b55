//! The benchmark of bandwidth control: `make bench-bandwidth` runs it.
//!
//! It simulates the four methods of Kämmerer 2025 and ours on the same workloads with the same
//! random numbers, calibrated with the evaluation of the thesis, and measures the time of a pass
//! on this machine. Simulated results are the same on every machine.

mod cases;
mod cgroups;
mod lab;
mod pass;
mod tables;
mod whole;

use std::process::ExitCode;

use clap::Parser;
use dormouse_tests::bench::options::BenchOptions;
use dormouse_tests::bench::outcome::{Outcome, ended};
use dormouse_tests::bench::{date, machine};

const COMMAND: &str = "make bench-bandwidth";

/// Bandwidth control: the methods of Kämmerer 2025 and ours, simulated, and the time of a pass
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    bench: BenchOptions,
    /// Only measure passes of the daemon; writes no results
    #[arg(long)]
    passes: bool,
    /// With --passes: only with this number of tasks
    #[arg(long, value_name = "N", requires = "passes")]
    tasks: Option<usize>,
    /// Only compare the lab with the simulator on the same load; writes no results
    #[arg(long, conflicts_with = "passes")]
    lab: bool,
    /// One of the tasks that the daemon scans: busy or little
    #[arg(long, hide = true)]
    task: Option<String>,
}

fn main() -> ExitCode {
    ended(bench(&Options::parse()))
}

fn bench(options: &Options) -> Result<(), String> {
    if let Some(kind) = &options.task {
        whole::task(kind == "busy");
    }
    if options.lab {
        println!("{}", lab::compare()?);
        return Ok(());
    }
    if options.passes {
        for one in whole::measure(options.tasks)? {
            println!(
                "{} tasks: {:.3} ms a pass (quartiles {:.3}, {:.3}; max {:.3}), CPU time {:.3} ms, {:.2} % of a core, \
                 {:.1} limits written",
                one.tasks,
                one.times_ms.median,
                one.times_ms.q1,
                one.times_ms.q3,
                one.times_ms.max,
                one.cpu_ms.median,
                one.cpu_percent,
                one.writes_per_pass
            );
        }
        return Ok(());
    }
    let measured =
        cases::measure(options.bench.rounds as u64).map_err(|error| error.to_string())?;
    let passes = pass::measure();
    let mut rows = cases::rows(&measured);
    rows.extend(pass::rows(&passes));
    match whole::measure(None) {
        Ok(whole) => rows.extend(whole::rows(&whole)),
        // Tables without these rows must not replace complete ones.
        Err(why) if why == whole::INTERRUPTED => return Err(why),
        Err(why) => eprintln!("bench: left out: passes of the daemon: {why}"),
    }
    let machine = machine();
    let facts = format!(
        "{}; {} simulations of each case; passes timed on {} ({} cores), Linux {}.",
        date(),
        options.bench.rounds,
        machine["cpu"].as_str().unwrap_or("an unknown processor"),
        machine["cores"],
        machine["kernel"].as_str().unwrap_or("?"),
    );
    let folder = options.bench.folder()?;
    let tables = tables::markdown(&facts, &measured, &rows);
    let outcome = Outcome {
        name: "bandwidth",
        command: COMMAND,
        date: &date(),
        machine: &machine,
        rows: &rows,
        tables: &tables,
        figures: &[],
    };
    outcome.put(folder, options.bench.publish)
}
