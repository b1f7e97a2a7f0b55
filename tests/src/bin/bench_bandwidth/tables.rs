//! The results as Markdown, for `docs/evaluation/bandwidth.md`.

use std::fmt::Write;

use dormouse_bandwidth::simulate::{Outcome, Policy, kaemmerer};
use dormouse_tests::bench::short;
use serde_json::Value;

use crate::cases::Case;

pub fn markdown(facts: &str, cases: &[Case], rows: &[Value]) -> String {
    let mut text = format!("{facts}\n\n");
    goals(&mut text, rows);
    reproduced(&mut text, cases);
    workloads(&mut text, cases);
    text
}

fn goals(text: &mut String, rows: &[Value]) {
    text.push_str("| measure | case | ours | peer | goal | |\n|---|---|---|---|---|---|\n");
    for row in rows.iter().filter(|row| row["goal"].is_string()) {
        let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| row[key].as_f64().map(short);
        let peer = match number("peer") {
            Some(value) => format!("{}: {value}", word("peer_name")),
            None => word("why"),
        };
        let met = if row["met"] == true { "met" } else { "missed" };
        let _ = writeln!(
            text,
            "| {} | {} | {} {} | {peer} | {} | {met} |",
            word("metric"),
            word("case"),
            number("ours").unwrap_or_default(),
            word("unit"),
            word("goal"),
        );
    }
    text.push('\n');
}

fn reproduced(text: &mut String, cases: &[Case]) {
    text.push_str("Table 2 of Kämmerer 2025 (GiB/s), and the simulator:\n\n");
    text.push_str("| | mean: thesis | simulated | standard deviation: thesis | simulated | RMSE: thesis | simulated |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for (policy, [mean, stddev, rmse]) in kaemmerer::TABLE {
        let case = cases
            .iter()
            .find(|case| case.policy == policy && case.workload == "5 readers, 39 compute");
        let Some(case) = case else { continue };
        let ours = |value: fn(&Outcome) -> f64| {
            let sum: f64 = case.runs.iter().map(value).sum();
            sum / case.runs.len() as f64
        };
        let _ = writeln!(
            text,
            "| {} | {mean:.2} | {:.2} | {stddev:.2} | {:.2} | {rmse:.2} | {:.2} |",
            policy.name(),
            ours(|run| run.bandwidth_gib_s.mean),
            ours(|run| run.bandwidth_gib_s.stddev),
            ours(|run| run.rmse_gib_s),
        );
    }
    text.push('\n');
}

fn workloads(text: &mut String, cases: &[Case]) {
    let mut last = "";
    for case in cases {
        if case.workload != last {
            last = case.workload;
            let _ = writeln!(text, "\n{last}:\n");
            text.push_str("| policy | GiB/s | RMSE | access ns, mean | p99 | 4 MiB block ms, mean ± deviation | CPU s/GiB | compute CPUs | settled, ms | outside afterwards |\n");
            text.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
        }
        let median = |value: fn(&Outcome) -> f64| case.of(value).median;
        let name = match case.policy {
            Policy::Fair => "**fair (ours)**",
            Policy::FairExt => "**fair, sched_ext (ours)**",
            Policy::FairExtUse => "**the same, `idle = \"use\"`**",
            policy => policy.name(),
        };
        let settled: Vec<String> = case
            .settled_ms
            .iter()
            .map(|time| time.map_or("never".to_owned(), |time| format!("{time:.0}")))
            .collect();
        let outside = dormouse_report::stats::Summary::of(case.outside.iter().copied());
        let outside = outside.map(|outside| format!("{:.1} %", outside.median * 100.0));
        let _ = writeln!(
            text,
            "| {name} | {:.2} ± {:.2} | {:.2} | {:.0} | {:.0} | {:.1} ± {:.1} | {:.3} | {:.2} | {} | {} |",
            median(|run| run.bandwidth_gib_s.mean),
            median(|run| run.bandwidth_gib_s.stddev),
            median(|run| run.rmse_gib_s),
            median(|run| run.access_ns_mean),
            median(|run| run.access_ns_p99),
            median(|run| run.block_us.mean / 1000.0),
            median(|run| run.block_us.stddev / 1000.0),
            median(|run| run.cpu_s_per_gib),
            median(|run| run.compute_cpus),
            settled.join(", "),
            outside.unwrap_or_default(),
        );
    }
}
