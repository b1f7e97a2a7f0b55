//! The benchmark of whole-process persistence, with CRIU as its peer: `make bench-process` runs it.
//!
//! Cases alternate in rounds, and the parties of a case follow each other, in another order each
//! round. Each visit is one line of the journal; everything else (results, tables, figures) is
//! made from the journal alone, so an interrupted benchmark goes on, and a failed visit is a
//! result like any other.

mod criu;
mod desk;
mod dump;
mod entry;
mod figures;
mod plan;
mod rows;
mod slowdown;
mod tables;
mod visit;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Parser;
use dormouse_lab::cache::sha256_of_file;
use dormouse_tests::bench::interrupt;
use dormouse_tests::bench::journal::{Head, Journal};
use dormouse_tests::bench::options::KeepingOptions;
use dormouse_tests::bench::outcome::{Outcome, ended};
use dormouse_tests::bench::{date, first_line, machine, memory_bytes};
use dormouse_tests::dormouse_path;
use dormouse_tests::program::compile;
use serde_json::{Value, json};

use entry::Entry;
use plan::{Case, Party, cases};
use rows::Measured;
use visit::{Context, Values, visit};

const COMMAND: &str = "make bench-process";
/// Visits without a result before a case is given up: it has one then.
const TRIES: usize = 2;

/// Whole-process persistence beside CRIU: persist, restore, and the overhead of tracking
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    bench: KeepingOptions,
    /// Where stores and CRIU's images go: memory stands for a CXL device
    #[arg(long, value_name = "DIR", default_value = "/dev/shm/dormouse-bench")]
    place: PathBuf,
    /// Cases whose names begin with one of these words [default: all]
    #[arg(long, value_name = "WORD,…", value_delimiter = ',')]
    cases: Vec<String>,
    /// Only these parties: ours, criu, criu-track-mem, tracked, budgeted, untracked [default: all]
    #[arg(long, value_name = "PARTY,…", value_delimiter = ',')]
    parties: Vec<Party>,
    /// The largest program, MiB
    #[arg(long, alias = "most", value_name = "MIB", default_value_t = 8192)]
    max_mib: u64,
}

impl Options {
    fn measures(&self, party: Party) -> bool {
        self.parties.is_empty() || self.parties.contains(&party)
    }
}

fn main() -> ExitCode {
    interrupt::clean_up_if_interrupted();
    ended(bench(&Options::parse()))
}

fn bench(options: &Options) -> Result<(), String> {
    let folder = options.bench.folder()?;
    let journal_path = folder.join("process.jsonl");
    let journal = if options.bench.no_run {
        Journal::last(&journal_path)
            .map_err(|error| format!("{}: {error}", journal_path.display()))?
    } else {
        run(options, &journal_path)?
    };
    let last = journal.entries.last().ok_or("nothing was measured")?;
    let measured = Measured(&journal);
    let rows = rows::rows(&measured);
    figures::write(&measured, folder)?;
    let tables = tables::markdown(&measured, &rows, &facts(last, &journal));
    let names: Vec<&str> = figures::FIGURES.iter().map(|(name, _)| *name).collect();
    let outcome = Outcome {
        name: "process",
        command: COMMAND,
        date: &last.head.date,
        machine: &last.head.machine,
        rows: &rows,
        tables: &tables,
        figures: &names,
    };
    outcome.put(folder, options.bench.publish)
}

fn run(options: &Options, journal_path: &std::path::Path) -> Result<Journal<Entry>, String> {
    let says = |error: std::io::Error| format!("{}: {error}", journal_path.display());
    fs::create_dir_all(&options.place)
        .map_err(|error| format!("{}: {error}", options.place.display()))?;
    interrupt::adopts_orphans()
        .and_then(|()| interrupt::leaves_nothing(Some(options.place.clone()), interrupt::GOES_ON))
        .map_err(|error| format!("signals: {error}"))?;
    let context = Context {
        load: compile(&options.place, "load.c"),
        place: options.place.clone(),
        criu: match options.measures(Party::Criu) || options.measures(Party::CriuTracking) {
            true => criu::build(),
            false => Err("no party needs it".to_owned()),
        },
    };
    if let Err(why) = &context.criu {
        eprintln!("bench: without CRIU: {why}");
    }
    let mut journal = Journal::open(journal_path, &inputs(&context)?).map_err(says)?;
    let machine = described(&context);
    let wanted = |case: &Case| {
        let name = case.name();
        options.cases.is_empty() || options.cases.iter().any(|word| name.starts_with(word))
    };
    let cases: Vec<Case> = cases(options.max_mib).into_iter().filter(wanted).collect();
    for round in 1..=options.bench.rounds {
        for case in &cases {
            let parties = order(case.parties(), round);
            for party in parties.filter(|party| options.measures(*party)) {
                if is_done(&journal, *case, party, round) {
                    continue;
                }
                eprint!(
                    "bench: round {round} of {}, {}, {}",
                    options.bench.rounds,
                    case.name(),
                    party.name()
                );
                let started = Instant::now();
                let result = visit(*case, party, &context);
                eprintln!(": {}", told(&result));
                let (values, failure) = match result {
                    Ok(values) => (values, None),
                    Err(why) => (Values::new(), Some(why)),
                };
                let entry = Entry {
                    head: Head {
                        inputs: journal.inputs().to_owned(),
                        date: date(),
                        machine: machine.clone(),
                        case: case.name(),
                    },
                    party: party.name().to_owned(),
                    round,
                    seconds: started.elapsed().as_secs_f64(),
                    values,
                    failure,
                };
                journal.add(entry).map_err(says)?;
            }
        }
    }
    let _ = fs::remove_dir_all(&options.place);
    Ok(journal)
}

/// Another party begins in each round.
fn order(parties: &[Party], round: usize) -> impl Iterator<Item = Party> + '_ {
    let all = parties.iter().copied().cycle();
    all.skip(round % parties.len()).take(parties.len())
}

/// This visit was made, or was tried often enough.
fn is_done(journal: &Journal<Entry>, case: Case, party: Party, round: usize) -> bool {
    let name = case.name();
    let visits = journal
        .of(&name)
        .filter(|entry| entry.party == party.name());
    let (failed, good): (Vec<&Entry>, Vec<&Entry>) =
        visits.partition(|entry| entry.failure.is_some());
    good.iter().any(|entry| entry.round == round)
        || good.is_empty() && failed.len() >= TRIES
        || failed.iter().filter(|entry| entry.round == round).count() >= TRIES
}

fn told(result: &Result<Values, String>) -> String {
    match result {
        Ok(values) => {
            let told = values
                .iter()
                .map(|(name, value)| format!("{name} {value:.2}"));
            told.collect::<Vec<_>>().join(", ")
        }
        Err(why) => why.clone(),
    }
}

/// What is measured: another program is another benchmark.
fn inputs(context: &Context) -> Result<String, String> {
    let dormouse = sha256_of_file(&dormouse_path()).map_err(|error| error.to_string())?;
    let load = sha256_of_file(&context.load).map_err(|error| error.to_string())?;
    let criu = context.criu.as_ref().map_or("none", |criu| &criu.version);
    Ok(format!("{}-{}-{criu}", &dormouse[..12], &load[..12]))
}

fn described(context: &Context) -> Value {
    let mut machine = machine();
    machine["memory_bytes"] = json!(memory_bytes());
    machine["criu"] = match &context.criu {
        Ok(criu) => json!(criu.version),
        Err(why) => json!(format!("none: {why}")),
    };
    machine["redis"] = json!(first_line(Command::new("redis-server").arg("--version")));
    machine["place"] = json!(file_system(&context.place));
    machine
}

fn file_system(place: &std::path::Path) -> String {
    first_line(Command::new("stat").args(["-f", "-c", "%T"]).arg(place))
}

/// Under which conditions.
fn facts(last: &Entry, journal: &Journal<Entry>) -> String {
    let word = |key: &str| {
        last.head.machine[key]
            .as_str()
            .unwrap_or("unknown")
            .to_owned()
    };
    let gib = last.head.machine["memory_bytes"].as_f64().unwrap_or(0.0) / f64::from(1 << 30);
    let rounds = journal.entries.iter().map(|entry| entry.round).max();
    format!(
        "{}, {} ({} cores, {gib:.0} GiB), Linux {}; CRIU {}; {}. Stores and images lie on {}. {} \
         rounds; medians ± median absolute deviation; the ratio says how many times better ours is.",
        last.head.date,
        word("cpu"),
        last.head.machine["cores"],
        word("kernel"),
        word("criu"),
        word("redis").split(" sha").next().unwrap_or_default(),
        word("place"),
        rounds.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_party_begins_in_each_round() {
        let parties = [Party::Ours, Party::Criu];
        let names = |round| order(&parties, round).map(Party::name).collect::<Vec<_>>();
        assert_eq!(names(1), ["criu", "ours"]);
        assert_eq!(names(2), ["ours", "criu"]);
    }
}
