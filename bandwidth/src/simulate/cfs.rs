//! A model of the fair class: a queue for each CPU, idle CPUs pull tasks, quotas are checked on
//! ticks.

use super::task::{Machine, Task};
use crate::random::Random;

/// Whether an event with this mean interval is due; draws the next time.
fn due(at_ns: &mut i64, now_ns: i64, mean_ns: f64, random: &mut Random) -> bool {
    let due = now_ns >= *at_ns;
    if due {
        *at_ns = now_ns + random.exponential(mean_ns) as i64;
    }
    due
}

/// The queues and the running tasks.
#[derive(Clone, Debug)]
pub struct Cfs {
    /// Tasks of each CPU, including the running one; sleeping and throttled ones stay.
    queues: Vec<Vec<usize>>,
    pub running: Vec<Option<usize>>,
    /// Time since the running task started.
    ran_ns: Vec<i64>,
    /// Time of the next tick, the same on all CPUs (`skew_tick` is off).
    tick_ns: i64,
    /// When a CPU with a queue gives a task away.
    give_ns: Vec<i64>,
    /// When the load balancer checks a CPU.
    balance_ns: Vec<i64>,
}

impl Cfs {
    pub fn new(machine: &Machine, tasks: usize, random: &mut Random) -> Self {
        let mut queues = vec![Vec::new(); machine.cpus];
        // In random order, each CPU once before one is used twice.
        let mut cpus: Vec<usize> = Vec::new();
        for task in 0..tasks {
            if cpus.is_empty() {
                cpus = (0..machine.cpus).collect();
            }
            let cpu = cpus.swap_remove(random.below(cpus.len()));
            queues[cpu].push(task);
        }
        Self {
            queues,
            running: vec![None; machine.cpus],
            ran_ns: vec![0; machine.cpus],
            tick_ns: 0,
            give_ns: vec![0; machine.cpus],
            balance_ns: vec![0; machine.cpus],
        }
    }

    /// Decides which tasks run in the step that begins now.
    pub fn schedule(
        &mut self,
        now_ns: i64,
        machine: &Machine,
        tasks: &mut [Task],
        random: &mut Random,
    ) {
        let ticks = now_ns >= self.tick_ns;
        if ticks {
            self.tick_ns += machine.tick_ns;
        }
        for cpu in 0..self.queues.len() {
            if ticks {
                self.tick(cpu, now_ns, machine, tasks, random);
            }
            let gone = |&task: &usize| !tasks[task].is_ready(now_ns);
            if self.running[cpu].as_ref().is_some_and(gone) {
                self.running[cpu] = None;
            }
            self.preempt(cpu, now_ns, tasks);
            if self.running[cpu].is_none() {
                self.pick(cpu, now_ns, tasks);
            }
        }
        self.pull(now_ns, tasks, random);
    }

    /// The CPU whose queue a task is in.
    pub fn cpu_of(&self, task: usize) -> Option<usize> {
        self.queues.iter().position(|queue| queue.contains(&task))
    }

    /// Ends the step.
    pub fn pass(&mut self, step_ns: i64, tasks: &mut [Task]) {
        for (running, ran_ns) in self.running.iter().zip(&mut self.ran_ns) {
            if let Some(task) = *running {
                *ran_ns += step_ns;
                let task = &mut tasks[task];
                task.vruntime += step_ns as f64 / task.weight();
                if let Some(quota) = &mut task.quota {
                    quota.charge(step_ns);
                }
            }
        }
    }

    fn tick(
        &mut self,
        cpu: usize,
        now_ns: i64,
        machine: &Machine,
        tasks: &mut [Task],
        random: &mut Random,
    ) {
        if let Some(task) = self.running[cpu]
            && let Some(quota) = &mut tasks[task].quota
        {
            quota.check();
        }
        if due(
            &mut self.balance_ns[cpu],
            now_ns,
            machine.balance_ns,
            random,
        ) {
            self.balance(cpu, now_ns, tasks, random);
        }
        let ready = self.ready(cpu, now_ns, tasks).count();
        if ready > 1 && self.ran_ns[cpu] >= machine.slice_ns {
            self.pick(cpu, now_ns, tasks);
        }
        if due(&mut self.give_ns[cpu], now_ns, machine.migration_ns, random)
            && let Some(task) = self.waiting(cpu, now_ns, tasks, |_| true)
            && ready > 1
        {
            let to = random.below(self.queues.len());
            self.move_task(task, cpu, to, tasks);
        }
    }

    /// Two cgroups on one CPU are heavier than any other CPU's load: the balancer moves one to a
    /// CPU that has none.
    fn balance(&mut self, cpu: usize, now_ns: i64, tasks: &mut [Task], random: &mut Random) {
        let own = |task: usize| tasks[task].own_group;
        let heavy = |queue: &[usize]| queue.iter().any(|&task| own(task));
        let running = self.running[cpu].filter(|&task| own(task));
        let waiting = self.waiting(cpu, now_ns, tasks, own);
        let light: Vec<usize> = (0..self.queues.len())
            .filter(|&to| !heavy(&self.queues[to]))
            .collect();
        if let (Some(_), Some(task)) = (running, waiting)
            && !light.is_empty()
        {
            self.move_task(task, cpu, light[random.below(light.len())], tasks);
        }
    }

    fn ready<'a>(
        &'a self,
        cpu: usize,
        now_ns: i64,
        tasks: &'a [Task],
    ) -> impl Iterator<Item = usize> + 'a {
        let queue = self.queues[cpu].iter().copied();
        queue.filter(move |&task| tasks[task].is_ready(now_ns))
    }

    /// A matching task that is ready and does not run.
    fn waiting(
        &self,
        cpu: usize,
        now_ns: i64,
        tasks: &[Task],
        of: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let running = self.running[cpu];
        self.ready(cpu, now_ns, tasks)
            .find(|&task| running != Some(task) && of(task))
    }

    /// A task in a cgroup of its own runs at once: its virtual deadline is the earliest.
    fn preempt(&mut self, cpu: usize, now_ns: i64, tasks: &[Task]) {
        let Some(running) = self.running[cpu] else {
            return;
        };
        if tasks[running].own_group {
            return;
        }
        let first = self
            .ready(cpu, now_ns, tasks)
            .find(|&task| tasks[task].own_group);
        if let Some(task) = first {
            self.running[cpu] = Some(task);
            self.ran_ns[cpu] = 0;
        }
    }

    fn pick(&mut self, cpu: usize, now_ns: i64, tasks: &[Task]) {
        let next = self
            .ready(cpu, now_ns, tasks)
            .min_by(|&a, &b| tasks[a].vruntime.total_cmp(&tasks[b].vruntime));
        self.running[cpu] = next;
        self.ran_ns[cpu] = 0;
    }

    /// Each idle CPU takes a waiting task from the first CPU that has one, counted from a random one.
    fn pull(&mut self, now_ns: i64, tasks: &mut [Task], random: &mut Random) {
        let count = self.queues.len();
        // In ascending order. Few CPUs have more than they run, and all idle ones ask.
        let mut loaded: Vec<usize> = (0..count)
            .filter(|&cpu| self.can_give(cpu, now_ns, tasks))
            .collect();
        for cpu in 0..count {
            if self.running[cpu].is_some() {
                continue;
            }
            let start = random.below(count);
            let (before, after) = loaded.split_at(loaded.partition_point(|&from| from < start));
            let mut others = after.iter().chain(before).filter(|&&from| from != cpu);
            let Some(&from) = others.next() else {
                continue;
            };
            if let Some(task) = self.waiting(from, now_ns, tasks, |_| true) {
                self.move_task(task, from, cpu, tasks);
                self.running[cpu] = Some(task);
                self.ran_ns[cpu] = 0;
                for changed in [from, cpu] {
                    let gives = self.can_give(changed, now_ns, tasks);
                    match loaded.binary_search(&changed) {
                        Ok(at) if !gives => drop(loaded.remove(at)),
                        Err(at) if gives => loaded.insert(at, changed),
                        _ => {}
                    }
                }
            }
        }
    }

    fn can_give(&self, cpu: usize, now_ns: i64, tasks: &[Task]) -> bool {
        self.queues[cpu].len() >= 2 && self.waiting(cpu, now_ns, tasks, |_| true).is_some()
    }

    /// Moves a waiting task; its virtual time stays relative to the queue's.
    fn move_task(&mut self, task: usize, from: usize, to: usize, tasks: &mut [Task]) {
        if from == to {
            return;
        }
        let least = |queue: &[usize], tasks: &[Task]| {
            let times = queue.iter().map(|&task| tasks[task].vruntime);
            times.fold(f64::INFINITY, f64::min)
        };
        let (old, new) = (
            least(&self.queues[from], tasks),
            least(&self.queues[to], tasks),
        );
        if new.is_finite() {
            tasks[task].vruntime += new - old;
        }
        self.queues[from].retain(|&other| other != task);
        self.queues[to].push(task);
    }
}
