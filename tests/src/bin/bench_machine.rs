//! The benchmark of Suspend-to-CXL: `make bench-machine` runs it.
//!
//! Alternates the cases in rounds, so that a machine whose speed drifts slows all of them, and
//! writes `machine.json` as `docs/cli.md` describes benchmark results. What is compared:
//!
//! - resume at the largest fill against the smallest: it should not depend on what users fill;
//! - migration with all CPUs against the seed's method, one process after the other;
//! - firmware's copy routine with its digest against memcpy and the same digest (copy_bench).

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use dormouse_tests::{Cycle, dormouse_path, lab_cycle};
use serde_json::{Value, json};

const DRAM: &str = "1536M";
const CXL: &str = "2G";
const FILLS: [&str; 3] = ["128M", "448M", "768M"];

struct Case {
    name: String,
    fill: &'static str,
    sleep_arguments: &'static [&'static str],
    cycles: Vec<Cycle>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().unwrap_or_else(|| "out/bench".into()));
    let rounds: usize = words
        .next()
        .map_or(3, |word| word.parse().expect("rounds: a number"));

    let mut cases: Vec<Case> = FILLS
        .iter()
        .map(|fill| Case::new(&format!("fill={fill}"), fill, &[]))
        .collect();
    let largest = FILLS[FILLS.len() - 1];
    cases.push(Case::new("seed", largest, &["--sleep-argument=--jobs=1"]));
    for round in 1..=rounds {
        for case in &mut cases {
            eprintln!("bench: round {round} of {rounds}, {}", case.name);
            if let Err(why) = case.run() {
                eprintln!("bench: {}: {why}", case.name);
                return ExitCode::FAILURE;
            }
        }
    }

    let mut rows = rows(&cases);
    match copy_rows(&folder) {
        Ok(more) => rows.extend(more),
        Err(why) => {
            eprintln!("bench: the copy benchmark: {why}");
            return ExitCode::FAILURE;
        }
    }
    print_table(&rows);
    let result = json!({
        "name": "machine",
        "date": date(),
        "command": "make bench-machine",
        "machine": machine(),
        "rows": rows,
    });
    let path = folder.join("machine.json");
    fs::write(
        &path,
        serde_json::to_string_pretty(&result).expect("plain data"),
    )
    .expect("the result can be written");
    eprintln!("bench: {}", path.display());
    ExitCode::SUCCESS
}

impl Case {
    fn new(name: &str, fill: &'static str, sleep_arguments: &'static [&'static str]) -> Case {
        Case {
            name: name.into(),
            fill,
            sleep_arguments,
            cycles: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let mut words = vec!["--dram", DRAM, "--cxl", CXL, "--fill", self.fill];
        words.extend_from_slice(self.sleep_arguments);
        let said = lab_cycle(&format!("bench-{}", self.name), &words);
        let cycle = said.cycles().pop().ok_or_else(|| said.all())?;
        if !(cycle.verified && cycle.outcome == "resumed") {
            return Err(said.all());
        }
        self.cycles.push(cycle);
        Ok(())
    }

    fn sorted(&self, value: impl Fn(&Cycle) -> Option<f64>) -> Vec<f64> {
        let mut values: Vec<f64> = self.cycles.iter().filter_map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

fn row(metric: &str, case: &str, unit: &str, ours: &[f64], peer: Option<(&[f64], &str)>) -> Value {
    let mut row = json!({
        "metric": metric, "case": case, "unit": unit, "ours": median(ours), "n": ours.len(),
        "spread": [ours[0], median(ours), ours[ours.len() - 1]],
    });
    match peer {
        Some((peer, name)) => {
            row["peer"] = json!(median(peer));
            row["peer_name"] = json!(name);
            row["ratio"] = json!(median(peer) / median(ours));
        }
        None => {
            row["peer"] = Value::Null;
            row["why"] = json!("kept for orientation; hibernation is not measured yet");
        }
    }
    row
}

fn with_goal(mut row: Value, goal: f64) -> Value {
    row["goal"] = json!(format!("ratio >= {goal}"));
    row["met"] = json!(row["ratio"].as_f64().is_some_and(|ratio| ratio >= goal));
    row
}

fn rows(cases: &[Case]) -> Vec<Value> {
    let resume = |case: &Case| case.sorted(|cycle| cycle.resume_s.total);
    let migrate = |case: &Case| case.sorted(|cycle| cycle.suspend_s.migrate);
    let fills = &cases[..FILLS.len()];
    let (smallest, largest) = (&fills[0], &fills[FILLS.len() - 1]);
    let seed = &cases[FILLS.len()];

    let mut rows = Vec::new();
    for case in fills {
        let peer = (resume(smallest), format!("ours at {}", smallest.name));
        let row = row(
            "resume",
            &case.name,
            "s",
            &resume(case),
            Some((&peer.0, &peer.1)),
        );
        rows.push(with_goal(row, 0.909));
    }
    for case in fills {
        let total = case.sorted(|cycle| cycle.suspend_s.total);
        rows.push(row("suspend", &case.name, "s", &total, None));
    }
    let peer = migrate(seed);
    let name = "one thread, process after process (the seed's method)";
    rows.push(row(
        "migrate",
        &largest.name,
        "s",
        &migrate(largest),
        Some((&peer, name)),
    ));
    for case in fills {
        rows.push(row(
            "home",
            &case.name,
            "s",
            &case.sorted(|cycle| cycle.home_s),
            None,
        ));
        let saved = case.sorted(|cycle| Some(cycle.saved_bytes as f64));
        rows.push(row("saved", &case.name, "bytes", &saved, None));
    }
    rows
}

/// The rows of the image crate's own benchmark.
fn copy_rows(folder: &std::path::Path) -> Result<Vec<Value>, String> {
    let path = folder.join("copy.json");
    let status = Command::new(dormouse_path().with_file_name("examples/copy_bench"))
        .arg("--json")
        .arg(&path)
        .status()
        .map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("it ended with {status}"));
    }
    let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let result: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let rows = result.get("rows").unwrap_or(&result).as_array().cloned();
    rows.ok_or_else(|| "it wrote no rows".into())
}

fn print_table(rows: &[Value]) {
    println!(
        "{:26} {:14} {:>14} {:>14} {:>7}  goal",
        "metric", "case", "ours", "peer", "ratio"
    );
    for row in rows {
        let number = |key: &str| row[key].as_f64().map_or("-".into(), |v| format!("{v:.3}"));
        println!(
            "{:26} {:14} {:>14} {:>14} {:>7}  {}",
            row["metric"].as_str().unwrap_or(""),
            row["case"].as_str().unwrap_or(""),
            number("ours"),
            number("peer"),
            number("ratio"),
            match (row["goal"].as_str(), row["met"].as_bool()) {
                (Some(goal), Some(true)) => format!("{goal}: met"),
                (Some(goal), _) => format!("{goal}: missed"),
                _ => String::new(),
            }
        );
    }
}

fn machine() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({"cpu": cpu, "cores": cores, "kernel": kernel.trim(), "accelerator": "tcg"})
}

fn date() -> String {
    let said = Command::new("date")
        .arg("--iso-8601")
        .output()
        .expect("date can be run");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}
