//! The simulated cases and their result rows.

use dormouse_bandwidth::curve::{CurveError, GIB};
use dormouse_bandwidth::simulate::metrics::Band;
use dormouse_bandwidth::simulate::task::{Spec, Work};
use dormouse_bandwidth::simulate::{Outcome, Policy, Setting, kaemmerer, simulate};
use dormouse_report::stats::Summary;
use dormouse_tests::bench::rows::{Better, row, with_bar, with_goal};
use serde_json::Value;

/// When the load changes in the cases with a step.
pub const STEP_S: f64 = 25.0;
/// The definition of settled: moving averages of this length stay within this band
pub const SETTLED: Band = Band {
    span_ms: 250.0,
    relative: 0.1,
};
/// for this time. Later disturbances (readers that share a processor, neighbours that change their
/// behaviour) count as time outside the band.
pub const SETTLED_FOR_MS: f64 = 2000.0;

/// The workload that leaves processors idle.
const IDLE: &str = "5 readers, idle machine";
/// Our policies that have goals.
const OURS: [Policy; 2] = [Policy::Fair, Policy::FairExt];

/// One policy on one workload.
pub struct Case {
    pub workload: &'static str,
    pub policy: Policy,
    pub runs: Vec<Outcome>,
    /// Settling times, in cases with a step.
    pub settled_ms: Vec<Option<f64>>,
    /// The fraction of the time outside the band, from a second after the step on.
    pub outside: Vec<f64>,
}

impl Case {
    /// A value of all runs.
    pub fn of(&self, value: fn(&Outcome) -> f64) -> Summary {
        Summary::of(self.runs.iter().map(value)).expect("simulations give numbers")
    }
}

fn reader(from_s: f64, until_s: f64) -> Spec {
    Spec {
        from_ns: (from_s * 1e9) as i64,
        until_ns: (until_s * 1e9) as i64,
        ..Spec::new(Work::Memory {
            access: kaemmerer::READER,
            max_bytes_s: None,
        })
    }
}

/// The workloads: name, tasks, whether there is a step.
fn workloads() -> Vec<(&'static str, Vec<Spec>, bool)> {
    let forever = 1e9;
    let compute = vec![Spec::new(Work::Compute); 39];
    let with = |readers: Vec<Spec>| [readers, compute.clone()].concat();
    let five = vec![reader(0.0, forever); 5];
    let light = Spec {
        work: Work::Memory {
            access: kaemmerer::READER,
            max_bytes_s: Some(0.3 * GIB),
        },
        ..reader(0.0, forever)
    };
    vec![
        ("5 readers, 39 compute", with(five.clone()), false),
        (
            "10 readers, 39 compute",
            with([five.clone(), five.clone()].concat()),
            false,
        ),
        (IDLE, five, false),
        (
            "2 light readers; 5 heavy ones come",
            with([vec![light; 2], vec![reader(STEP_S, forever); 5]].concat()),
            true,
        ),
        (
            "6 readers; 4 go",
            with([vec![reader(0.0, forever); 2], vec![reader(0.0, STEP_S); 4]].concat()),
            true,
        ),
    ]
}

/// Simulates all cases; all policies get the same random numbers.
pub fn measure(rounds: u64) -> Result<Vec<Case>, CurveError> {
    let mut cases = Vec::new();
    for (workload, tasks, step) in workloads() {
        for policy in Policy::ALL {
            // The two policies differ only where processors are idle.
            if policy == Policy::FairExtUse && workload != IDLE {
                continue;
            }
            eprintln!("bench: {workload}: {}", policy.name());
            let mut setting = Setting {
                tasks: tasks.clone(),
                ..kaemmerer::setting(policy, 5, 39, 0)?
            };
            if step {
                setting.window_ms = 10.0;
                setting.seconds = STEP_S + 15.0;
            }
            let runs: Vec<Outcome> = (1..=rounds)
                .map(|seed| {
                    simulate(&Setting {
                        seed,
                        ..setting.clone()
                    })
                })
                .collect();
            let step_ms = STEP_S * 1000.0;
            let stepped = || runs.iter().filter(|_| step);
            let settled = |run: &Outcome| run.settled_ms(step_ms, SETTLED_FOR_MS, &SETTLED);
            let settled_ms = stepped().map(settled).collect();
            let outside = |run: &Outcome| run.outside(step_ms + 1000.0, &SETTLED);
            let outside = stepped().map(outside).collect();
            cases.push(Case {
                workload,
                policy,
                runs,
                settled_ms,
                outside,
            });
        }
    }
    Ok(cases)
}

/// Blocks take longer where less is moved, and vary more for that alone.
const BLOCK_SPREAD: &str = "block of 4 MiB, standard deviation over mean";

/// A metric, and which direction is better.
type Measure = (&'static str, &'static str, Better, fn(&Outcome) -> f64);

const MEASURES: [Measure; 9] = [
    ("RMSE against the threshold", "GiB/s", Better::Less, |run| {
        run.rmse_gib_s
    }),
    ("mean off the threshold", "%", Better::Less, |run| {
        (run.bandwidth_gib_s.mean / run.threshold_gib_s - 1.0).abs() * 100.0
    }),
    ("standard deviation", "GiB/s", Better::Less, |run| {
        run.bandwidth_gib_s.stddev
    }),
    ("access latency, mean", "ns", Better::Less, |run| {
        run.access_ns_mean
    }),
    ("access latency, p99", "ns", Better::Less, |run| {
        run.access_ns_p99
    }),
    (
        "block of 4 MiB, standard deviation",
        "ms",
        Better::Less,
        |run| run.block_us.stddev / 1000.0,
    ),
    (BLOCK_SPREAD, "of the mean", Better::Less, |run| {
        run.block_us.stddev / run.block_us.mean
    }),
    ("CPU time", "s/GiB", Better::Less, |run| run.cpu_s_per_gib),
    ("compute tasks", "CPUs", Better::More, |run| {
        run.compute_cpus
    }),
];

/// Our policies beside each method of Kämmerer 2025.
pub fn rows(cases: &[Case]) -> Vec<Value> {
    let mut rows = Vec::new();
    for ours in cases.iter().filter(|case| OURS.contains(&case.policy)) {
        let same = |case: &&Case| {
            case.workload == ours.workload
                && kaemmerer::TABLE
                    .iter()
                    .any(|(policy, _)| *policy == case.policy)
        };
        for peer in cases.iter().filter(same) {
            for (metric, unit, better, value) in MEASURES {
                // Without compute tasks there is nothing to compare.
                if metric == "compute tasks" && ours.of(value).max == 0.0 {
                    continue;
                }
                let (mine, theirs) = (ours.of(value), peer.of(value));
                let case = format!("{}, {}{}", ours.workload, peer.policy.name(), by(ours));
                let row = row(
                    metric,
                    &case,
                    unit,
                    better,
                    &mine,
                    Ok((&theirs, peer.policy.name())),
                );
                rows.push(judged(row, metric, ours, peer));
            }
        }
        if !ours.settled_ms.is_empty() {
            let peer = cases
                .iter()
                .find(|case| case.workload == ours.workload && case.policy == Policy::ByTotal);
            rows.push(settled(ours, peer));
        }
    }
    rows
}

/// The mechanism, if it is not quotas.
fn by(ours: &Case) -> &'static str {
    match ours.policy {
        Policy::FairExt => "; by sched_ext",
        _ => "",
    }
}

/// With the goals, on the workloads of Tables 2 and 3 of Kämmerer 2025.
fn judged(row: Value, metric: &str, ours: &Case, peer: &Case) -> Value {
    if ours.workload == "10 readers, 39 compute" && metric == "access latency, mean" {
        return with_goal(row, 1.0);
    }
    if ours.workload != "5 readers, 39 compute" {
        return row;
    }
    match (metric, peer.policy) {
        ("RMSE against the threshold", Policy::ByTotal) => with_bar(row, Better::Less, 0.10),
        ("mean off the threshold", Policy::ByTotal) => with_bar(row, Better::Less, 1.0),
        ("standard deviation", Policy::None) => with_goal(row, 1.0),
        (BLOCK_SPREAD, Policy::None) => with_goal(row, 1.0),
        ("access latency, mean", Policy::None) => with_goal(row, 1.0 / 0.65),
        _ => row,
    }
}

fn settled(ours: &Case, peer: Option<&Case>) -> Value {
    // A run that never settles counts with its full length.
    let times = |case: &Case| {
        let end = 15_000.0;
        Summary::of(case.settled_ms.iter().map(|time| time.unwrap_or(end)))
    };
    let mine = times(ours).expect("there are runs");
    let theirs = peer.and_then(times);
    let theirs = theirs.as_ref().map(|theirs| (theirs, "by-total"));
    let theirs = theirs.ok_or("there is none");
    let row = row(
        "settled after a step",
        &format!("{}{}", ours.workload, by(ours)),
        "ms",
        Better::Less,
        &mine,
        theirs,
    );
    with_bar(row, Better::Less, 300.0)
}
