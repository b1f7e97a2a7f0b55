//! The benchmark: instruction counts of guest programs natively on both cores and translated,
//! cold and warm; sizes; energy. Counts are exact, so each is taken once.

use std::fs;
use std::path::Path;
use std::process::Command;

use dormouse_report::plot::{self, Axis, Bar, Frame};
use serde_json::{Value, json};

use crate::energy;
use crate::error::{OffloadError, io};
use crate::guest::Guest;
use crate::job::Job;
use crate::machine::{self, Native, PROGRAMS};
use crate::outcome::Outcome;
use crate::parts::Parts;

const SEED: u32 = 5;
const ROUNDS: u32 = 10;
const GOAL_ALL: f64 = 1.3;
const GOAL_WORST: f64 = 1.6;
const GOAL_SIZE_BYTES: u64 = 64 << 10;

/// What of a program's counts is meant.
type Of = fn(&Counts) -> u64;

/// One program's counts, in instructions.
#[derive(Debug)]
struct Counts {
    program: &'static str,
    a15: u64,
    m3: u64,
    /// In the stock kernel's layout (linear map at 0xc0000000).
    cold: u64,
    warm: u64,
    /// Where linear addresses are the small core's own.
    identity_warm: u64,
}

fn failed(what: String) -> OffloadError {
    OffloadError::Machine(what)
}

/// Runs a program three times in one layout: the first is cold, the last warm.
fn executed(
    parts: &Parts,
    world: &str,
    program: &str,
    expected: u32,
) -> Result<(Outcome, Outcome), OffloadError> {
    let guest = Guest::read(&parts.file(&format!("guest-{world}.elf")))?;
    let mut job = Job::new(
        guest.address(&format!("run_{program}"))?,
        [SEED, ROUNDS, 0, 0],
    );
    job.runs = 3;
    let (runs, _) = machine::run(parts, &guest, &job)?;
    for run in &runs {
        if !run.returned() || run.registers[0] != expected {
            return Err(failed(format!(
                "ran {program} ({world}) otherwise than the big core: {} {:08x}, not {expected:08x}",
                run.stop, run.registers[0]
            )));
        }
    }
    match runs.as_slice() {
        [cold, _, warm] => Ok((cold.clone(), warm.clone())),
        _ => Err(failed(format!("ran {program} {} times", runs.len()))),
    }
}

fn measure(parts: &Parts, program: &'static str) -> Result<Counts, OffloadError> {
    let (expected, a15) = machine::run_native(parts, Native::A15, program, SEED, ROUNDS)?;
    let (small, m3) = machine::run_native(parts, Native::M3, program, SEED, ROUNDS)?;
    if small != expected {
        return Err(failed(format!(
            "computes {program} otherwise than the big core"
        )));
    }
    let (cold, warm) = executed(parts, "kernel", program, expected)?;
    let (_, identity) = executed(parts, "identity", program, expected)?;
    Ok(Counts {
        program,
        a15,
        m3,
        cold: cold.instructions,
        warm: warm.instructions,
        identity_warm: identity.instructions,
    })
}

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

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logarithms: Vec<f64> = values.map(f64::ln).collect();
    (logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64).exp()
}

/// A row; fewer instructions are better, so the ratio is the peer's over ours.
fn row(
    metric: &str,
    case: &str,
    ours: f64,
    peer: f64,
    peer_name: &str,
    goal: Option<(String, bool)>,
) -> Value {
    let mut row = json!({
        "metric": metric, "case": case, "unit": "instructions",
        "ours": ours, "peer": peer, "peer_name": peer_name, "ratio": peer / ours,
        "n": 1, "spread": [ours, ours, ours],
    });
    if let Some((goal, met)) = goal {
        row["goal"] = json!(goal);
        row["met"] = json!(met);
    }
    row
}

fn rows(all: &[Counts], size_bytes: u64) -> Vec<Value> {
    let mut rows = Vec::new();
    let layouts: [(&str, Of); 2] = [
        ("warm, kernel at 0xc0000000", |c| c.warm),
        ("warm, identity map", |c| c.identity_warm),
    ];
    for (metric, of) in layouts {
        for counts in all {
            let overhead = of(counts) as f64 / counts.m3 as f64;
            let goal = (
                format!("ratio >= {:.3}", 1.0 / GOAL_WORST),
                overhead <= GOAL_WORST,
            );
            rows.push(row(
                metric,
                counts.program,
                of(counts) as f64,
                counts.m3 as f64,
                "M3 native",
                Some(goal),
            ));
        }
        let mean = geometric_mean(all.iter().map(|c| of(c) as f64 / c.m3 as f64));
        let mut total = row(
            metric,
            "geometric mean",
            mean,
            1.0,
            "M3 native",
            Some((format!("ratio >= {:.3}", 1.0 / GOAL_ALL), mean <= GOAL_ALL)),
        );
        total["unit"] = json!("x M3 native");
        rows.push(total);
    }
    for counts in all {
        rows.push(row(
            "cold (translation included)",
            counts.program,
            counts.cold as f64,
            counts.m3 as f64,
            "M3 native",
            None,
        ));
        rows.push(row(
            "warm over the big core",
            counts.program,
            counts.warm as f64,
            counts.a15 as f64,
            "A15 native",
            None,
        ));
    }
    rows.push(json!({
        "metric": "executor's code and constants", "case": "-O2", "unit": "bytes", "ours": size_bytes,
        "peer": GOAL_SIZE_BYTES, "peer_name": "64 KiB", "n": 1,
        "ratio": GOAL_SIZE_BYTES as f64 / size_bytes as f64,
        "goal": "ratio >= 1", "met": size_bytes <= GOAL_SIZE_BYTES,
    }));
    rows.push(json!({
        "metric": "against baseline translation", "case": "all", "unit": "instructions", "ours": null,
        "peer": null, "why": "there is no baseline translation yet",
    }));
    let x = geometric_mean(all.iter().map(|c| c.warm as f64 / c.a15 as f64));
    for platform in energy::platforms(x) {
        rows.push(json!({
            "metric": "energy saved (formula)", "case": platform.name, "unit": "%",
            "ours": platform.ours_percent, "peer": platform.paper_percent,
            "peer_name": "HotMobile 2017, Figure 3b", "n": 1,
            "ratio": platform.ours_percent / platform.paper_percent,
            "executing_share": platform.shares.executing,
        }));
    }
    rows
}

fn draw(all: &[Counts]) -> Result<String, OffloadError> {
    let mut bars = Vec::new();
    for counts in all {
        let a15 = counts.a15 as f64;
        for (series, value) in [
            ("M3 native", counts.m3),
            ("translated, warm, identity map", counts.identity_warm),
            ("translated, warm", counts.warm),
        ] {
            bars.push(Bar::new(counts.program, series, value as f64 / a15));
        }
    }
    let frame = Frame::new(
        "Instructions over the big core's own",
        Axis::new(""),
        Axis::new("x A15 native"),
    );
    plot::bars(&frame, &bars).map_err(|error| failed(format!("cannot be drawn: {error}")))
}

/// Measures everything and writes `offload.json` and `offload.svg`.
///
/// # Errors
/// A tool is missing, or a program gives another result than on the big core.
pub fn run(out: &Path) -> Result<(), OffloadError> {
    let parts = Parts::ready()?;
    let mut all = Vec::new();
    println!(
        "{:10} {:>9} {:>9} {:>9} {:>9} {:>9}  warm/M3  identity/M3",
        "program", "A15", "M3", "cold", "warm", "identity"
    );
    for program in PROGRAMS {
        let c = measure(&parts, program)?;
        println!(
            "{:10} {:>9} {:>9} {:>9} {:>9} {:>9}  {:>7.3}  {:>11.3}",
            c.program,
            c.a15,
            c.m3,
            c.cold,
            c.warm,
            c.identity_warm,
            c.warm as f64 / c.m3 as f64,
            c.identity_warm as f64 / c.m3 as f64,
        );
        all.push(c);
    }
    let result = json!({
        "name": "offload",
        "date": date(),
        "command": "make bench-offload",
        "machine": machine_facts(),
        "rows": rows(&all, code_bytes(&parts)?),
    });
    fs::create_dir_all(out).map_err(io("create", out))?;
    let path = out.join("offload.json");
    let text = serde_json::to_string_pretty(&result).unwrap_or_default();
    fs::write(&path, text).map_err(io("write", &path))?;
    let path = out.join("offload.svg");
    fs::write(&path, draw(&all)?).map_err(io("write", &path))?;
    eprintln!("bench: {}", out.join("offload.json").display());
    Ok(())
}

fn machine_facts() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({"cpu": cpu, "cores": cores, "kernel": kernel.trim(), "accelerator": "tcg, -icount shift=6"})
}

fn date() -> String {
    let said = Command::new("date").arg("--iso-8601").output();
    said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
        .unwrap_or_default()
}
