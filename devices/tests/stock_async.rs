//! Graph order beside the stock kernels' schedules on random graphs of the lab's kind: devices that
//! compute or sleep for 50 to 500 µs or 1 to 3 ms in random phases. The seeds are held out: the
//! default threshold was chosen on others (0 to 299).

use dormouse_devices::model::{Direction, Edge, Edges, list_order};
use dormouse_devices::simulate::{Job, Overheads, Problem, Schedule, Setting, simulate};
use dormouse_system::random::Random;

const FIRST_SEED: u64 = 100_000;
const GRAPHS: u64 = 300;
/// Of the lab's machine with 1 ns an instruction (docs/evaluation/devices.md).
const LAB: Overheads = Overheads {
    per_device_ns: 1_102,
    queue_ns: 863,
    wake_ns: 0,
    latency_ns: 43_000,
    switch_ns: 0,
    trace_ns: 0,
};

/// The six phases of one graph.
fn phases(random: &mut Random) -> Vec<Problem> {
    let count = 2 + random.below(59) as usize;
    let mut edges = Vec::new();
    for child in 1..count {
        if random.chance(70) {
            let nearest = 1 + random.below(4.min(child as u64)) as usize;
            edges.push((child - nearest, child));
        }
    }
    for _ in 0..random.below(count as u64 + 1) {
        let [a, b] = [(); 2].map(|()| random.below(count as u64) as usize);
        if a != b && random.chance(60) {
            edges.push((a.min(b), a.max(b)));
        }
    }
    let edges = edges.into_iter().map(|(superior, subordinate)| Edge {
        superior,
        subordinate,
    });
    let edges = Edges::from_candidates(count, edges);
    let list = list_order(&edges, |device| device);
    let buses: Vec<Option<u32>> = (0..count)
        .map(|_| random.chance(10).then(|| random.below(3) as u32))
        .collect();
    let quiet: Vec<bool> = (0..count).map(|_| random.chance(20)).collect();
    (0..6)
        .map(|phase| {
            let jobs = (0..count)
                .map(|device| job(random, quiet[device], buses[device]))
                .collect();
            let direction = match phase {
                0..3 => Direction::Suspend,
                _ => Direction::Resume,
            };
            Problem::new(direction, jobs, edges.clone(), &list)
        })
        .collect()
}

fn job(random: &mut Random, quiet: bool, bus: Option<u32>) -> Job {
    let us = match random.below(10) {
        _ if quiet => 0,
        0 => 1000 + random.below(2001),
        1 | 2 => 50 + random.below(451),
        _ => 0,
    };
    let busy = random.chance(30);
    Job {
        busy_ns: if busy { us * 1000 } else { 0 },
        wait_ns: if busy { 0 } else { us * 1000 },
        bus,
        has_callback: us > 0,
    }
}

/// Both ways together, all phases.
fn total_ns(phases: &[Problem], setting: &Setting) -> f64 {
    let one = |problem: &Problem| {
        let all = vec![true; problem.jobs.len()];
        simulate(problem, &all, setting).makespan_ns
    };
    phases.iter().map(one).sum::<u64>() as f64
}

/// Of ours to the faster stock schedule: the geometric mean, the largest, and how many are above
/// 1.02.
fn beside_stock(threshold_ns: Option<u64>, overheads: Overheads, lab: bool) -> (f64, f64, u32) {
    let (mut logarithms, mut largest, mut behind) = (0.0, 0.0_f64, 0);
    for seed in FIRST_SEED..FIRST_SEED + GRAPHS {
        let phases = phases(&mut Random::new(seed));
        let total = |schedule| {
            let mut setting = Setting {
                overheads,
                one_clock: lab,
                ..Setting::new(schedule, 2)
            };
            if let Some(ns) = threshold_ns {
                setting.wake_threshold_ns = ns;
            }
            total_ns(&phases, &setting)
        };
        let stock = total(Schedule::WorkItems).min(total(Schedule::LeavesFirst));
        let ratio = total(Schedule::Graph) / stock;
        logarithms += ratio.ln();
        largest = largest.max(ratio);
        behind += u32::from(ratio > 1.02);
    }
    let mean = (logarithms / GRAPHS as f64).exp();
    println!("{threshold_ns:?}: mean {mean:.3}, largest {largest:.3}, {behind} above 1.02");
    (mean, largest, behind)
}

#[test]
fn on_random_graphs_ours_is_seldom_behind_the_faster_of_both_stock_schedules() {
    for (overheads, lab) in [(LAB, true), (Overheads::default(), false)] {
        let (mean, largest, behind) = beside_stock(None, overheads, lab);
        assert!(mean < 0.99, "{mean}");
        // Where waking is cheap, two of the 300 graphs are behind by more than 2 %, at most 6 %.
        assert!(largest < 1.10, "{largest}");
        assert!(behind * 20 < GRAPHS as u32, "{behind}");
        // What sleeps for less than a quarter of the threshold keeps a processor from others: the cause of
        // graphs on which stock async was faster.
        let (_, _, with_four_milliseconds) = beside_stock(Some(4_000_000), overheads, lab);
        assert!(behind < with_four_milliseconds);
    }
}
