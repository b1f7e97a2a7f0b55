//! `dormouse bandwidth simulate`.

use std::fmt::Write;

use dormouse_report::output;
use serde::Serialize;
use serde_json::json;

use super::arguments::SimulateArguments;
use super::{CliError, DONE};
use crate::curve::{Curve, GIB};
use crate::simulate::kaemmerer::machine;
use crate::simulate::{Outcome, Policy, Setting, simulate};

/// Means over the runs of one policy.
#[derive(Debug, Serialize)]
struct Verdict {
    policy: &'static str,
    mean_gib_s: f64,
    stddev_gib_s: f64,
    rmse_gib_s: f64,
    access_ns_mean: f64,
    access_ns_p99: f64,
    block_ms_mean: f64,
    cpu_s_per_gib: f64,
    compute_cpus: f64,
    writes_s: f64,
    runs: Vec<Outcome>,
}

impl Verdict {
    fn of(policy: Policy, runs: Vec<Outcome>) -> Self {
        let mean = |of: fn(&Outcome) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        Self {
            policy: policy.name(),
            mean_gib_s: mean(|run| run.bandwidth_gib_s.mean),
            stddev_gib_s: mean(|run| run.bandwidth_gib_s.stddev),
            rmse_gib_s: mean(|run| run.rmse_gib_s),
            access_ns_mean: mean(|run| run.access_ns_mean),
            access_ns_p99: mean(|run| run.access_ns_p99),
            block_ms_mean: mean(|run| run.block_us.mean / 1000.0),
            cpu_s_per_gib: mean(|run| run.cpu_s_per_gib),
            compute_cpus: mean(|run| run.compute_cpus),
            writes_s: mean(|run| run.writes_s),
            runs,
        }
    }
}

pub fn run(arguments: &SimulateArguments) -> Result<u8, CliError> {
    let curve = Curve::find(&arguments.curve)?;
    let threshold = match (arguments.threshold, arguments.latency) {
        (Some(gib_s), _) => gib_s * GIB,
        (None, Some(_)) => curve.max_bandwidth(),
        (None, None) => curve.threshold(),
    };
    let mut policies: Vec<Policy> = arguments.policy.iter().map(|&name| name.into()).collect();
    if policies.is_empty() {
        policies = Policy::ALL.to_vec();
    }
    let mut machine = machine();
    machine.cpus = usize::from(arguments.cpus);
    let setting = |policy, seed| Setting {
        machine,
        curve: curve.clone(),
        tasks: arguments.tasks.0.clone(),
        policy,
        threshold,
        max_latency_ns: arguments.latency,
        compares_curve: false,
        derated: None,
        attribution: arguments.attribution.into(),
        interval_ms: arguments.interval,
        seconds: f64::from(arguments.seconds),
        warm_up_seconds: 20.0,
        window_ms: 500.0,
        seed,
    };
    let verdicts: Vec<Verdict> = policies
        .iter()
        .map(|&policy| {
            let seeds = (0..u64::from(arguments.runs)).map(|run| arguments.seed.wrapping_add(run));
            let runs = seeds.map(|seed| simulate(&setting(policy, seed))).collect();
            Verdict::of(policy, runs)
        })
        .collect();
    if arguments.json {
        output::json(&json!({
            "curve": curve.name,
            "working_point_gib_s": curve.working_point() / GIB,
            "threshold_gib_s": threshold / GIB,
            "max_latency_ns": arguments.latency,
            "most_latency_ns": arguments.latency, // former name, until 0.3
            "cpus": machine.cpus,
            "policies": verdicts,
        }))?;
    } else {
        output::text(&rendered(&curve, arguments.latency, threshold, &verdicts))?;
    }
    Ok(DONE)
}

fn rendered(
    curve: &Curve,
    max_latency_ns: Option<f64>,
    threshold: f64,
    verdicts: &[Verdict],
) -> String {
    let mut text = format!(
        "curve {}: working point {:.2} GiB/s; ",
        curve.name,
        curve.working_point() / GIB
    );
    let _ = match max_latency_ns {
        Some(ns) => writeln!(
            text,
            "threshold: the bandwidth with an access latency of {ns:.0} ns, at most {:.2} GiB/s\n",
            threshold / GIB
        ),
        None => writeln!(text, "threshold {:.2} GiB/s\n", threshold / GIB),
    };
    let _ = writeln!(
        text,
        "{:16} {:>24} {:>10} {:>16} {:>11} {:>9} {:>9}",
        "", "bandwidth GiB/s", "off target", "access ns", "4 MiB block", "CPU time", "compute"
    );
    let _ = writeln!(
        text,
        "{:16} {:>24} {:>10} {:>16} {:>11} {:>9} {:>9}",
        "policy", "mean ± deviation", "RMSE", "mean / p99", "mean ms", "s/GiB", "CPUs"
    );
    for verdict in verdicts {
        let _ = writeln!(
            text,
            "{:16} {:>24} {:>10.2} {:>16} {:>11.2} {:>9.3} {:>9.2}",
            verdict.policy,
            format!("{:.2} ± {:.2}", verdict.mean_gib_s, verdict.stddev_gib_s),
            verdict.rmse_gib_s,
            format!(
                "{:.0} / {:.0}",
                verdict.access_ns_mean, verdict.access_ns_p99
            ),
            verdict.block_ms_mean,
            verdict.cpu_s_per_gib,
            verdict.compute_cpus,
        );
    }
    text
}
