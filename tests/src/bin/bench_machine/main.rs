//! The benchmark of Suspend-to-CXL against hibernation: `make bench-machine` runs it.
//!
//! The cases alternate in rounds, so that a machine whose speed drifts slows all of them. Each run
//! is one call of `dormouse lab cycle` and one line of the journal; everything else (results,
//! tables, figures) is made from the journal alone, so an interrupted benchmark goes on, and a
//! failed cycle is a result like any other.

mod copy;
mod entry;
mod figures;
mod plan;
mod results;
mod rows;
mod scale;
mod tables;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use dormouse_tests::bench::journal::{Head, Journal};
use dormouse_tests::bench::options::KeepingOptions;
use dormouse_tests::bench::outcome::{Outcome, ended};
use dormouse_tests::bench::{date, first_line, memory_bytes};
use dormouse_tests::{Said, dormouse, lab_cycle};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use entry::Entry;
use plan::{Case, MODES, Mode};
use results::{All, Results};

/// Suspend-to-CXL against hibernation: fills, ways to sleep, firmware's copy routine
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    bench: KeepingOptions,
    /// Cycles of one running system at each visit
    #[arg(long, value_name = "N", default_value_t = 2)]
    cycles: usize,
    /// What the workload fills [default: 128M,448M,768M; with --scale 1G,2G,4G,8G]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',')]
    fills: Vec<String>,
    /// Ways to sleep [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    modes: Vec<String>,
    /// Machines of several GiB, both ways of Suspend-to-CXL, and hibernation to persistent memory
    #[arg(long)]
    scale: bool,
}

impl Options {
    fn cases(&self) -> Result<Vec<Case>, String> {
        let (all, fills): (&[Mode], &[&str]) = match self.scale {
            false => (&MODES, &["128M", "448M", "768M"]),
            true => (&scale::MODES, &["1G", "2G", "4G", "8G"]),
        };
        let fills = match self.fills.as_slice() {
            [] => fills.iter().map(|fill| (*fill).to_owned()).collect(),
            some => some.to_vec(),
        };
        let named = |name: &String| {
            let names: Vec<&str> = all.iter().map(|mode| mode.name).collect();
            let found = all.iter().find(|mode| mode.name == name).copied();
            found.ok_or_else(|| format!("--modes {name}: one of {}", names.join(", ")))
        };
        let modes = match self.modes.as_slice() {
            [] => all.to_vec(),
            some => some.iter().map(named).collect::<Result<_, _>>()?,
        };
        match self.scale {
            false => Ok(plan::cases(&modes, &fills)),
            true => scale::cases(&modes, &fills),
        }
    }

    /// Of the journal and the results.
    fn name(&self) -> &'static str {
        if self.scale { "scale" } else { "machine" }
    }
}

fn main() -> ExitCode {
    ended(bench(&Options::parse()))
}

fn bench(options: &Options) -> Result<(), String> {
    let folder = options.bench.folder()?;
    let cases = options.cases()?;
    let journal_path = folder.join(options.name()).with_extension("jsonl");
    let journal = if options.bench.no_run {
        Journal::last(&journal_path)
            .map_err(|error| format!("{}: {error}", journal_path.display()))?
    } else {
        let built = built()?;
        let mut journal = Journal::open(&journal_path, &inputs(&built))
            .map_err(|error| format!("{}: {error}", journal_path.display()))?;
        run(&cases, options, &machine(&built), &mut journal)?;
        if !options.scale {
            copy::run(folder)?;
        }
        journal
    };
    let last = journal.entries.last().ok_or("nothing was measured")?;
    let (date, machine) = (last.head.date.clone(), last.head.machine.clone());

    let all = All(cases
        .into_iter()
        .map(|case| Results::of(case, &journal))
        .collect());
    if options.scale {
        let rows = scale::rows(&all);
        let outcome = Outcome {
            name: options.name(),
            command: "make bench-scale",
            date: &date,
            machine: &machine,
            rows: &rows,
            tables: &scale::markdown(&all, &rows, &facts(&date, &machine, &all)),
            figures: &[],
        };
        return outcome.put(folder, options.bench.publish);
    }
    let mut rows = rows::rows(&all);
    rows.extend(copy::rows(folder)?);
    figures::write(&all, folder)?;
    let tables = tables::markdown(&all, &rows, &facts(&date, &machine, &all));
    let outcome = Outcome {
        name: "machine",
        command: "make bench-machine",
        date: &date,
        machine: &machine,
        rows: &rows,
        tables: &tables,
        figures: &figures::FIGURES,
    };
    outcome.put(folder, options.bench.publish)
}

/// Visits every case in each round, unless the journal says that it was.
fn run(
    cases: &[Case],
    options: &Options,
    machine: &Value,
    journal: &mut Journal<Entry>,
) -> Result<(), String> {
    for round in 1..=options.bench.rounds {
        for case in cases {
            let name = case.name();
            let lacking = journal.of(&name).any(Entry::is_lacking);
            if lacking || journal.of(&name).count() >= round {
                continue;
            }
            eprintln!(
                "bench: round {round} of {}, {name}{}",
                options.bench.rounds,
                left(cases, options.bench.rounds, journal)
            );
            let too_large = options.scale && !scale::fits(case, host_mib());
            let entry = match too_large {
                true => not_run(case, machine, journal.inputs()),
                false => visit(case, options.cycles, machine, journal.inputs())?,
            };
            journal
                .add(entry)
                .map_err(|error| format!("the journal: {error}"))?;
        }
    }
    Ok(())
}

/// One run of the command.
fn visit(case: &Case, cycles: usize, machine: &Value, inputs: &str) -> Result<Entry, String> {
    let words = case.words(cycles);
    let started = Instant::now();
    let borrowed: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = lab_cycle(&format!("bench-{}", case.mode.name), &borrowed);
    let entry = Entry {
        head: Head {
            inputs: inputs.to_owned(),
            date: date(),
            machine: machine.clone(),
            case: case.name(),
        },
        words,
        seconds: started.elapsed().as_secs_f64(),
        exit_code: said.code,
        error: last_error(&said),
        cycles: said
            .stdout
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect(),
    };
    for cycle in &entry.cycles {
        eprintln!(
            "bench:   {} in {} s, suspended in {} s",
            cycle["outcome"].as_str().unwrap_or_default(),
            cycle["resume_s"]["total"],
            cycle["suspend_s"]["total"],
        );
    }
    // A command that measured nothing and lacks nothing could not do its work: that is no result.
    if entry.cycles.is_empty() && !entry.is_lacking() {
        return Err(said.all());
    }
    Ok(entry)
}

/// A case that this host cannot run.
fn not_run(case: &Case, machine: &Value, inputs: &str) -> Entry {
    Entry {
        head: Head {
            inputs: inputs.to_owned(),
            date: date(),
            machine: machine.clone(),
            case: case.name(),
        },
        words: Vec::new(),
        seconds: 0.0,
        exit_code: 3,
        error: format!(
            "not run: the host has {:.0} GiB",
            host_mib() as f64 / 1024.0
        ),
        cycles: Vec::new(),
    }
}

fn host_mib() -> u64 {
    memory_bytes() >> 20
}

fn last_error(said: &Said) -> String {
    if said.code == 0 {
        return String::new();
    }
    let error = said.stderr.lines().rfind(|line| !line.trim().is_empty());
    let error = error.unwrap_or_default();
    error.strip_prefix("dormouse: ").unwrap_or(error).to_owned()
}

/// How long the rest will take, from what each case took before.
fn left(cases: &[Case], rounds: usize, journal: &Journal<Entry>) -> String {
    let (mut runs, mut known_s, mut known) = (0, 0.0, 0);
    for case in cases {
        let name = case.name();
        let done: Vec<f64> = journal.of(&name).map(|entry| entry.seconds).collect();
        if journal.of(&name).any(Entry::is_lacking) {
            continue;
        }
        let missing = rounds.saturating_sub(done.len());
        runs += missing;
        if !done.is_empty() {
            known += missing;
            known_s += missing as f64 * done.iter().sum::<f64>() / done.len() as f64;
        }
    }
    if known == 0 {
        return format!("; {runs} runs left");
    }
    // A case that never ran is taken for an average one.
    let left_s = known_s * runs as f64 / known as f64;
    let minutes = Duration::from_secs_f64(left_s).as_secs().div_ceil(60);
    format!("; {runs} runs left, about {minutes} min")
}

/// What `dormouse lab build` has made for this run.
fn built() -> Result<Value, String> {
    let said = dormouse(&["lab", "build", "--json"]);
    if said.code != 0 {
        return Err(said.all());
    }
    serde_json::from_str(&said.stdout).map_err(|error| format!("{error}\n{}", said.all()))
}

/// The artefacts' paths name the digests of all that they are made from.
fn inputs(built: &Value) -> String {
    let mut digest = Sha256::new();
    for key in ["firmware_rom", "rootfs", "payload", "cmdline"] {
        digest.update(built[key].to_string());
    }
    digest.update(emulator());
    digest.finalize()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn emulator() -> String {
    first_line(Command::new("qemu-system-x86_64").arg("--version"))
}

fn machine(built: &Value) -> Value {
    let mut machine = dormouse_tests::bench::machine();
    machine["accelerator"] = json!(dormouse_lab::emulator::accelerator::probe().to_string());
    machine["emulator"] = json!(emulator());
    machine["guest_kernel"] = built["kernel_release"].clone();
    machine
}

/// Under which conditions.
fn facts(date: &str, machine: &Value, all: &All) -> String {
    let measured = all.0.iter().filter(|results| results.attempts > 0);
    let min = measured.map(|results| results.attempts).min();
    let word = |key: &str| machine[key].as_str().unwrap_or("unknown").to_owned();
    format!(
        "{}, {} ({} cores), Linux {}; {}, {}; guest kernel {}. At least {} cycles of each case; \
         medians ± median absolute deviation; × is how many times as long as Suspend-to-CXL.",
        date,
        word("cpu"),
        machine["cores"],
        word("kernel"),
        word("emulator"),
        word("accelerator"),
        word("guest_kernel"),
        min.unwrap_or_default(),
    )
}
