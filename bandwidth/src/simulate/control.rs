//! The control loop of a policy: scans, decisions, and limits that are written after a delay.

use super::budget::Budget;
use super::policy::Policy;
use super::setting::{Attribution, Setting};
use super::task::Task;
use crate::allocate::latency_watch::{LatencyWatch, PROBES};
use crate::allocate::{Controller, Limit, Load, Settings, balance, total};
use crate::enforce::{ext, quota};
use crate::estimate::{
    Activity, CounterSpec, Counts, Estimator, GroupSample, LEARN_HALF_LIFE_MS,
    Settings as EstimateSettings, TaskId, TaskSample,
};
use crate::random::Random;
use crate::simulate::quota::Quota;

/// Weight of a new bandwidth in the average (Kämmerer 2025, section 7.4).
const EWMA_WEIGHT: f64 = 0.3;
/// Bytes that a task moves for each sample of the processor. Kämmerer 2025 samples every 9973rd
/// load of 8 bytes and finds 3.25 MiB/s of 512 MiB/s (sections 5.3.2 and 6.2.2). This gives a
/// dozen samples of a task in an interval; averaged as in the thesis, the error is the 10 to 15 %
/// of its section 6.2.3.
const BYTES_PER_SAMPLE: f64 = 512.0 / 3.25 * 9973.0 * 8.0;
/// fio's control process, which is limited and moves nothing (Kämmerer 2025, section 6.4). It
/// changes where the balance points are.
const FIO: Load = Load {
    id: u64::MAX,
    bandwidth: 0.0,
    cpu: 0.0,
    limit: None,
    held_back: false,
    weight: 1.0,
    protected: false,
    rate_error: 0.0,
};
/// The longest delay of the first period of an opened limit.
const OPENING_NS: f64 = quota::OPENING.period_us as f64 * 1000.0;

/// Scans tasks at intervals, and writes their limits after a delay.
pub struct Control {
    policy: Policy,
    threshold: f64,
    interval_ns: i64,
    delay_ns: i64,
    attribution: Attribution,
    next_ns: i64,
    apply: Option<(i64, Vec<Limit>)>,
    /// Limits that wait for their turn: time, task, quota.
    later: Vec<(i64, usize, quota::Quota)>,
    last: Vec<Last>,
    average: Vec<f64>,
    estimator: Estimator,
    controller: Controller,
    latency: Option<LatencyWatch>,
    derated_ns: Option<i64>,
    /// When the daemon's latency probe takes its next sample.
    next_sample_ns: i64,
    random: Random,
    samples: Random,
    turns: quota::Turns,
    pub writes: u64,
}

#[derive(Clone, Copy, Default)]
struct Last {
    bytes: f64,
    cpu_ns: i64,
    held: u64,
    limit: Option<f64>,
    overrun: quota::Overrun,
}

/// As the daemon watches latency where a maximum or a curve is configured.
fn watch(setting: &Setting) -> Option<LatencyWatch> {
    let curve = setting.compares_curve.then(|| setting.curve.clone());
    let watches = curve.is_some() || setting.max_latency_ns.is_some();
    watches.then(|| LatencyWatch::new(setting.max_latency_ns, setting.threshold, curve))
}

impl Control {
    pub fn new(setting: &Setting, tasks: usize) -> Self {
        let &Setting {
            policy,
            threshold,
            attribution,
            seed,
            ..
        } = setting;
        let (interval_ns, delay_ns) = policy.times_ns((setting.interval_ms * 1e6) as i64);
        let turns = quota::Turns::of_tick(setting.machine.tick_ns as u64);
        Self {
            policy,
            threshold,
            interval_ns,
            delay_ns,
            next_ns: interval_ns,
            apply: None,
            later: Vec::new(),
            last: vec![Last::default(); tasks],
            average: vec![0.0; tasks],
            estimator: Estimator::new(EstimateSettings {
                half_life_ms: 10.0,
                counter_spec: CounterSpec::simulated(),
                write_allocate: true,
                learn_half_life_ms: match attribution {
                    Attribution::Learned => LEARN_HALF_LIFE_MS,
                    Attribution::CpuTime | Attribution::Exact => 0.0,
                },
            }),
            attribution,
            controller: Controller::new(Settings {
                dithers: policy.uses_budgets() || !turns.are_coarse(),
                ..Settings::new(threshold)
            }),
            latency: watch(setting),
            derated_ns: None,
            next_sample_ns: 0,
            random: Random::new(seed ^ 0x5eed),
            samples: Random::new(seed ^ 0x1a7e),
            turns,
            writes: 0,
        }
    }

    /// When the device was first found derated, in seconds.
    pub fn derated_s(&self) -> Option<f64> {
        self.derated_ns.map(|ns| ns as f64 / 1e9)
    }

    /// Performs everything that is due at `now_ns`; an access takes `latency_ns` now.
    pub fn act(&mut self, now_ns: i64, latency_ns: f64, tasks: &mut [Task]) {
        if !self.policy.uses_cgroups() && !self.policy.uses_budgets() {
            return;
        }
        self.sample(now_ns, latency_ns);
        if let Some((due_ns, limits)) = self.apply.take() {
            if now_ns >= due_ns {
                self.write(now_ns, &limits, tasks);
            } else {
                self.apply = Some((due_ns, limits));
            }
        }
        let mut later = std::mem::take(&mut self.later);
        later.retain(|&(due_ns, task, next)| {
            let due = now_ns >= due_ns;
            if let (true, Some(quota)) = (due, &mut tasks[task].quota) {
                quota.write(next.quota_us as i64 * 1000, next.period_us as i64 * 1000);
            }
            !due
        });
        self.later = later;
        if now_ns >= self.next_ns {
            self.next_ns += self.interval_ns;
            let limits = self.decide(now_ns, tasks);
            self.apply = Some((now_ns + self.delay_ns, limits));
        }
    }

    /// The daemon's latency probe, at times that no period of limits is a multiple of.
    fn sample(&mut self, now_ns: i64, latency_ns: f64) {
        let Some(watch) = &mut self.latency else {
            return;
        };
        if now_ns >= self.next_sample_ns {
            let mean_ns = self.interval_ns as f64 / f64::from(PROBES);
            self.next_sample_ns = now_ns + (mean_ns * (0.5 + self.samples.unit())) as i64;
            watch.sample(latency_ns);
        }
    }

    fn decide(&mut self, now_ns: i64, tasks: &[Task]) -> Vec<Limit> {
        let members: Vec<usize> = (0..tasks.len())
            .filter(|&task| tasks[task].is_memory())
            .collect();
        let mut loads = match self.policy {
            Policy::ByTotal | Policy::BalancePoints => self.averaged(&members, tasks),
            _ => self.estimated(now_ns, &members, tasks),
        };
        for (load, &task) in loads.iter_mut().zip(&members) {
            let held = tasks[task].times_held();
            load.held_back = held > self.last[task].held;
            load.limit = self.last[task].limit;
            load.weight = tasks[task].spec.weight;
            load.protected = tasks[task].spec.protected;
            let last = &mut self.last[task];
            if let (Some(limit), Policy::Fair) = (last.limit, self.policy) {
                let interval_ms = self.interval_ns as f64 / 1e6;
                let used = (tasks[task].cpu_ns - last.cpu_ns) as f64 / self.interval_ns as f64;
                last.overrun.add(interval_ms, used, limit);
            }
            last.bytes = tasks[task].bytes;
            last.cpu_ns = tasks[task].cpu_ns;
            last.held = held;
        }
        match self.policy {
            Policy::ByTotal => total::limits(self.threshold, &loads),
            Policy::BalancePoints => {
                loads.push(FIO);
                let mut limits = balance::limits(self.threshold, &loads);
                limits.pop();
                limits
            }
            _ => {
                let interval_ms = self.interval_ns as f64 / 1e6;
                if let Some(latency) = &mut self.latency {
                    let total = crate::allocate::total_of(&loads);
                    let threshold = latency.step(interval_ms, total);
                    self.controller.set_threshold(threshold);
                    if latency.is_derated() {
                        self.derated_ns.get_or_insert(now_ns);
                    }
                }
                self.controller.step(interval_ms, 0.0, &loads).limits
            }
        }
    }

    /// The estimate of Kämmerer 2025: counter × share, averaged with a factor per scan.
    fn averaged(&mut self, members: &[usize], tasks: &[Task]) -> Vec<Load> {
        let seconds = self.interval_ns as f64 / 1e9;
        let moved: Vec<f64> = members
            .iter()
            .map(|&task| tasks[task].bytes - self.last[task].bytes)
            .collect();
        let all: f64 = moved.iter().sum();
        let samples: Vec<f64> = moved
            .iter()
            .map(|bytes| self.random.poisson(bytes / BYTES_PER_SAMPLE))
            .collect();
        let sampled: f64 = samples.iter().sum();
        let mut loads = Vec::with_capacity(members.len());
        for (&task, samples) in members.iter().zip(&samples) {
            let share = if sampled > 0.0 {
                samples / sampled
            } else {
                0.0
            };
            let bandwidth = all * share / seconds;
            let average = &mut self.average[task];
            *average += EWMA_WEIGHT * (bandwidth - *average);
            let cpu =
                (tasks[task].cpu_ns - self.last[task].cpu_ns) as f64 / self.interval_ns as f64;
            loads.push(Load::new(task as u64, *average, cpu));
        }
        loads
    }

    /// The daemon's estimate without samples: attribution by CPU time.
    fn estimated(&mut self, now_ns: i64, members: &[usize], tasks: &[Task]) -> Vec<Load> {
        let all: f64 = members.iter().map(|&task| tasks[task].bytes).sum();
        let group = GroupSample {
            group: 0,
            counts: Some(Counts {
                read_bytes: all as u64,
                write_bytes: 0,
            }),
        };
        let sample = |&task: &usize| TaskSample {
            id: TaskId {
                pid: task as i32,
                start_ns: 0,
            },
            group: 0,
            activity: match self.attribution {
                Attribution::Exact => Activity::Moved(tasks[task].bytes - self.last[task].bytes),
                _ => Activity::Weight((tasks[task].cpu_ns - self.last[task].cpu_ns) as f64 / 1e9),
            },
            cpu_ns: tasks[task].cpu_ns as u64,
        };
        let samples: Vec<TaskSample> = members.iter().map(sample).collect();
        let estimate = self.estimator.step(now_ns as u64, &[group], &samples);
        let load = |(found, &task): (&crate::estimate::TaskEstimate, &usize)| Load {
            rate_error: found.rate_error,
            ..Load::new(task as u64, found.bandwidth, found.cpu)
        };
        estimate.tasks.iter().zip(members).map(load).collect()
    }

    /// Writes budgets as the daemon does.
    fn tell(&mut self, limits: &[Limit], tasks: &mut [Task]) {
        for (slot, limit) in limits.iter().enumerate() {
            let task = limit.id as usize;
            let last = &self.last[task];
            if !quota::should_write(last.limit, limit.cpu, last.overrun) {
                continue;
            }
            match (&mut tasks[task].budget, limit.cpu) {
                (Some(budget), Some(cpu)) => budget.write(cpu),
                (budget, cpu) => {
                    *budget = cpu.map(|cpu| {
                        let debt_ns = quota::turn(slot as u64) * ext::TURN_NS * cpu;
                        Budget::new(cpu, debt_ns as i64)
                    });
                }
            }
            self.last[task].limit = limit.cpu;
            self.writes += 1;
        }
    }

    fn write(&mut self, now_ns: i64, limits: &[Limit], tasks: &mut [Task]) {
        if self.policy.uses_budgets() {
            return self.tell(limits, tasks);
        }
        for (slot, limit) in limits.iter().enumerate() {
            let task = limit.id as usize;
            let in_force = self.last[task].limit;
            let mut first_ns = now_ns;
            let (quota_us, period_us) = match (limit.cpu, self.policy) {
                (None, _) => {
                    if in_force.is_some() {
                        tasks[task].quota = None;
                        self.writes += 1;
                    }
                    self.last[task].limit = None;
                    continue;
                }
                (Some(cpu), Policy::Fair) => {
                    if !quota::should_write(in_force, Some(cpu), self.last[task].overrun) {
                        continue;
                    }
                    let quota = self.turns.quota(cpu);
                    self.last[task].overrun = quota::Overrun::written(quota);
                    // As the daemon opens a limit: at its turn; the period ends within 1 ms.
                    let opened = in_force.is_none().then(|| {
                        let after_ns =
                            self.turns
                                .until_turn_ns(now_ns as u64, slot as u64, quota.period_us)
                                as i64;
                        now_ns + after_ns + (self.random.unit() * OPENING_NS) as i64
                    });
                    first_ns = opened.unwrap_or(first_ns);
                    let wait_ns = in_force.map_or(0, |cpu| {
                        let old = self.turns.quota(cpu);
                        self.turns
                            .until_longer_ns(now_ns as u64, slot as u64, old, quota)
                            as i64
                    });
                    if wait_ns > 0 {
                        self.later.push((now_ns + wait_ns, task, quota));
                        self.last[task].limit = Some(quota.cpu());
                        self.writes += 1;
                        continue;
                    }
                    (quota.quota_us, quota.period_us)
                }
                // Equation 9 of Kämmerer 2025. Its loop writes limits one after the other and
                // takes longer than a period, so periods begin at any time.
                (Some(cpu), _) => {
                    let period_us = 1000.0 / cpu;
                    first_ns += (self.random.unit() * period_us * 1000.0) as i64;
                    (1000, period_us as u64)
                }
            };
            let (quota_ns, period_ns) = (quota_us as i64 * 1000, period_us as i64 * 1000);
            match &mut tasks[task].quota {
                Some(quota) => quota.write(quota_ns, period_ns),
                quota => *quota = Some(Quota::new(first_ns, quota_ns, period_ns)),
            }
            self.last[task].limit = Some(quota_us as f64 / period_us as f64);
            self.writes += 1;
        }
    }
}
