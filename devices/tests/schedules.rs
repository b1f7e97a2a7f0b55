//! Promises of the simulator, on random graphs: order, the lower bound, list order's sum.

use dormouse_devices::model::{
    Callback, Cycle, Device, DevicePhase, Direction, Edge, Edges, Recording, list_order,
};
use dormouse_devices::simulate::check::broken_promise;
use dormouse_devices::simulate::flags::closure;
use dormouse_devices::simulate::{Job, Overheads, Problem, Schedule, Setting, bound, simulate};
use dormouse_system::random::Random;

/// Any tree of parents with any links on top, those that close a cycle included: a link's ends
/// are drawn from all devices.
fn random_edges(random: &mut Random, count: usize) -> Edges {
    let mut candidates = Vec::new();
    for child in 1..count {
        // Wide, deep or any trees; some devices have no parent.
        let parent = match random.below(4) {
            0 => continue,
            1 => child - 1,
            2 => random.below(child.min(5) as u64) as usize,
            _ => random.below(child as u64) as usize,
        };
        candidates.push((parent, child));
    }
    for _ in 0..random.below(count as u64 * 2) {
        let ends = [(); 2].map(|()| random.below(count as u64) as usize);
        candidates.push((ends[0], ends[1]));
    }
    let candidates = candidates.into_iter().map(|(superior, subordinate)| Edge {
        superior,
        subordinate,
    });
    Edges::from_candidates(count, candidates)
}

fn random_problem(random: &mut Random, most: usize, direction: Direction) -> Problem {
    let count = 1 + random.below(most as u64) as usize;
    let edges = random_edges(random, count);
    let jobs = (0..count)
        .map(|_| {
            let scale = [0, 20_000, 300_000, 20_000_000][random.below(4) as usize];
            let part = random.below(scale + 1);
            let (busy_ns, wait_ns) = match random.below(3) {
                0 => (part, 0),
                1 => (part / 20, part),
                _ => (part / 2, part / 2),
            };
            Job {
                busy_ns,
                wait_ns,
                bus: (part > 0 && random.chance(20)).then(|| random.below(3) as u32),
                has_callback: part > 0,
            }
        })
        .collect();
    let list = list_order(&edges, |device| device);
    Problem::new(direction, jobs, edges, &list)
}

const SCHEDULES: [Schedule; 4] = [
    Schedule::List,
    Schedule::WorkItems,
    Schedule::LeavesFirst,
    Schedule::Graph,
];

fn flags(random: &mut Random, problem: &Problem) -> Vec<bool> {
    let count = problem.jobs.len();
    match random.below(4) {
        0 => vec![true; count],
        1 => vec![false; count],
        2 => (0..count).map(|_| random.chance(60)).collect(),
        _ => {
            let worst: Vec<u64> = problem.jobs.iter().map(Job::duration_ns).collect();
            closure(&problem.edges, &worst, random.below(5_000_000))
        }
    }
}

#[test]
fn on_ten_thousand_graphs_no_device_goes_before_those_it_waits_for_and_none_beats_the_bound() {
    let mut refused = 0;
    for seed in 0..10_000 {
        let mut random = Random::new(seed);
        // Most are small, so that all is tried; every fiftieth has up to 2,000 devices.
        let most = if seed % 50 == 0 { 2_000 } else { 60 };
        let direction = [Direction::Suspend, Direction::Resume][random.below(2) as usize];
        let problem = random_problem(&mut random, most, direction);
        refused += problem.edges.refused.len();
        let cpus = 1 + random.below(8) as usize;
        let bound_ns = bound(&problem, cpus).ns();
        for schedule in SCHEDULES {
            let flags = flags(&mut random, &problem);
            let setting = Setting {
                workers: 1 + random.below(12) as usize,
                sleepers: random.below(6) as usize,
                wake_threshold_ns: random.below(2_000_000),
                overheads: if random.chance(50) {
                    Overheads::NONE
                } else {
                    Overheads::default()
                },
                ..Setting::new(schedule, cpus)
            };
            let outcome = simulate(&problem, &flags, &setting);
            let what = || format!("seed {seed}, {schedule:?}, {cpus} CPUs");
            if let Some(broken) = broken_promise(&problem, &outcome) {
                panic!("{}: {broken}", what());
            }
            assert!(
                outcome.makespan_ns >= bound_ns,
                "{}: {} ns is below the bound of {bound_ns} ns",
                what(),
                outcome.makespan_ns
            );
            let busy_ns: u64 = problem.jobs.iter().map(|job| job.busy_ns).sum();
            assert_eq!(
                outcome.cpu_busy_ns - outcome.overhead_ns,
                busy_ns,
                "{}: all work was done, and once",
                what()
            );
        }
    }
    assert!(refused > 1_000, "links that close cycles were tried");
}

#[test]
fn list_order_takes_the_sum_of_all_devices() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let direction = [Direction::Suspend, Direction::Resume][random.below(2) as usize];
        let problem = random_problem(&mut random, 200, direction);
        let flags = flags(&mut random, &problem);
        let mut setting = Setting::new(Schedule::List, 1 + random.below(4) as usize);
        setting.overheads = Overheads::NONE;
        let outcome = simulate(&problem, &flags, &setting);
        assert_eq!(outcome.makespan_ns, problem.sum_ns());
        setting.overheads.per_device_ns = 700;
        let outcome = simulate(&problem, &flags, &setting);
        assert_eq!(
            outcome.makespan_ns,
            problem.sum_ns() + 700 * problem.jobs.len() as u64
        );
    }
}

#[test]
fn the_same_problem_gives_the_same_outcome() {
    let problem = random_problem(&mut Random::new(7), 500, Direction::Suspend);
    let flags = vec![true; problem.jobs.len()];
    for schedule in SCHEDULES {
        let setting = Setting::new(schedule, 3);
        assert_eq!(
            simulate(&problem, &flags, &setting),
            simulate(&problem, &flags, &setting)
        );
    }
}

/// Devices that depend on nothing, each asleep for a while.
fn sleepers(count: usize, wait_ns: u64) -> Problem {
    let edges = Edges::from_candidates(count, std::iter::empty());
    let job = Job {
        busy_ns: 0,
        wait_ns,
        bus: None,
        has_callback: true,
    };
    let list: Vec<usize> = (0..count).collect();
    Problem::new(Direction::Resume, vec![job; count], edges, &list)
}

#[test]
fn a_sleeping_device_holds_a_worker_but_no_cpu() {
    let problem = sleepers(8, 1_000_000);
    let flags = [true; 8];
    let mut setting = Setting::new(Schedule::Graph, 2);
    setting.overheads = Overheads::NONE;
    setting.sleepers = 0;
    assert_eq!(simulate(&problem, &flags, &setting).makespan_ns, 4_000_000);
    setting.workers = 8;
    assert_eq!(simulate(&problem, &flags, &setting).makespan_ns, 1_000_000);
    // Those that are known to sleep may do so beside the two that need a CPU.
    (setting.workers, setting.sleepers) = (2, 6);
    assert_eq!(simulate(&problem, &flags, &setting).makespan_ns, 1_000_000);
    setting.schedule = Schedule::WorkItems;
    assert_eq!(simulate(&problem, &flags, &setting).makespan_ns, 1_000_000);
}

#[test]
fn devices_of_one_slow_bus_do_not_overlap_under_any_schedule() {
    let mut problem = sleepers(8, 1_000_000);
    for (device, job) in problem.jobs.iter_mut().enumerate() {
        job.bus = (device < 5).then_some(7);
    }
    assert_eq!(bound(&problem, 2).ns(), 5_000_000);
    for schedule in [Schedule::WorkItems, Schedule::LeavesFirst, Schedule::Graph] {
        let mut setting = Setting::new(schedule, 2);
        setting.overheads = Overheads::NONE;
        let outcome = simulate(&problem, &[true; 8], &setting);
        assert_eq!(outcome.makespan_ns, 5_000_000, "{schedule:?}");
    }
}

/// Devices that depend on nothing, and keep a CPU busy for this long.
fn busy(devices: usize, busy_ns: u64) -> Problem {
    let mut problem = sleepers(devices, 0);
    for job in &mut problem.jobs {
        job.busy_ns = busy_ns;
    }
    problem
}

#[test]
fn busy_devices_share_the_cpus() {
    let problem = busy(8, 1_000_000);
    let flags = [true; 8];
    for schedule in [Schedule::WorkItems, Schedule::LeavesFirst, Schedule::Graph] {
        let mut setting = Setting::new(schedule, 2);
        setting.workers = 8;
        setting.overheads = Overheads::NONE;
        assert_eq!(
            simulate(&problem, &flags, &setting).makespan_ns,
            4_000_000,
            "{schedule:?}"
        );
    }
}

#[test]
fn an_item_for_each_quick_device_costs_more_than_it_gains_and_the_graph_order_does_not() {
    let problem = busy(600, 3_000);
    let flags = [true; 600];
    let makespan =
        |schedule| simulate(&problem, &flags, &Setting::new(schedule, 2)).makespan_ns as f64;
    let list = makespan(Schedule::List);
    assert!(makespan(Schedule::WorkItems) > list);
    assert!(makespan(Schedule::Graph) <= list);
}

#[test]
fn a_sync_device_holds_up_async_suspends_that_stand_behind_it_but_not_resumes() {
    // Two devices without relation; the sync one comes first in either walk.
    let jobs = vec![
        Job {
            busy_ns: 0,
            wait_ns: 10_000_000,
            bus: None,
            has_callback: true,
        };
        2
    ];
    let edges = || Edges::from_candidates(2, std::iter::empty());
    let setting = Setting {
        overheads: Overheads::NONE,
        ..Setting::new(Schedule::WorkItems, 2)
    };
    let suspend = Problem::new(Direction::Suspend, jobs.clone(), edges(), &[1, 0]);
    let outcome = simulate(&suspend, &[false, true], &setting);
    assert_eq!(outcome.makespan_ns, 20_000_000);
    let resume = Problem::new(Direction::Resume, jobs, edges(), &[0, 1]);
    let outcome = simulate(&resume, &[false, true], &setting);
    assert_eq!(outcome.makespan_ns, 10_000_000);
    // Since 6.17 leaves start before the walk.
    let leaves_first = Setting {
        schedule: Schedule::LeavesFirst,
        ..setting
    };
    let outcome = simulate(&suspend, &[false, true], &leaves_first);
    assert_eq!(outcome.makespan_ns, 10_000_000);
}

/// Two processors that count their instructions on one clock gain nothing where there is only
/// overhead, and all that devices compute.
#[test]
fn on_one_clock_only_the_devices_own_work_is_done_side_by_side() {
    let together_ns = |busy_ns: u64, per_device_ns: u64, one_clock: bool| {
        let job = Job {
            busy_ns,
            has_callback: true,
            ..Job::default()
        };
        let edges = Edges::from_candidates(2, std::iter::empty());
        let problem = Problem::new(Direction::Resume, vec![job; 2], edges, &[0, 1]);
        let overheads = Overheads {
            per_device_ns,
            ..Overheads::NONE
        };
        let setting = Setting {
            overheads,
            one_clock,
            ..Setting::new(Schedule::WorkItems, 2)
        };
        simulate(&problem, &[true, true], &setting).makespan_ns
    };
    assert_eq!(together_ns(0, 1_000_000, false), 1_000_000);
    assert_eq!(together_ns(0, 1_000_000, true), 2_000_000);
    assert_eq!(together_ns(1_000_000, 0, true), 1_000_000);
    // Longer than a turn, and the second half beside work.
    assert_eq!(together_ns(10_000_000, 5_000_000, true), 20_000_000);
}

#[test]
fn what_tracing_cost_is_taken_off_each_callback() {
    let mut recording = Recording::default();
    recording.graph.devices = vec![Device::default(); 2];
    let callback = |device, begin_ns, end_ns, busy_ns| Callback {
        device,
        phase: DevicePhase::Suspend,
        begin_ns,
        end_ns,
        level: String::new(),
        thread: 0,
        busy_ns,
        delayed_ns: 0,
        error: 0,
    };
    let cycle = Cycle {
        callbacks: vec![
            callback(0, 0, 5_000, Some(3_000)),
            callback(1, 5_000, 6_000, None),
        ],
        ..Cycle::default()
    };
    let times = |recording: &Recording| {
        let problem = Problem::of(recording, &cycle, DevicePhase::Suspend);
        let times = problem.jobs.iter().map(|job| (job.busy_ns, job.wait_ns));
        times.collect::<Vec<_>>()
    };
    assert_eq!(times(&recording), [(3_000, 2_000), (1_000, 0)]);
    recording.overheads = Some(Overheads {
        trace_ns: 1_500,
        ..Overheads::NONE
    });
    assert_eq!(times(&recording), [(1_500, 2_000), (0, 0)]);
}

/// 300 devices below a slow one, in the list before another slow one: their items wait, and the
/// kernel's work queue begins no more.
#[test]
fn work_items_that_wait_keep_others_from_beginning() {
    let slow = Job {
        wait_ns: 10_000_000,
        has_callback: true,
        ..Job::default()
    };
    let below = |count: usize| {
        let mut jobs = vec![Job::default(); count + 2];
        jobs[0] = slow;
        jobs[count + 1] = slow;
        let candidates = (1..=count).map(|subordinate| Edge {
            superior: 0,
            subordinate,
        });
        let edges = Edges::from_candidates(count + 2, candidates);
        let list: Vec<usize> = (0..count + 2).collect();
        let problem = Problem::new(Direction::Resume, jobs, edges, &list);
        let setting = Setting {
            overheads: Overheads::NONE,
            ..Setting::new(Schedule::WorkItems, 2)
        };
        simulate(&problem, &vec![true; count + 2], &setting).makespan_ns
    };
    assert_eq!(below(200), 10_000_000);
    assert_eq!(below(300), 20_000_000);
}

#[test]
fn the_graph_order_is_never_slower_than_list_order() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let direction = [Direction::Suspend, Direction::Resume][random.below(2) as usize];
        let mut problem = random_problem(&mut random, 120, direction);
        // Where all wait for one bus, waking others gains nothing, and costs a little each time.
        for job in &mut problem.jobs {
            job.bus = None;
        }
        let flags = vec![true; problem.jobs.len()];
        let cpus = 2 + random.below(6) as usize;
        let list = simulate(&problem, &flags, &Setting::new(Schedule::List, cpus));
        let setting = Setting::new(Schedule::Graph, cpus);
        let graph = simulate(&problem, &flags, &setting);
        // What waking one worker costs is not known to be gained before.
        let costs = setting.overheads;
        let allowed_ns = costs.wake_ns + costs.latency_ns + 2 * costs.switch_ns;
        assert!(
            graph.makespan_ns <= list.makespan_ns + allowed_ns,
            "seed {seed}: {} ns, in list order {} ns",
            graph.makespan_ns,
            list.makespan_ns
        );
    }
}

#[test]
fn devices_that_may_not_be_async_keep_the_order_of_the_list() {
    let mut random = Random::new(11);
    for _ in 0..200 {
        let problem = random_problem(&mut random, 100, Direction::Suspend);
        let flags: Vec<bool> = (0..problem.jobs.len()).map(|_| random.chance(50)).collect();
        let setting = Setting {
            workers: 6,
            ..Setting::new(Schedule::Graph, 4)
        };
        let outcome = simulate(&problem, &flags, &setting);
        let sync: Vec<usize> = problem
            .walk
            .iter()
            .copied()
            .filter(|&d| !flags[d])
            .collect();
        for pair in sync.windows(2) {
            assert!(outcome.spans[pair[1]].0 >= outcome.spans[pair[0]].1);
        }
    }
}
