//! Properties of the estimator: it finds the true shares, whatever tasks and counters do.

use dormouse_bandwidth::estimate::{
    Activity, CounterSpec, Counts, Estimate, Estimator, Fault, GroupSample, Settings, TaskId,
    TaskSample,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn settings() -> Settings {
    Settings {
        half_life_ms: 50.0,
        counter_spec: CounterSpec {
            bits: 64,
            max_bytes_s: 20e9,
            stopped_after_ms: 500.0,
        },
        write_allocate: true,
        learn_half_life_ms: 2000.0,
    }
}

/// A task with known traffic; the processor samples one access in `sparse`.
#[derive(Clone, Copy, Debug)]
struct Truth {
    pid: i32,
    born_ns: u64,
    group: u32,
    /// In bytes a millisecond, at the program.
    reads: u64,
    writes: u64,
    read_sum: u64,
    write_sum: u64,
}

impl Truth {
    fn new(pid: i32, group: u32, reads: u64, writes: u64) -> Self {
        Self {
            pid,
            born_ns: 0,
            group,
            reads,
            writes,
            read_sum: 0,
            write_sum: 0,
        }
    }

    /// At the device: a write reads its line, too.
    fn bytes_s(&self) -> f64 {
        (self.reads + 2 * self.writes) as f64 * 1000.0
    }
}

/// Groups with their counters, and tasks.
struct World {
    t_ns: u64,
    counts: Vec<Counts>,
    tasks: Vec<Truth>,
    sparse: u64,
    estimator: Estimator,
}

impl World {
    fn new(groups: usize, tasks: Vec<Truth>) -> Self {
        Self {
            t_ns: 0,
            counts: vec![Counts::default(); groups],
            tasks,
            sparse: 200,
            estimator: Estimator::new(settings()),
        }
    }

    fn run(&mut self, ms: u64) {
        self.t_ns += ms * MS;
        for task in &mut self.tasks {
            task.read_sum += task.reads * ms;
            task.write_sum += task.writes * ms;
            let counts = &mut self.counts[task.group as usize];
            counts.read_bytes = counts
                .read_bytes
                .wrapping_add((task.reads + task.writes) * ms);
            counts.write_bytes = counts.write_bytes.wrapping_add(task.writes * ms);
        }
    }

    fn look(&mut self) -> Estimate {
        let groups: Vec<GroupSample> = (0..)
            .zip(&self.counts)
            .map(|(group, &counts)| GroupSample {
                group,
                counts: Some(counts),
            })
            .collect();
        let task = |task: &Truth| TaskSample {
            id: TaskId {
                pid: task.pid,
                start_ns: task.born_ns,
            },
            group: task.group,
            activity: Activity::Counted {
                read_bytes: task.read_sum / self.sparse,
                write_bytes: task.write_sum / self.sparse,
            },
            cpu_ns: self.t_ns / 2,
        };
        let tasks: Vec<TaskSample> = self.tasks.iter().map(task).collect();
        self.estimator.step(self.t_ns, &groups, &tasks)
    }

    fn settle(&mut self) -> Estimate {
        for _ in 0..50 {
            self.run(20);
            self.look();
        }
        self.run(20);
        self.look()
    }

    fn worst_error(&mut self) -> f64 {
        let found = self.settle();
        let error = |(task, found): (&Truth, &dormouse_bandwidth::estimate::TaskEstimate)| {
            (found.bandwidth / task.bytes_s() - 1.0).abs()
        };
        let errors = self.tasks.iter().zip(&found.tasks).map(error);
        errors.fold(0.0, f64::max)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tasks_with_known_traffic_are_found_within_five_percent(
        rates in prop::collection::vec((0u64..3, 1u64..1000, 0u64..1000), 1..20),
    ) {
        let tasks = rates.iter().zip(1..).map(|(&(group, reads, writes), pid)| {
            Truth::new(pid, group as u32, reads * 1000, writes * 1000)
        });
        let mut world = World::new(3, tasks.collect());
        prop_assert!(world.worst_error() < 0.05);
    }

    #[test]
    fn the_sum_of_the_tasks_is_what_the_groups_carry(
        rates in prop::collection::vec((0u64..3, 0u64..1000), 1..20),
    ) {
        let tasks = rates.iter().zip(1..).map(|(&(group, reads), pid)| {
            Truth::new(pid, group as u32, reads * 1000, 0)
        });
        let mut world = World::new(3, tasks.collect());
        let found = world.settle();
        let tasks: f64 = found.tasks.iter().map(|task| task.bandwidth).sum();
        let rest: f64 = found.groups.iter().map(|group| group.unattributed).sum();
        prop_assert!((tasks + rest - found.total()).abs() <= 1e-6 * found.total());
    }
}

#[test]
fn a_forked_task_counts_from_its_birth() {
    let mut world = World::new(1, vec![Truth::new(1, 0, 1_000_000, 0)]);
    world.settle();
    let mut child = Truth::new(2, 0, 1_000_000, 0);
    child.born_ns = world.t_ns;
    world.tasks.push(child);
    world.run(20);
    let found = world.look();
    assert!(
        (found.tasks[1].bandwidth / 1e9 - 1.0).abs() < 0.01,
        "{found:?}"
    );
}

#[test]
fn a_task_that_was_there_before_us_is_not_charged_with_its_past() {
    let mut old = Truth::new(1, 0, 1_000_000, 0);
    old.read_sum = 1 << 40;
    let mut world = World::new(1, vec![Truth::new(2, 0, 1_000_000, 0)]);
    world.settle();
    world.tasks.push(old);
    world.look();
    assert!(world.worst_error() < 0.01);
}

#[test]
fn a_task_that_ends_and_one_with_its_number_are_two() {
    let tasks = vec![Truth::new(1, 0, 900_000, 0), Truth::new(2, 0, 100_000, 0)];
    let mut world = World::new(1, tasks);
    world.settle();
    world.tasks[0] = Truth::new(1, 0, 0, 0);
    world.tasks[0].born_ns = world.t_ns;
    world.run(20);
    let found = world.look();
    assert_eq!(found.tasks[0].bandwidth, 0.0, "{found:?}");
}

#[test]
fn a_task_that_changes_its_group_takes_its_bandwidth_along() {
    let tasks = vec![Truth::new(1, 0, 500_000, 0), Truth::new(2, 1, 500_000, 0)];
    let mut world = World::new(2, tasks);
    world.settle();
    world.tasks[0].group = 1;
    assert!(world.worst_error() < 0.01);
    let found = world.look();
    assert!(found.groups[0].bandwidth < 1000.0);
}

#[test]
fn without_samples_tasks_keep_their_proportions() {
    let tasks = vec![Truth::new(1, 0, 900_000, 0), Truth::new(2, 0, 300_000, 0)];
    let mut world = World::new(1, tasks);
    world.settle();
    world.sparse = u64::MAX;
    // Sampled sums drop to 0 once; from then on there are no samples.
    let found = world.settle();
    let ratio = found.tasks[0].bandwidth / found.tasks[1].bandwidth;
    assert!((ratio - 3.0).abs() < 0.01, "{ratio}");
}

#[test]
fn traffic_of_unwatched_tasks_stays_unattributed() {
    let mut estimator = Estimator::new(settings());
    let mut found = Estimate::default();
    for step in 0..50u64 {
        let group = GroupSample {
            group: 0,
            counts: Some(Counts {
                read_bytes: step * 4_000_000,
                write_bytes: 0,
            }),
        };
        let task = |pid, activity| TaskSample {
            id: TaskId { pid, start_ns: 0 },
            group: 0,
            activity,
            cpu_ns: step * MS,
        };
        let tasks = [
            task(1, Activity::Sampled(1.0)),
            task(0, Activity::UnattributedWeight(3.0)),
        ];
        found = estimator.step(step * 20 * MS, &[group], &tasks);
    }
    let total = found.total();
    assert!(
        (found.tasks[0].bandwidth / total - 0.25).abs() < 0.01,
        "{found:?}"
    );
    assert!(
        (found.groups[0].unattributed / total - 0.75).abs() < 0.01,
        "{found:?}"
    );
}

#[test]
fn a_counter_at_fault_is_named_and_the_last_bandwidth_stays() {
    let mut world = World::new(1, vec![Truth::new(1, 0, 1_000_000, 0)]);
    let before = world.settle();
    world.counts[0].read_bytes = 0;
    world.t_ns += 20 * MS;
    world.tasks[0].read_sum += 1 << 24;
    let found = world.look();
    assert_eq!(found.groups[0].fault, Some(Fault::JumpedBack));
    assert!(!found.is_trusted());
    assert_eq!(found.total(), before.total());
    world.run(20);
    assert!(world.look().is_trusted());
}
