//! The time of the pure part of a pass: estimate, shares, limits.

use std::hint::black_box;
use std::time::Instant;

use dormouse_bandwidth::allocate::{Controller, Load, Settings};
use dormouse_bandwidth::estimate::{
    Activity, CounterSpec, Counts, Estimator, GroupSample, Settings as EstimateSettings, TaskId,
    TaskSample,
};
use dormouse_report::stats::Summary;
use dormouse_tests::bench::rows::{Better, row, with_bar};
use serde_json::Value;

const TASKS: [u32; 3] = [10, 100, 1000];
const GROUPS: u32 = 4;
const PASSES: u64 = 400;
const INTERVAL_MS: u64 = 50;

/// Times of passes with this number of tasks, in milliseconds.
pub struct Passes {
    pub tasks: u32,
    pub times_ms: Summary,
}

pub fn measure() -> Vec<Passes> {
    TASKS
        .map(|tasks| Passes {
            tasks,
            times_ms: times(tasks),
        })
        .into()
}

fn times(count: u32) -> Summary {
    let mut estimator = Estimator::new(EstimateSettings {
        half_life_ms: 25.0,
        counter_spec: CounterSpec::simulated(),
        write_allocate: true,
        learn_half_life_ms: 0.0,
    });
    let mut controller = Controller::new(Settings::new(4e9));
    let mut limits: Vec<Option<f64>> = vec![None; count as usize];
    let mut times = Vec::new();
    for pass in 1..=PASSES {
        let sum = pass * INTERVAL_MS;
        let groups: Vec<GroupSample> = (0..GROUPS)
            .map(|group| GroupSample {
                group,
                counts: Some(Counts {
                    read_bytes: sum * 2_000_000,
                    write_bytes: sum * 100_000,
                }),
            })
            .collect();
        let task = |task: u32| TaskSample {
            id: TaskId {
                pid: task as i32,
                start_ns: 0,
            },
            group: task % GROUPS,
            activity: Activity::Counted {
                read_bytes: sum * (1000 + u64::from(task * 7919 % 1000)),
                write_bytes: sum * 10,
            },
            cpu_ns: sum * 1_000_000 / u64::from(1 + task % 3),
        };
        let tasks: Vec<TaskSample> = (0..count).map(task).collect();
        let started = Instant::now();
        let estimate = estimator.step(sum * 1_000_000, &groups, &tasks);
        let load = |(at, found): (usize, &dormouse_bandwidth::estimate::TaskEstimate)| Load {
            limit: limits[at],
            held_back: limits[at].is_some(),
            ..Load::new(at as u64, found.bandwidth, found.cpu)
        };
        let loads: Vec<Load> = estimate.tasks.iter().enumerate().map(load).collect();
        let decision = black_box(controller.step(INTERVAL_MS as f64, 0.0, &loads));
        times.push(started.elapsed().as_secs_f64() * 1000.0);
        for (limit, decided) in limits.iter_mut().zip(&decision.limits) {
            *limit = decided.cpu;
        }
    }
    Summary::of(times).expect("times are numbers")
}

pub fn rows(passes: &[Passes]) -> Vec<Value> {
    let row = |passes: &Passes| {
        let row = row(
            "a pass, without reading and writing",
            &format!("{} tasks", passes.tasks),
            "ms",
            Better::Less,
            &passes.times_ms,
            Err("the loop of Kämmerer 2025 takes 30.8 ms, including reading and writing"),
        );
        if passes.tasks == 1000 {
            with_bar(row, Better::Less, 2.0)
        } else {
            row
        }
    };
    passes.iter().map(row).collect()
}
