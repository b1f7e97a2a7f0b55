//! The benchmark of waking: `make bench-wake` runs it.
//!
//! A service of four processes with hot pages scattered at random, and idle neighbours, sleeps and
//! wakes; its pages migrate back in the order `hot-first` or `process-order`, with and without a
//! rate limit. Runs alternate, and `wake.json` gets how soon the service's reads hit DRAM again,
//! how long its requests take meanwhile, and the overhead of detecting hot pages on the way down.
//! `docs/explanation/hot-first.md` describes the method.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use dormouse_lab::Outcome;
use dormouse_report::stats::{Summary, quantile};
use dormouse_tests::bench::{date, machine};
use dormouse_tests::test_folder;
use dormouse_tests::wake::{Waking, service_cycle};
use serde_json::{Value, json};

/// Four shards of 192 MiB, two neighbours of 128 MiB.
const SERVICE: &str = "dormouse-guest service start 4 192 2 128";
const POLICIES: [&str; 2] = ["hot-first", "process-order"];
/// No limit, and one that makes the emulated link as slow beside the emulated processor as a real
/// one is that other traffic uses, too.
const RATES: [Option<&str>; 2] = [None, Some("64M")];
const GOAL_SOONER: f64 = 3.0;
const GOAL_SUSPEND: f64 = 0.9;

/// One run's numbers.
struct Run {
    hit_s: f64,
    waking: Waking,
    suspend_s: f64,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().unwrap_or_else(|| "out/bench".into()));
    let rounds: u64 = words
        .next()
        .map_or(3, |word| word.parse().expect("rounds: a number"));
    let mut rows = Vec::new();
    for rate in RATES {
        // Both policies, round by round.
        let mut pairs: Vec<[Run; 2]> = Vec::new();
        for round in 1..=rounds {
            let mut pair = Vec::new();
            for policy in POLICIES {
                let case = case_name(rate);
                eprintln!("bench: round {round} of {rounds}, {policy}, {case}");
                match run(policy, rate, round) {
                    Ok(run) => pair.push(run),
                    Err(why) => {
                        eprintln!("bench: {policy}, {case}: {why}");
                        return ExitCode::FAILURE;
                    }
                }
            }
            pairs.push(pair.try_into().ok().expect("two policies"));
        }
        rows.extend(rows_of(&case_name(rate), &pairs));
    }
    for row in &rows {
        println!(
            "{:34} {:18} {:>12.4} {:>12.4} {:>7.2}",
            row["metric"].as_str().unwrap_or_default(),
            row["case"].as_str().unwrap_or_default(),
            row["ours"].as_f64().unwrap_or(f64::NAN),
            row["peer"].as_f64().unwrap_or(f64::NAN),
            row["ratio"].as_f64().unwrap_or(f64::NAN),
        );
    }
    let mut emulated = machine();
    emulated["accelerator"] = json!("tcg");
    let result = json!({
        "name": "wake",
        "date": date(),
        "command": "make bench-wake",
        "machine": emulated,
        "rows": rows,
    });
    let path = folder.join("wake.json");
    let text = serde_json::to_string_pretty(&result).expect("plain data");
    if let Err(error) = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, text)) {
        eprintln!("bench: {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    eprintln!("bench: {}", path.display());
    ExitCode::SUCCESS
}

fn case_name(rate: Option<&str>) -> String {
    rate.map_or_else(|| "no limit".into(), |rate| format!("rate={rate}"))
}

fn run(policy: &str, rate: Option<&str>, round: u64) -> Result<Run, String> {
    let name = format!("bench-wake-{policy}");
    let before = format!("{SERVICE} {round}");
    let mut words = vec!["--dram", "1536M"];
    words.extend(["--sleep-argument=--policy", "--sleep-argument", policy]);
    if let Some(rate) = rate {
        words.extend(["--sleep-argument=--rate", "--sleep-argument", rate]);
    }
    let said = service_cycle(&name, &before, "cat /run/service/*.jsonl", &words);
    let cycle = said.cycles().pop().ok_or_else(|| said.all())?;
    if !(cycle.verified && cycle.outcome == Outcome::Resumed) {
        return Err(said.all());
    }
    let waking = Waking::read(&test_folder(&name))?;
    if waking.bad_reads() > 0 {
        return Err("the service read something else than it wrote".into());
    }
    Ok(Run {
        hit_s: waking
            .seconds_until(0.95)
            .ok_or("its reads never stay at 95 % from DRAM")?,
        suspend_s: cycle.suspend_s.total.ok_or("no suspend time")?,
        waking,
    })
}

fn rows_of(case: &str, pairs: &[[Run; 2]]) -> Vec<Value> {
    let each = |value: &dyn Fn(&Run) -> f64| -> [Vec<f64>; 2] {
        [0, 1].map(|which| pairs.iter().map(|pair| value(&pair[which])).collect())
    };
    let latency = |p: f64| -> [Vec<f64>; 2] {
        [0, 1].map(|which| {
            pairs
                .iter()
                .filter_map(|pair| {
                    // Both over the same time: until process order has migrated everything.
                    let latencies = pair[which].waking.latencies_ns(pair[1].waking.home_s());
                    let values: Vec<f64> = latencies.into_iter().map(|ns| ns as f64).collect();
                    quantile(&values, p)
                })
                .collect()
        })
    };
    vec![
        row(
            "95 % of reads from DRAM after",
            case,
            "s",
            each(&|run| run.hit_s),
            Some(GOAL_SOONER),
        ),
        row(
            "request latency p50, modelled",
            case,
            "ns",
            latency(0.5),
            None,
        ),
        row(
            "request latency p99, modelled",
            case,
            "ns",
            latency(0.99),
            None,
        ),
        row(
            "all pages in DRAM after",
            case,
            "s",
            each(&|run| run.waking.home_s()),
            None,
        ),
        row(
            "suspend",
            case,
            "s",
            each(&|run| run.suspend_s),
            Some(GOAL_SUSPEND),
        ),
    ]
}

fn row(
    metric: &str,
    case: &str,
    unit: &str,
    [ours, peer]: [Vec<f64>; 2],
    goal: Option<f64>,
) -> Value {
    let summary = |values: Vec<f64>| Summary::of(values).expect("a value for each round");
    let (ours, peer) = (summary(ours), summary(peer));
    let ratio = peer.median / ours.median;
    let mut row = json!({
        "metric": metric, "case": case, "unit": unit,
        "ours": ours.median, "mad": ours.mad, "n": ours.n,
        "spread": [ours.min, ours.median, ours.max],
        "peer": peer.median, "peer_mad": peer.mad,
        "peer_name": "--policy process-order (process by process, most recently running first)",
        "ratio": ratio,
    });
    if let Some(goal) = goal {
        row["goal"] = json!(format!("ratio >= {goal}"));
        row["met"] = json!(ratio >= goal);
    }
    row
}
