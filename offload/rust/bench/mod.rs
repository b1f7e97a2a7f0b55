//! The benchmark: measures, judges against the goals, writes `offload.json`, `offload.svg` and
//! `offload.md`, and on demand puts the last two into the documentation.

pub mod lib_tests;
pub mod measure;
pub mod tables;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::bench::lib_tests::{LibTest, LibTests, mean_and_worst};
use crate::bench::measure::{Counts, mean, measure_all, over};
use crate::error::{OffloadError, io};
use crate::machine::job::OPTIONS;
use crate::parts::Parts;

const GOAL_ALL: f64 = 1.3;
const GOAL_WORST: f64 = 1.6;
/// Of the kernel's own tests.
const GOAL_TESTS_WORST: f64 = 2.0;
const GOAL_TESTS_COLD: f64 = 10.0;
const GOAL_TESTS_INTERPRETED: f64 = 1.0;
const GOAL_BASELINE: f64 = 8.0;
const GOAL_SIZE_BYTES: u64 = 64 << 10;
const BEGIN: &str = "<!-- begin: make bench-offload -->";
const END: &str = "<!-- end: make bench-offload -->";

/// What of a program's counts is meant.
type Of = fn(&Counts) -> u64;

/// Bytes of the executor's code and constants.
fn code_bytes(parts: &Parts) -> Result<u64, OffloadError> {
    use object::{Object, ObjectSection, SectionKind};
    let path = parts.file("offload.elf");
    let data = fs::read(&path).map_err(io("read", &path))?;
    let file = object::File::parse(&*data).map_err(|error| OffloadError::BadElf {
        path,
        reason: error.to_string(),
    })?;
    Ok(file
        .sections()
        .filter(|s| matches!(s.kind(), SectionKind::Text | SectionKind::ReadOnlyData))
        .map(|section| section.size())
        .sum())
}

/// A row; fewer instructions are better, so the ratio is the peer's over ours.
fn row(
    metric: &str,
    case: &str,
    ours: f64,
    peer: f64,
    peer_name: &str,
    goal: Option<f64>,
) -> Value {
    let mut row = json!({
        "metric": metric, "case": case, "unit": "instructions",
        "ours": ours, "peer": peer, "peer_name": peer_name, "ratio": peer / ours,
        "n": 1, "spread": [ours, ours, ours],
    });
    if let Some(goal) = goal {
        row["goal"] = json!(format!("ratio >= {goal:.3}"));
        row["met"] = json!(peer / ours >= goal);
    }
    row
}

fn mean_row(metric: &str, ours: f64, peer: f64, peer_name: &str, goal: Option<f64>) -> Value {
    let mut row = row(metric, "geometric mean", ours, peer, peer_name, goal);
    row["unit"] = json!(format!("x {peer_name}"));
    row
}

fn warm_rows(all: &[Counts], metric: &str, of: Of, rows: &mut Vec<Value>) {
    for c in all {
        let (ours, peer) = (of(c) as f64, c.m3 as f64);
        let goal = Some(1.0 / GOAL_WORST);
        rows.push(row(metric, c.program, ours, peer, "M3 native", goal));
    }
    let overhead = mean(all, |c| over(of(c), c.m3));
    let goal = Some(1.0 / GOAL_ALL);
    rows.push(mean_row(metric, overhead, 1.0, "M3 native", goal));
}

/// The kernel's own tests: mean and worst of each half.
fn test_rows(all: &LibTests, rows: &mut Vec<Value>) {
    type Figure = (&'static str, fn(&LibTest) -> f64, Option<f64>, Option<f64>);
    let figures: [Figure; 8] = [
        (
            "warm, A32, kernel at 0xc0000000",
            |t| t.a32.warm,
            Some(GOAL_ALL),
            Some(GOAL_TESTS_WORST),
        ),
        (
            "warm, A32, identity map",
            |t| t.identity_a32.warm,
            Some(GOAL_ALL),
            Some(GOAL_TESTS_WORST),
        ),
        (
            "warm, T32, kernel at 0xc0000000",
            |t| t.t32.warm,
            Some(GOAL_ALL),
            Some(GOAL_TESTS_WORST),
        ),
        (
            "warm, T32, identity map",
            |t| t.identity_t32.warm,
            Some(GOAL_ALL),
            Some(GOAL_TESTS_WORST),
        ),
        ("cold, A32", |t| t.a32.cold, Some(GOAL_TESTS_COLD), None),
        ("cold, T32", |t| t.t32.cold, Some(GOAL_TESTS_COLD), None),
        (
            "interpreted in 1,000, A32",
            |t| t.a32.interpreted,
            None,
            Some(GOAL_TESTS_INTERPRETED),
        ),
        (
            "interpreted in 1,000, T32",
            |t| t.t32.interpreted,
            None,
            Some(GOAL_TESTS_INTERPRETED),
        ),
    ];
    for (half, held_out) in [("tuned on", false), ("held out", true)] {
        let count = all.tests.iter().filter(|t| t.held_out == held_out).count();
        for (name, of, mean_goal, worst_goal) in &figures {
            let (mean, worst) = mean_and_worst(&all.tests, held_out, of);
            for (what, value, goal) in [
                ("geometric mean", mean, mean_goal),
                ("worst", worst, worst_goal),
            ] {
                // The mean of what may be 0 says nothing.
                if what == "geometric mean" && mean_goal.is_none() {
                    continue;
                }
                let mut row = json!({
                    "metric": format!("tests of lib/, {half}: {name}"), "case": what, "unit": "x M3 native",
                    "ours": value, "peer": 1.0, "peer_name": "M3 native", "ratio": 1.0 / value,
                    "n": count, "spread": [value, value, value],
                });
                if let Some(goal) = goal {
                    row["goal"] = json!(format!("ours <= {goal}"));
                    row["met"] = json!(value <= *goal);
                }
                rows.push(row);
            }
        }
    }
}

fn rows(all: &[Counts], tests: &LibTests, size_bytes: u64) -> Vec<Value> {
    let mut rows = Vec::new();
    let layouts: [(&str, Of); 4] = [
        ("warm, A32, kernel at 0xc0000000", |c| c.ours.warm),
        ("warm, A32, identity map", |c| c.identity.warm),
        ("warm, T32, kernel at 0xc0000000", |c| c.ours_t32.warm),
        ("warm, T32, identity map", |c| c.identity_t32.warm),
    ];
    for (metric, of) in layouts {
        warm_rows(all, metric, of, &mut rows);
    }
    for c in all {
        let (cold, warm) = (c.ours.cold as f64, c.ours.warm as f64);
        let cases = [
            (
                "cold (translation included)",
                cold,
                c.m3 as f64,
                "M3 native",
            ),
            ("warm over the big core", warm, c.a15 as f64, "A15 native"),
            (
                "against baseline translation",
                warm,
                c.baseline.warm as f64,
                "baseline",
            ),
        ];
        for (metric, ours, peer, name) in cases {
            rows.push(row(metric, c.program, ours, peer, name, None));
        }
    }
    let gain = mean(all, |c| over(c.baseline.warm, c.ours.warm));
    let goal = Some(GOAL_BASELINE);
    rows.push(mean_row(
        "against baseline translation",
        1.0,
        gain,
        "ours",
        goal,
    ));
    for (index, (name, _)) in OPTIONS.iter().enumerate() {
        let without = mean(all, |c| over(c.without[index], c.ours.warm));
        let added = mean(all, |c| over(c.added[index], c.m3));
        rows.push(mean_row(
            &format!("without {name}"),
            1.0,
            without,
            "ours",
            None,
        ));
        rows.push(mean_row(
            &format!("baseline and all up to {name}"),
            added,
            1.0,
            "M3 native",
            None,
        ));
    }
    test_rows(tests, &mut rows);
    rows.push(json!({
        "metric": "executor's code and constants", "case": "all", "unit": "bytes",
        "ours": size_bytes, "peer": GOAL_SIZE_BYTES, "peer_name": "64 KiB", "n": 1,
        "ratio": GOAL_SIZE_BYTES as f64 / size_bytes as f64,
        "goal": "ratio >= 1", "met": size_bytes <= GOAL_SIZE_BYTES,
    }));
    rows
}

/// Measures everything and writes `offload.json`, `offload.svg` and `offload.md`; with `publish`
/// the last two also into that folder of documentation.
///
/// # Errors
/// A tool is missing, or a program gives another result than on the big core.
pub fn run(out: &Path, publish: Option<&Path>) -> Result<(), OffloadError> {
    let parts = Parts::ready()?;
    let tests = lib_tests::measure(&parts)?;
    let all = measure_all(&parts)?;
    let size = code_bytes(&parts)?;
    let machine = machine_facts();
    let fact = |name: &str| machine[name].as_str().unwrap_or_default().to_owned();
    let facts = format!(
        "{}, {}; {}. Seed {}, {} rounds; instructions, counted under `-icount`, so each once.",
        date(),
        fact("cpu"),
        fact("emulator"),
        crate::bench::measure::SEED,
        crate::bench::measure::ROUNDS,
    );
    let result = json!({
        "name": "offload",
        "date": date(),
        "command": "make bench-offload",
        "machine": machine,
        "rows": rows(&all, &tests, size),
    });
    let page = tables::page(&all, &tests, size, &facts);
    let figure = tables::figure(&all)?;
    fs::create_dir_all(out).map_err(io("create", out))?;
    let text = serde_json::to_string_pretty(&result).unwrap_or_default();
    for (name, text) in [
        ("offload.json", &text),
        ("offload.svg", &figure),
        ("offload.md", &page),
    ] {
        let path = out.join(name);
        fs::write(&path, text).map_err(io("write", &path))?;
    }
    println!("{page}");
    eprintln!("bench: {}", out.join("offload.json").display());
    publish.map_or(Ok(()), |docs| into_page(docs, &page, &figure))
}

/// Replaces what is between the marks of `evaluation/offload.md`, and the figure.
fn into_page(docs: &Path, page: &str, figure: &str) -> Result<(), OffloadError> {
    let path = docs.join("evaluation/figures/offload.svg");
    fs::write(&path, figure).map_err(io("write", &path))?;
    let path = docs.join("evaluation/offload.md");
    let text = fs::read_to_string(&path).map_err(io("read", &path))?;
    let replaced = between_marks(&text, page).ok_or_else(|| {
        OffloadError::Usage(format!(
            "{}: {BEGIN} and {END} are not there",
            path.display()
        ))
    })?;
    fs::write(&path, replaced).map_err(io("write", &path))
}

fn between_marks(text: &str, page: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!(
        "{before}{BEGIN}\n\n{}\n\n{END}{after}",
        page.trim()
    ))
}

fn machine_facts() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let output = Command::new("qemu-system-arm").arg("--version").output();
    let emulator = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    json!({
        "cpu": cpu, "cores": cores, "kernel": kernel.trim(),
        "emulator": emulator.lines().next().unwrap_or_default(),
        "accelerator": "tcg, -icount shift=6",
    })
}

fn date() -> String {
    let output = Command::new("date").arg("--iso-8601").output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let once = between_marks(&text, "new\n").unwrap();
        assert_eq!(once, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(between_marks("no marks", "new"), None);
    }
}
