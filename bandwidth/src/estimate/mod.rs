//! Attribution: a group's traffic is divided among its tasks.
//!
//! ```text
//!  group's counters ──validate──▶ bytes a second ──┐
//!  tasks' activity ──share of the group──────────▶ × ──EWMA──▶ bandwidth of each task
//! ```
//!
//! Source: Kämmerer 2025, section 4.3.2, equation 3. In addition, the half-life of the average is
//! a time, tasks may start, end and change groups, and counters are validated (`counter`). Where
//! no samples exist, bytes per CPU second can be learned (`intensity`).

pub(crate) mod counter;
pub(crate) mod ewma;
pub(crate) mod intensity;
mod scale;
mod types;

use std::collections::HashMap;

pub use counter::{CounterSpec, Counts, Fault};
use counter::{Flow, Follower};
use ewma::Ewma;
use intensity::{IntensityEstimator, Part};
use scale::Scale;
pub use types::{
    Activity, Estimate, GroupEstimate, GroupSample, Settings, TaskEstimate, TaskId, TaskSample,
};

/// The default half-life of the data from which bytes per CPU second are learned.
pub const LEARN_HALF_LIFE_MS: f64 = 4000.0;

#[derive(Clone, Debug)]
struct Group {
    follower: Follower,
    bandwidth: Ewma,
    unattributed: Ewma,
    intensity: IntensityEstimator,
    scale: Scale,
}

impl Group {
    /// Updates the bytes per CPU second of these tasks.
    fn learn(
        &mut self,
        flow: Option<Flow>,
        tasks: &[TaskSample],
        works: &[Work],
        members: &[usize],
    ) {
        let Some(flow) = flow else {
            return self.intensity.skip();
        };
        let part = |&at: &usize| {
            let cpu_s = works[at].cpu_ns as f64 / 1e9;
            Part {
                id: tasks[at].id,
                cpu_s,
                prior: if cpu_s > 0.0 {
                    works[at].weight / cpu_s
                } else {
                    0.0
                },
            }
        };
        let parts: Vec<Part> = members.iter().map(part).collect();
        self.intensity.learn(flow.interval_ms, flow.bytes(), &parts);
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

/// Follows groups and tasks from step to step.
#[derive(Clone, Debug)]
pub struct Estimator {
    settings: Settings,
    groups: HashMap<u32, Group>,
    tasks: HashMap<TaskId, Task>,
    last_ns: Option<u64>,
}

/// A task's activity in an interval.
#[derive(Clone, Copy)]
struct Work {
    weight: f64,
    cpu_ns: u64,
    /// Whether the weight is only a prior.
    guessed: bool,
}

impl Estimator {
    /// An estimator without history.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            groups: HashMap::new(),
            tasks: HashMap::new(),
            last_ns: None,
        }
    }

    /// One step. A task that is not among the samples has ended. A step at the time of the last
    /// one changes nothing.
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

    /// The activity of each task since the last step; forgets tasks that have ended.
    fn works(&mut self, last: Option<u64>, tasks: &[TaskSample]) -> Vec<Work> {
        let half_life_ms = self.settings.half_life_ms;
        let mut before = std::mem::take(&mut self.tasks);
        let stores = if self.settings.write_allocate { 2 } else { 1 };
        let mut works = Vec::with_capacity(tasks.len());
        for sample in tasks {
            let known = before.remove(&sample.id);
            // A task that started after the last step did everything since then.
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
                | Activity::Unattributed(weight)
                | Activity::Known(weight)
                | Activity::UnattributedWeight(weight) => weight.max(0.0),
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
            follower: Follower::new(settings.counter_spec),
            bandwidth: Ewma::new(settings.half_life_ms),
            unattributed: Ewma::new(settings.half_life_ms),
            intensity: IntensityEstimator::new(settings.learn_half_life_ms),
            scale: Scale::default(),
        });
        let is_known = |at: &usize| matches!(tasks[*at].activity, Activity::Known(_));
        let (known, members): (Vec<usize>, Vec<usize>) =
            members.iter().partition(|at| is_known(at));
        let members = members.as_slice();
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
        let known_bytes: f64 = known.iter().map(|&at| works[at].weight).sum();
        let guessed = members.iter().all(|&at| works[at].guessed);
        let learns = settings.learn_half_life_ms > 0.0 && guessed && !members.is_empty();
        if learns {
            let rest = followed
                .ok()
                .flatten()
                .map(|flow| flow.without(known_bytes));
            group.learn(rest, tasks, works, members);
        }
        if let Ok(Some(flow)) = followed {
            self.attribute_known(&flow, tasks, works, &known);
            let flow = flow.without(known_bytes);
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

    /// Charges bytes that are counted elsewhere, but no more than the group moved.
    fn attribute_known(
        &mut self,
        flow: &Flow,
        tasks: &[TaskSample],
        works: &[Work],
        known: &[usize],
    ) {
        let all: f64 = known.iter().map(|&at| works[at].weight).sum();
        let factor = if all > flow.bytes() {
            flow.bytes() / all
        } else {
            1.0
        };
        for &at in known {
            if let Some(task) = self.tasks.get_mut(&tasks[at].id) {
                task.bytes = works[at].weight * factor;
                let bytes_s = task.bytes / flow.interval_ms * 1000.0;
                task.bandwidth.add(flow.interval_ms, bytes_s);
            }
        }
    }

    /// Divides a group's traffic among its tasks; returns the attributed part, in bytes a second.
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
            let rate = learnt.and_then(|group| group.intensity.rate(tasks[at].id));
            rate.map_or(works[at].weight, |rate| rate * works[at].cpu_ns as f64)
        };
        let weights: Vec<f64> = members.iter().map(|&at| weight(at)).collect();
        let moved = |&at: &usize| {
            let activity = tasks[at].activity;
            matches!(activity, Activity::Moved(_) | Activity::Unattributed(_))
        };
        let moved = members.iter().any(moved);
        // Without samples in this interval, tasks keep their proportions.
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
                let unattributed = matches!(
                    tasks[at].activity,
                    Activity::Unattributed(_) | Activity::UnattributedWeight(_)
                );
                if !unattributed {
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
            rate_error: self.rate_error(sample),
        }
    }

    /// Only where bytes per CPU second are learned.
    fn rate_error(&self, sample: &TaskSample) -> f64 {
        let is_weight = matches!(sample.activity, Activity::Weight(_));
        let learns = is_weight && self.settings.learn_half_life_ms > 0.0;
        let group = learns.then(|| self.groups.get(&sample.group)).flatten();
        group
            .and_then(|group| group.intensity.error(sample.id))
            .unwrap_or(0.0)
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
