//! The simulation loop in steps of 0.1 ms: schedule, transfer, measure, decide.

use super::budget_scheduler::Budgets;
use super::cfs::Cfs;
use super::control::Control;
use super::device::{AccessProfile, balance};
use super::metrics::{Latencies, Outcome, Spread, gib, rmse};
use super::policy::Policy;
use super::setting::Setting;
use super::task::{Task, Work, pressure};
use super::throttle_queue::{Step, ThrottleQueue, Variant};
use crate::curve::Curve;
use crate::enforce::ext::IdleCpus;
use crate::random::Random;

const STEP_NS: i64 = 100_000;
/// The read size of fio in the evaluation of Kämmerer 2025.
const BLOCK_BYTES: f64 = (4u64 << 20) as f64;
/// Relative speed of a compute task beside a busy neighbour, and beside one that waits for memory:
/// the share of a hyper-thread.
const BESIDE_COMPUTE: f64 = 0.62;
const BESIDE_MEMORY: f64 = 0.8;

enum Scheduler {
    Fair(Cfs),
    ThrottleQueue(ThrottleQueue),
    Budgets(Budgets),
}

impl Scheduler {
    fn running(&self) -> &[Option<usize>] {
        match self {
            Self::Fair(cfs) => &cfs.running,
            Self::ThrottleQueue(queue) => &queue.running,
            Self::Budgets(budgets) => &budgets.running,
        }
    }

    /// The CPU of a task, running or queued.
    fn cpu_of(&self, task: usize) -> Option<usize> {
        match self {
            Self::Fair(cfs) => cfs.cpu_of(task),
            _ => self.running().iter().position(|&other| other == Some(task)),
        }
    }
}

/// The state of a simulation.
struct Run<'a> {
    setting: &'a Setting,
    curve: Curve,
    tasks: Vec<Task>,
    random: Random,
    bytes: f64,
    latency_ns: f64,
    /// The tasks of the last step and their access profiles.
    asked: Vec<(usize, AccessProfile)>,
    rates: Vec<f64>,
    latencies: Latencies,
    blocks_us: Vec<f64>,
    spikes_gib_s: Vec<f64>,
    windows: Vec<f64>,
    /// Access profiles of all awake tasks without limits, and the traffic that would follow.
    wanted: Vec<AccessProfile>,
    wanted_bytes_s: f64,
    wanted_windows: Vec<f64>,
}

/// Runs a simulation; equal settings give equal outcomes.
pub fn simulate(setting: &Setting) -> Outcome {
    let mut random = Random::new(setting.seed);
    let mut tasks: Vec<Task> = setting
        .tasks
        .iter()
        .map(|&spec| Task::new(spec, &mut random))
        .collect();
    for task in &mut tasks {
        task.own_group = setting.policy.uses_cgroups() && task.is_memory();
    }
    let count = tasks.len();
    let mut budgets =
        |idle| Scheduler::Budgets(Budgets::new(&setting.machine, count, idle, &mut random));
    let mut scheduler = match setting.policy {
        Policy::RoundRobin | Policy::VirtualTime | Policy::ThrottleQueue => {
            let variant = match setting.policy {
                Policy::RoundRobin => Variant::RoundRobin,
                Policy::VirtualTime => Variant::VirtualTime,
                _ => Variant::ThrottleQueue,
            };
            Scheduler::ThrottleQueue(ThrottleQueue::new(
                &setting.machine,
                tasks.len(),
                setting.threshold,
                variant,
            ))
        }
        Policy::FairExt => budgets(IdleCpus::Hold),
        Policy::FairExtUse => budgets(IdleCpus::Use),
        _ => Scheduler::Fair(Cfs::new(&setting.machine, tasks.len(), &mut random)),
    };
    let mut control = Control::new(setting, tasks.len());
    let mut run = Run {
        setting,
        curve: setting.curve.clone(),
        tasks,
        random,
        bytes: 0.0,
        latency_ns: 0.0,
        asked: Vec::new(),
        rates: Vec::new(),
        latencies: Latencies::default(),
        blocks_us: Vec::new(),
        spikes_gib_s: Vec::new(),
        windows: Vec::new(),
        wanted: Vec::new(),
        wanted_bytes_s: 0.0,
        wanted_windows: Vec::new(),
    };
    let steps = |seconds: f64| (seconds * 1e9) as i64 / STEP_NS;
    let warm = steps(setting.warm_up_seconds);
    let mut before = run.totals();
    for step in 0..steps(setting.seconds) {
        let now_ns = step * STEP_NS;
        if step == warm {
            before = run.totals();
        }
        if let Some((_, factor)) = setting.derated.filter(|(from, _)| step == steps(*from)) {
            run.curve = setting.curve.derated(factor);
            run.asked.clear();
            run.wanted.clear();
        }
        run.timers(now_ns);
        control.act(now_ns, run.latency_ns, &mut run.tasks);
        match &mut scheduler {
            Scheduler::Fair(cfs) => {
                cfs.schedule(now_ns, &setting.machine, &mut run.tasks, &mut run.random);
                cfs.pass(STEP_NS, &mut run.tasks);
            }
            Scheduler::ThrottleQueue(queue) => {
                let step = Step {
                    now_ns,
                    bytes: run.bytes,
                    machine: &setting.machine,
                    tasks: &run.tasks,
                };
                queue.schedule(step, &mut run.random);
                queue.pass(STEP_NS);
            }
            Scheduler::Budgets(budgets) => {
                budgets.schedule(now_ns, &setting.machine, &mut run.tasks);
                budgets.pass(STEP_NS, &mut run.tasks);
            }
        }
        run.flow(now_ns, scheduler.running(), step >= warm);
        run.want(now_ns, &scheduler);
    }
    let mut outcome = run.outcome(&before, control.writes);
    outcome.derated_s = control.derated_s();
    outcome
}

/// Sums since the start.
struct Totals {
    bytes: f64,
    memory_cpu_ns: i64,
    work: f64,
    each: Vec<f64>,
}

impl Run<'_> {
    fn totals(&self) -> Totals {
        let memory = || self.tasks.iter().filter(|task| task.is_memory());
        Totals {
            bytes: self.bytes,
            memory_cpu_ns: memory().map(|task| task.cpu_ns).sum(),
            work: self.tasks.iter().map(|task| task.work).sum(),
            each: memory().map(|task| task.bytes).collect(),
        }
    }

    fn timers(&mut self, now_ns: i64) {
        for task in &mut self.tasks {
            if let Some(quota) = &mut task.quota {
                quota.timer(now_ns);
            }
            if now_ns >= task.next_method_ns {
                task.pressure = pressure(&mut self.random);
                let time = self.random.exponential(self.setting.machine.method_ns);
                task.next_method_ns = now_ns + time as i64;
            }
        }
    }

    /// A task's access profile on a CPU, beside its neighbour.
    fn access(
        &self,
        access: AccessProfile,
        cpu: usize,
        running: &[Option<usize>],
    ) -> AccessProfile {
        let neighbour = running.get(cpu ^ 1).copied().flatten();
        let pressure = match neighbour.map(|task| &self.tasks[task]) {
            Some(task) if !task.is_memory() => task.pressure,
            _ => 0.0,
        };
        AccessProfile {
            lines: access.lines * (1.0 - self.setting.machine.lines_lost * pressure),
            own_ns: access.own_ns + self.setting.machine.own_added_ns * pressure,
        }
    }

    fn flow(&mut self, now_ns: i64, running: &[Option<usize>], measured: bool) {
        let mut asked = Vec::with_capacity(self.asked.len() + 1);
        for (cpu, &task) in running.iter().enumerate() {
            let Some(task) = task else { continue };
            match self.tasks[task].spec.work {
                Work::Memory { access, .. } => {
                    asked.push((task, self.access(access, cpu, running)));
                }
                Work::Compute => {
                    let neighbour = running.get(cpu ^ 1).copied().flatten();
                    let speed = match neighbour.map(|task| self.tasks[task].is_memory()) {
                        None => 1.0,
                        Some(true) => BESIDE_MEMORY,
                        Some(false) => BESIDE_COMPUTE,
                    };
                    self.tasks[task].cpu_ns += STEP_NS;
                    self.tasks[task].work += speed * STEP_NS as f64 / 1e9;
                }
            }
        }
        if asked != self.asked {
            let askings: Vec<AccessProfile> = asked.iter().map(|one| one.1).collect();
            self.latency_ns = balance(&self.curve, &askings).0;
            self.rates = askings
                .iter()
                .map(|one| one.rate(self.latency_ns))
                .collect();
            self.asked = asked;
        }
        let mut sum = 0.0;
        for at in 0..self.asked.len() {
            let bytes = self.rates[at] * STEP_NS as f64 / 1e9;
            sum += bytes;
            self.progress(self.asked[at].0, bytes, now_ns + STEP_NS, measured);
        }
        self.bytes += sum;
        if measured {
            self.latencies.add(self.latency_ns, sum);
        }
        self.add(now_ns, sum, |run| &mut run.windows);
    }

    /// The traffic without limits: the upper bound of every policy.
    fn want(&mut self, now_ns: i64, scheduler: &Scheduler) {
        let awake = |task: &Task| now_ns >= task.asleep_until_ns && task.spec.is_on(now_ns);
        let mut wanted = Vec::with_capacity(self.wanted.len());
        for (at, task) in self.tasks.iter().enumerate() {
            if let Work::Memory { access, .. } = task.spec.work
                && awake(task)
            {
                let cpu = scheduler.cpu_of(at);
                wanted
                    .push(cpu.map_or(access, |cpu| self.access(access, cpu, scheduler.running())));
            }
        }
        if wanted != self.wanted {
            self.wanted_bytes_s = balance(&self.curve, &wanted).1;
            self.wanted = wanted;
        }
        let bytes = self.wanted_bytes_s * STEP_NS as f64 / 1e9;
        self.add(now_ns, bytes, |run| &mut run.wanted_windows);
    }

    fn add(&mut self, now_ns: i64, bytes: f64, windows: fn(&mut Self) -> &mut Vec<f64>) {
        let window = (now_ns as f64 / (self.setting.window_ms * 1e6)) as usize;
        let windows = windows(self);
        if windows.len() <= window {
            windows.resize(window + 1, 0.0);
        }
        windows[window] += bytes;
    }

    /// A memory task has moved bytes: blocks end, and tasks with a rate of their own sleep.
    fn progress(&mut self, task: usize, bytes: f64, now_ns: i64, measured: bool) {
        let task = &mut self.tasks[task];
        if task.block_bytes == 0.0 {
            task.block_ns = task.block_ns.max(now_ns - STEP_NS);
        }
        task.cpu_ns += STEP_NS;
        task.bytes += bytes;
        task.block_bytes += bytes;
        task.block_cpu_ns += STEP_NS;
        if task.block_bytes < BLOCK_BYTES {
            return;
        }
        let passed_ns = now_ns - task.block_ns;
        if measured {
            let part = BLOCK_BYTES / task.block_bytes;
            self.blocks_us.push(passed_ns as f64 * part / 1e3);
            self.spikes_gib_s
                .push(gib(task.block_bytes) * 1e9 / passed_ns as f64);
        }
        task.block_bytes -= BLOCK_BYTES;
        task.block_ns = now_ns;
        task.block_cpu_ns = 0;
        if let Work::Memory {
            max_bytes_s: Some(max),
            ..
        } = task.spec.work
        {
            let due = task.spec.from_ns + (task.bytes / max * 1e9) as i64;
            if due > now_ns {
                task.asleep_until_ns = due;
                task.block_ns = due;
            }
        }
    }

    fn outcome(self, before: &Totals, writes: u64) -> Outcome {
        let setting = self.setting;
        let after = self.totals();
        let seconds = setting.seconds - setting.warm_up_seconds;
        let per_window = |bytes: &f64| gib(*bytes) * 1000.0 / setting.window_ms;
        let windows: Vec<f64> = self.windows.iter().map(per_window).collect();
        let wanted = self.wanted_windows.iter().map(per_window).collect();
        let first = (setting.warm_up_seconds * 1000.0 / setting.window_ms).ceil() as usize;
        let measured = windows.get(first..).unwrap_or_default();
        let each = after.each.iter().zip(&before.each);
        let mut spikes = self.spikes_gib_s.clone();
        spikes.sort_by(f64::total_cmp);
        let spike = (spikes.len() as f64 * 0.999) as usize;
        Outcome {
            policy: setting.policy.name(),
            seed: setting.seed,
            threshold_gib_s: gib(setting.threshold),
            bandwidth_gib_s: Spread::of(measured),
            rmse_gib_s: rmse(measured, gib(setting.threshold)),
            access_ns_mean: self.latencies.mean_ns(),
            access_ns_p99: self.latencies.quantile_ns(0.99),
            block_us: Spread::of(&self.blocks_us),
            block_spike_gib_s: spikes.get(spike).copied().unwrap_or(0.0),
            cpu_s_per_gib: (after.memory_cpu_ns - before.memory_cpu_ns) as f64
                / 1e9
                / gib(after.bytes - before.bytes),
            compute_cpus: (after.work - before.work) / seconds,
            tasks_gib_s: each.map(|(now, then)| gib(now - then) / seconds).collect(),
            derated_s: None,
            writes_s: writes as f64 / setting.seconds,
            windows_gib_s: windows,
            wanted_gib_s: wanted,
            window_ms: setting.window_ms,
        }
    }
}
