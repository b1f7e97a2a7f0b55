//! Who uses how much of a CXL device: a group's counter times each task's share in the group.
//!
//! ```text
//!  group's counters ──follow──▶ bytes a second ─┐
//!  tasks' activity ──share of the group───────▶ × ──EWMA──▶ bandwidth of each task
//! ```
//!
//! Source: Kämmerer (2025), section 4.3.2, equation 3; the average has a half-life in time instead
//! of a factor per sample, tasks may come, go and change groups, and counters are not believed
//! blindly ([`counter`]). Where nobody samples what tasks access, what a CPU second of each moves is
//! learnt ([`worth`]).

pub mod counter;
pub mod ewma;
mod scale;
pub mod worth;

use std::collections::HashMap;

pub use counter::{Counts, Fault, Nature};
use counter::{Flow, Follower};
use ewma::Ewma;
use scale::Scale;
use worth::{Part, Worth};

/// A task; its start time tells it from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    pub pid: i32,
    /// In nanoseconds, on the clock of the samples.
    pub start_ns: u64,
}

/// What is known of a task's use of the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activity {
    /// Bytes since the task began, as sampled by the processor: of loads and of stores.
    Counted { read_bytes: u64, write_bytes: u64 },
    /// A weight for this interval: CPU time × resident CXL pages, for instance. It is a first guess
    /// where [`Settings::learn_half_life_ms`] is set.
    Weight(f64),
    /// A weight for this interval that samples of the task's accesses have told.
    Sampled(f64),
    /// Bytes that it moved in this interval, as samples of all that the group moved tell.
    Moved(f64),
    /// The same, of nobody who is known: it is unattributed.
    Nobody(f64),
}

/// One task, now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskSample {
    pub id: TaskId,
    /// The monitoring group that it uses.
    pub group: u32,
    pub activity: Activity,
    /// CPU time since it began.
    pub cpu_ns: u64,
}

/// One monitoring group, now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupSample {
    pub group: u32,
    /// Nothing: they could not be read.
    pub counts: Option<Counts>,
}

/// How the estimator behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Half-life of what is remembered of bandwidths.
    pub half_life_ms: f64,
    pub nature: Nature,
    /// Whether a store reads its cache line first, so that it counts twice in a share (all that is
    /// cached does; non-temporal stores do not).
    pub write_allocate: bool,
    /// Weights are corrected by what CPU seconds are found to move; intervals this old count half.
    /// 0: weights are believed.
    pub learn_half_life_ms: f64,
}

/// Bandwidth and CPU time of one task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskEstimate {
    pub id: TaskId,
    pub group: u32,
    /// In bytes a second.
    pub bandwidth: f64,
    /// What it is charged with in this step alone.
    pub bytes: f64,
    /// In CPUs.
    pub cpu: f64,
}

/// What one group carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupEstimate {
    pub group: u32,
    /// In bytes a second; the last that is known while its counter is at fault.
    pub bandwidth: f64,
    /// Of it, what no known task accounts for.
    pub unattributed: f64,
    pub fault: Option<Fault>,
}

/// What was found in one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    pub groups: Vec<GroupEstimate>,
    pub tasks: Vec<TaskEstimate>,
}

impl Estimate {
    /// Bandwidth of the whole device, in bytes a second.
    pub fn total(&self) -> f64 {
        self.groups.iter().map(|group| group.bandwidth).sum()
    }

    /// Whether the counters of all groups can be believed.
    pub fn is_trusted(&self) -> bool {
        self.groups.iter().all(|group| group.fault.is_none())
    }
}

#[derive(Clone, Debug)]
struct Group {
    follower: Follower,
    bandwidth: Ewma,
    unattributed: Ewma,
    worth: Worth,
    scale: Scale,
}

impl Group {
    /// Learns from an interval what CPU seconds of these tasks move.
    fn learn(
        &mut self,
        flow: Option<Flow>,
        tasks: &[TaskSample],
        works: &[Work],
        members: &[usize],
    ) {
        let Some(flow) = flow else {
            return self.worth.skip();
        };
        let part = |&at: &usize| {
            let cpu_s = works[at].cpu_ns as f64 / 1e9;
            Part {
                id: tasks[at].id,
                cpu_s,
                intensity: if cpu_s > 0.0 {
                    works[at].weight / cpu_s
                } else {
                    0.0
                },
            }
        };
        let parts: Vec<Part> = members.iter().map(part).collect();
        self.worth.learn(flow.interval_ms, flow.bytes(), &parts);
    }
}

#[derive(Clone, Debug)]
struct Task {
    counted: Option<(u64, u64)>,
    cpu_ns: u64,
    bandwidth: Ewma,
    bytes: f64,
    cpu: Ewma,
}

/// Follows groups and tasks from sample to sample.
#[derive(Clone, Debug)]
pub struct Estimator {
    settings: Settings,
    groups: HashMap<u32, Group>,
    tasks: HashMap<TaskId, Task>,
    last_ns: Option<u64>,
}

/// What a task did in the interval.
#[derive(Clone, Copy)]
struct Work {
    weight: f64,
    cpu_ns: u64,
    /// Whether the weight is a guess.
    guessed: bool,
}

impl Estimator {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            groups: HashMap::new(),
            tasks: HashMap::new(),
            last_ns: None,
        }
    }

    /// One step. A task that is not among the samples is gone; a sample whose time has not passed
    /// changes nothing.
    pub fn step(&mut self, t_ns: u64, groups: &[GroupSample], tasks: &[TaskSample]) -> Estimate {
        let last = self.last_ns;
        if last.is_some_and(|last| t_ns <= last) {
            return self.as_it_was(groups, tasks);
        }
        self.last_ns = Some(t_ns);
        let interval_ms = last.map_or(0.0, |last| (t_ns - last) as f64 / 1e6);
        let works = self.works(last, tasks);
        let mut estimate = Estimate::default();
        for sample in groups {
            let members: Vec<usize> = (0..tasks.len())
                .filter(|&at| tasks[at].group == sample.group)
                .collect();
            let found = self.group(t_ns, interval_ms, sample, tasks, &works, &members);
            estimate.groups.push(found);
        }
        estimate.tasks = tasks.iter().map(|task| self.estimate_of(task)).collect();
        estimate
    }

    /// What each task did since the last step; tasks that are gone are forgotten.
    fn works(&mut self, last: Option<u64>, tasks: &[TaskSample]) -> Vec<Work> {
        let half_life_ms = self.settings.half_life_ms;
        let mut before = std::mem::take(&mut self.tasks);
        let stores = if self.settings.write_allocate { 2 } else { 1 };
        let mut works = Vec::with_capacity(tasks.len());
        for sample in tasks {
            let known = before.remove(&sample.id);
            // A task that is younger than the last step did everything since then.
            let born_since = last.is_some_and(|last| sample.id.start_ns >= last);
            let mut task = known.unwrap_or_else(|| Task {
                counted: born_since.then_some((0, 0)),
                cpu_ns: if born_since { 0 } else { sample.cpu_ns },
                bandwidth: Ewma::new(half_life_ms),
                bytes: 0.0,
                cpu: Ewma::new(half_life_ms),
            });
            let weight = match sample.activity {
                Activity::Weight(weight)
                | Activity::Sampled(weight)
                | Activity::Moved(weight)
                | Activity::Nobody(weight) => weight.max(0.0),
                Activity::Counted {
                    read_bytes,
                    write_bytes,
                } => {
                    let now = (read_bytes, write_bytes);
                    let (reads, writes) = task.counted.replace(now).unwrap_or(now);
                    let reads = read_bytes.saturating_sub(reads);
                    let writes = write_bytes.saturating_sub(writes);
                    reads as f64 + stores as f64 * writes as f64
                }
            };
            let cpu_ns = sample.cpu_ns.saturating_sub(task.cpu_ns);
            task.cpu_ns = sample.cpu_ns;
            task.bytes = 0.0;
            works.push(Work {
                weight: if weight.is_finite() { weight } else { 0.0 },
                cpu_ns,
                guessed: matches!(sample.activity, Activity::Weight(_)),
            });
            self.tasks.insert(sample.id, task);
        }
        works
    }

    fn group(
        &mut self,
        t_ns: u64,
        interval_ms: f64,
        sample: &GroupSample,
        tasks: &[TaskSample],
        works: &[Work],
        members: &[usize],
    ) -> GroupEstimate {
        let settings = self.settings;
        let group = self.groups.entry(sample.group).or_insert_with(|| Group {
            follower: Follower::new(settings.nature),
            bandwidth: Ewma::new(settings.half_life_ms),
            unattributed: Ewma::new(settings.half_life_ms),
            worth: Worth::new(settings.learn_half_life_ms),
            scale: Scale::default(),
        });
        let busy = members.iter().any(|&at| works[at].weight > 0.0);
        let followed = group.follower.follow(t_ns, sample.counts, busy);
        if let Ok(Some(flow)) = followed {
            group.bandwidth.add(flow.interval_ms, flow.bytes_s());
        }
        for &at in members {
            if interval_ms > 0.0
                && let Some(task) = self.tasks.get_mut(&tasks[at].id)
            {
                let cpu = works[at].cpu_ns as f64 / (interval_ms * 1e6);
                task.cpu.add(interval_ms, cpu);
            }
        }
        let guessed = members.iter().all(|&at| works[at].guessed);
        let learns = settings.learn_half_life_ms > 0.0 && guessed && !members.is_empty();
        if learns {
            group.learn(followed.ok().flatten(), tasks, works, members);
        }
        if let Ok(Some(flow)) = followed {
            let all = self.attribute(sample.group, learns, &flow, tasks, works, members);
            let group = self.groups.get_mut(&sample.group);
            if let Some(group) = group {
                group
                    .unattributed
                    .add(flow.interval_ms, flow.bytes_s() - all);
            }
        }
        let group = &self.groups[&sample.group];
        GroupEstimate {
            group: sample.group,
            bandwidth: group.bandwidth.value().unwrap_or(0.0),
            unattributed: group.unattributed.value().unwrap_or(0.0).max(0.0),
            fault: followed.err(),
        }
    }

    /// Divides a group's flow among its tasks; returns what of it is somebody's, in bytes a second.
    fn attribute(
        &mut self,
        group: u32,
        learns: bool,
        flow: &Flow,
        tasks: &[TaskSample],
        works: &[Work],
        members: &[usize],
    ) -> f64 {
        let known = |estimator: &Self, at: usize| {
            let task = estimator.tasks.get(&tasks[at].id);
            task.and_then(|task| task.bandwidth.value()).unwrap_or(0.0)
        };
        let learnt = learns.then(|| self.groups.get(&group)).flatten();
        let weight = |at: usize| {
            let rate = learnt.and_then(|group| group.worth.rate(tasks[at].id));
            rate.map_or(works[at].weight, |rate| rate * works[at].cpu_ns as f64)
        };
        let weights: Vec<f64> = members.iter().map(|&at| weight(at)).collect();
        let moved = |&at: &usize| {
            let activity = tasks[at].activity;
            matches!(activity, Activity::Moved(_) | Activity::Nobody(_))
        };
        let moved = members.iter().any(moved);
        // Tasks of which nothing was sampled keep their proportions.
        let shares: Vec<f64> = match moved || weights.iter().sum::<f64>() > 0.0 {
            true => weights,
            false => members.iter().map(|&at| known(self, at)).collect(),
        };
        let all: f64 = shares.iter().sum();
        let factor = match self.groups.get_mut(&group) {
            Some(group) if moved => group.scale.factor(flow.interval_ms, flow.bytes(), all),
            _ if all > 0.0 => flow.bytes() / all,
            _ => 0.0,
        };
        let mut attributed = 0.0;
        for (&at, share) in members.iter().zip(shares) {
            if let Some(task) = self.tasks.get_mut(&tasks[at].id) {
                task.bytes = share * factor;
                let bytes_s = task.bytes / flow.interval_ms * 1000.0;
                task.bandwidth.add(flow.interval_ms, bytes_s);
                if !matches!(tasks[at].activity, Activity::Nobody(_)) {
                    attributed += bytes_s;
                }
            }
        }
        attributed
    }

    fn estimate_of(&self, sample: &TaskSample) -> TaskEstimate {
        let task = self.tasks.get(&sample.id);
        let value = |of: fn(&Task) -> &Ewma| task.and_then(|task| of(task).value()).unwrap_or(0.0);
        TaskEstimate {
            id: sample.id,
            group: sample.group,
            bandwidth: value(|task| &task.bandwidth),
            bytes: task.map_or(0.0, |task| task.bytes),
            cpu: value(|task| &task.cpu),
        }
    }

    fn as_it_was(&self, groups: &[GroupSample], tasks: &[TaskSample]) -> Estimate {
        let group = |sample: &GroupSample| {
            let known = self.groups.get(&sample.group);
            let value =
                |of: fn(&Group) -> &Ewma| known.and_then(|group| of(group).value()).unwrap_or(0.0);
            GroupEstimate {
                group: sample.group,
                bandwidth: value(|group| &group.bandwidth),
                unattributed: value(|group| &group.unattributed).max(0.0),
                fault: None,
            }
        };
        Estimate {
            groups: groups.iter().map(group).collect(),
            tasks: tasks
                .iter()
                .map(|task| TaskEstimate {
                    bytes: 0.0,
                    ..self.estimate_of(task)
                })
                .collect(),
        }
    }
}
