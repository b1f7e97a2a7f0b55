//! The lab beside the simulator: the same device, readers and threshold in both.

use dormouse_bandwidth::curve::{Curve, GIB};
use dormouse_bandwidth::simulate::device::AccessProfile;
use dormouse_bandwidth::simulate::task::{Machine, Spec, Work};
use dormouse_bandwidth::simulate::{Attribution, Outcome, Policy, Setting, kaemmerer, simulate};
use dormouse_tests::dormouse;
use serde_json::Value;

const MIB: f64 = 1048576.0;
const LINE_BYTES: f64 = 64.0;
const RUNS: u64 = 5;
/// Of the lab's machine and its kernel (CONFIG_HZ=250).
const CPUS: usize = 6;
const TICK_NS: i64 = 4_000_000;

/// What the lab's device can do.
struct Device {
    service_ns: f64,
    latency_ns: f64,
    depth: f64,
}

/// Traffic and latency of one phase.
struct Phase {
    total_mib_s: f64,
    latency_us: f64,
    /// Of each reader, of the total of all.
    shares: Vec<f64>,
}

fn number(value: &Value) -> Result<f64, String> {
    value
        .as_f64()
        .ok_or_else(|| format!("{value} is no number"))
}

fn shares(moved: &[f64]) -> Vec<f64> {
    let all: f64 = moved.iter().sum();
    moved.iter().map(|moved| moved / all).collect()
}

impl Phase {
    fn of_lab(report: &Value, name: &str) -> Result<Self, String> {
        let phases = report["phases"].as_array().ok_or("no phases")?;
        let phase = phases.iter().find(|phase| phase["name"] == name);
        let phase = phase.ok_or_else(|| format!("no phase {name:?}"))?;
        let users = phase["users"].as_object().ok_or("no users")?;
        let moved = users.values().map(|user| number(&user["truth_mib_s"]));
        Ok(Self {
            total_mib_s: number(&phase["total_mib_s"])?,
            latency_us: number(&phase["latency_ns"])? / 1000.0,
            shares: shares(&moved.collect::<Result<Vec<_>, _>>()?),
        })
    }

    fn of_simulator(runs: &[Outcome]) -> Self {
        let mean = |of: &dyn Fn(&Outcome) -> f64| {
            runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64
        };
        let readers = runs.first().map_or(0, |run| run.tasks_gib_s.len());
        let moved: Vec<f64> = (0..readers)
            .map(|at| mean(&|run| run.tasks_gib_s[at]))
            .collect();
        Self {
            total_mib_s: mean(&|run| run.bandwidth_gib_s.mean) * GIB / MIB,
            latency_us: mean(&|run| run.access_ns_mean) / 1000.0,
            shares: shares(&moved),
        }
    }
}

/// Latency does not change until the device carries no more.
fn curve(device: &Device) -> Result<Curve, String> {
    let carries = LINE_BYTES * 1e9 / device.service_ns / GIB;
    let idle_ns = device.latency_ns + device.service_ns;
    let text = format!(
        "0,{idle_ns}\n{},{}\n{carries},{}\n",
        carries * 0.999,
        idle_ns * 1.001,
        idle_ns * 1000.0
    );
    Curve::parse("lab", &text).map_err(|error| error.to_string())
}

fn simulated(
    device: &Device,
    readers: usize,
    own_ns: f64,
    limit: Option<f64>,
) -> Result<Phase, String> {
    let curve = curve(device)?;
    let reader = Spec::new(Work::Memory {
        access: AccessProfile {
            lines: device.depth,
            own_ns,
        },
        max_bytes_s: None,
    });
    let setting = |seed| Setting {
        machine: Machine {
            cpus: CPUS,
            tick_ns: TICK_NS,
            ..kaemmerer::machine()
        },
        curve: curve.clone(),
        tasks: vec![reader; readers],
        policy: limit.map_or(Policy::None, |_| Policy::Fair),
        threshold: limit.unwrap_or(GIB),
        max_latency_ns: None,
        compares_curve: false,
        derated: None,
        attribution: Attribution::CpuTime,
        interval_ms: 50.0,
        seconds: 40.0,
        warm_up_seconds: 20.0,
        window_ms: 250.0,
        seed,
    };
    let runs: Vec<Outcome> = (0..RUNS).map(|seed| simulate(&setting(seed))).collect();
    Ok(Phase::of_simulator(&runs))
}

fn percent(lab: f64, simulator: f64) -> String {
    format!("{:+.1} %", 100.0 * (lab / simulator - 1.0))
}

fn line(name: &str, lab: &Phase, simulator: &Phase) -> String {
    let range = |shares: &[f64]| {
        let (low, high) = shares.iter().fold((1.0f64, 0.0f64), |(low, high), &share| {
            (low.min(share), high.max(share))
        });
        format!("{low:.3} to {high:.3}")
    };
    format!(
        "| {name} | {:.3} | {:.3} | {} | {} | {} | {:.0} | {:.0} | {} |",
        lab.total_mib_s,
        simulator.total_mib_s,
        percent(lab.total_mib_s, simulator.total_mib_s),
        range(&lab.shares),
        range(&simulator.shares),
        lab.latency_us,
        simulator.latency_us,
        percent(lab.latency_us, simulator.latency_us)
    )
}

/// Runs the lab, simulates the same, and returns both as a table; an error is a message.
pub fn compare() -> Result<String, String> {
    let words =
        "lab bandwidth --latency --enforce quota --kernel stock --machine bandwidth-latency --json";
    let said = dormouse(&words.split(' ').collect::<Vec<_>>());
    if said.code != 0 {
        return Err(said.all());
    }
    let report: Value = serde_json::from_str(&said.stdout).map_err(|error| error.to_string())?;
    let model = &report["device"];
    let device = Device {
        service_ns: number(&model["service_ns"])?,
        latency_ns: number(&model["latency_ns"])?,
        depth: number(&model["depth"])?,
    };
    let [one, free, limited] =
        ["one reader", "free", "limited"].map(|name| Phase::of_lab(&report, name));
    let (one, free, limited) = (one?, free?, limited?);
    // The time in which a program asks for a line, which is the emulator's: from one reader.
    let took_ns = device.depth * LINE_BYTES * 1e9 / (one.total_mib_s * MIB);
    let own_ns = (took_ns - one.latency_us * 1000.0).max(0.0);
    let threshold = number(&report["threshold_mib_s"])? * MIB;
    let mut lines = vec![
        format!(
            "Linux {}; threshold {:.3} MiB/s of {:.3}; {:.1} µs of a reader's own for each line.",
            report["kernel"].as_str().unwrap_or("?"),
            threshold / MIB,
            number(&report["capacity_mib_s"])?,
            own_ns / 1000.0
        ),
        String::new(),
        "| | total, MiB/s: lab | simulator | | share of a reader: lab | simulator | a read, µs: lab | simulator | |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    lines.push(line(
        "one reader",
        &one,
        &simulated(&device, 1, own_ns, None)?,
    ));
    lines.push(line(
        "four readers",
        &free,
        &simulated(&device, 4, own_ns, None)?,
    ));
    let simulator = simulated(&device, 4, own_ns, Some(threshold))?;
    lines.push(line("four readers, limited", &limited, &simulator));
    Ok(lines.join("\n"))
}
