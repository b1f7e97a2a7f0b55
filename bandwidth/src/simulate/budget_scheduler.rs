//! A model of the sched_ext scheduler (`bpf/dormouse.bpf.c`), as far as it affects the device.
//!
//! ```text
//!  wakes up, or its slice ended
//!     │ budget left, or not limited          every millisecond:
//!     ├──────────────▶ shared, by virtual     - tasks without budget are stopped
//!     │                time; any CPU          - budgets grow
//!     │ none left          ▲                  - held tasks with budget are released, as long as no
//!     └──────────────▶ held ──────────────────┘   more tasks run than all limits add up to
//! ```
//!
//! Not modelled: caches, wakeups of the machine's other tasks, and the overhead of its callbacks.

use super::budget::TIMER_NS;
use super::task::{Machine, Task};
use crate::enforce::ext::IdleCpus;
use crate::random::Random;

/// `SLICE_NS` and `MAX_LEFT_NS` of `bpf/dormouse.bpf.c`.
const SLICE_NS: i64 = 5_000_000;
const MAX_LEFT_NS: i64 = 2_000_000;

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// It sleeps, or does not exist.
    Away,
    Shared,
    Held,
    Runs,
}

/// The queues and the running tasks.
#[derive(Clone, Debug)]
pub struct Budgets {
    idle: IdleCpus,
    places: Vec<Place>,
    pub running: Vec<Option<usize>>,
    /// Remaining slice of the running task.
    left_ns: Vec<i64>,
    vtime_now: f64,
    tick_ns: i64,
    timer_ns: i64,
    /// The task that is released first.
    first_to_go: usize,
}

fn has_budget(task: &Task) -> bool {
    task.budget.is_none_or(|budget| budget.left_ns > 0)
}

impl Budgets {
    pub fn new(machine: &Machine, tasks: usize, idle: IdleCpus, random: &mut Random) -> Self {
        Self {
            idle,
            places: vec![Place::Away; tasks],
            running: vec![None; machine.cpus],
            left_ns: vec![0; machine.cpus],
            vtime_now: 0.0,
            tick_ns: 0,
            // The timer is independent of ticks.
            timer_ns: (random.unit() * TIMER_NS as f64) as i64,
            first_to_go: 0,
        }
    }

    /// Decides which tasks run in the step that begins now.
    pub fn schedule(&mut self, now_ns: i64, machine: &Machine, tasks: &mut [Task]) {
        if now_ns >= self.timer_ns {
            self.timer_ns += TIMER_NS;
            self.timer(now_ns, tasks);
        }
        for (place, task) in self.places.iter_mut().zip(tasks.iter()) {
            if matches!(place, Place::Shared | Place::Held) && !task.is_ready(now_ns) {
                *place = Place::Away;
            }
        }
        for task in 0..tasks.len() {
            if self.places[task] == Place::Away && tasks[task].is_ready(now_ns) {
                self.wake(task, now_ns, tasks);
            }
        }
        for cpu in 0..self.running.len() {
            if let Some(task) = self.running[cpu]
                && !tasks[task].is_ready(now_ns)
            {
                self.stop(cpu, tasks);
                self.places[task] = Place::Away;
                self.next(cpu, now_ns, tasks);
            }
        }
        if now_ns >= self.tick_ns {
            self.tick_ns += machine.tick_ns;
            for cpu in 0..self.running.len() {
                if self.left_ns[cpu] <= 0 {
                    self.slice_over(cpu, now_ns, tasks);
                }
            }
        }
    }

    /// Ends the step.
    pub fn pass(&mut self, step_ns: i64, tasks: &mut [Task]) {
        for (running, left_ns) in self.running.iter().zip(&mut self.left_ns) {
            *left_ns -= step_ns;
            if let Some(task) = *running
                && let Some(budget) = &mut tasks[task].budget
            {
                budget.left_ns -= step_ns;
            }
        }
    }

    /// `every_ms` of the scheduler.
    fn timer(&mut self, now_ns: i64, tasks: &mut [Task]) {
        if self.idle == IdleCpus::Hold {
            for cpu in 0..self.running.len() {
                if let Some(task) = self.running[cpu]
                    && !has_budget(&tasks[task])
                {
                    self.left_ns[cpu] = 0;
                    self.stop(cpu, tasks);
                    self.enqueue(task, tasks);
                    self.next(cpu, now_ns, tasks);
                }
            }
        }
        for (task, place) in tasks.iter_mut().zip(&self.places) {
            let Some(budget) = &mut task.budget else {
                continue;
            };
            if budget.left_ns < MAX_LEFT_NS {
                budget.left_ns += budget.ns_per_ms;
            }
            task.held += u64::from(*place == Place::Held);
        }
        let mut room = self.room(tasks);
        let first = self.first_to_go;
        for task in (first..tasks.len()).chain(0..first) {
            if self.places[task] != Place::Held || !has_budget(&tasks[task]) {
                continue;
            }
            if tasks[task].budget.is_some() {
                if room == 0 {
                    self.first_to_go = task;
                    break;
                }
                room -= 1;
            }
            self.places[task] = Place::Shared;
            tasks[task].vruntime = self.vtime_now - SLICE_NS as f64;
            self.use_idle(now_ns, tasks);
        }
    }

    /// How many limited tasks may be released now: on average no more run than their limits add up
    /// to, so no more need to run at once.
    fn room(&self, tasks: &[Task]) -> usize {
        let (mut running, mut limits) = (0, 0);
        for (place, task) in self.places.iter().zip(tasks) {
            let Some(budget) = task.budget.filter(|_| *place != Place::Away) else {
                continue;
            };
            limits += budget.ns_per_ms;
            running += usize::from(*place != Place::Held);
        }
        let most = (limits + TIMER_NS / 2) / TIMER_NS + 1;
        (most as usize).saturating_sub(running)
    }

    /// `dispatch` at the end of a slice.
    fn slice_over(&mut self, cpu: usize, now_ns: i64, tasks: &mut [Task]) {
        let Some(previous) = self.running[cpu] else {
            self.next(cpu, now_ns, tasks);
            return;
        };
        let others = self.first(now_ns, tasks).is_some();
        if !others && (has_budget(&tasks[previous]) || self.idle == IdleCpus::Use) {
            self.left_ns[cpu] = SLICE_NS;
            tasks[previous].vruntime += SLICE_NS as f64;
            return;
        }
        self.stop(cpu, tasks);
        // The next task is taken before the previous one is queued.
        self.next(cpu, now_ns, tasks);
        self.enqueue(previous, tasks);
        if self.running[cpu].is_none() {
            self.next(cpu, now_ns, tasks);
        }
    }

    /// `select_cpu`, and `enqueue` if no processor is idle.
    fn wake(&mut self, task: usize, now_ns: i64, tasks: &mut [Task]) {
        let idle = self.running.iter().position(Option::is_none);
        match idle {
            Some(cpu) if has_budget(&tasks[task]) || self.idle == IdleCpus::Use => {
                self.run(cpu, task, tasks);
            }
            _ => {
                self.enqueue(task, tasks);
                self.use_idle(now_ns, tasks);
            }
        }
    }

    fn enqueue(&mut self, task: usize, tasks: &mut [Task]) {
        if has_budget(&tasks[task]) {
            let least = self.vtime_now - SLICE_NS as f64;
            tasks[task].vruntime = tasks[task].vruntime.max(least);
            self.places[task] = Place::Shared;
        } else {
            tasks[task].held += 1;
            self.places[task] = Place::Held;
        }
    }

    fn first(&self, now_ns: i64, tasks: &[Task]) -> Option<usize> {
        let shared = |task: &usize| self.places[*task] == Place::Shared;
        (0..tasks.len())
            .filter(shared)
            .filter(|&task| tasks[task].is_ready(now_ns))
            .min_by(|&a, &b| tasks[a].vruntime.total_cmp(&tasks[b].vruntime))
    }

    fn next(&mut self, cpu: usize, now_ns: i64, tasks: &[Task]) {
        if let Some(task) = self.first(now_ns, tasks) {
            self.run(cpu, task, tasks);
        }
    }

    fn use_idle(&mut self, now_ns: i64, tasks: &[Task]) {
        if let Some(cpu) = self.running.iter().position(Option::is_none) {
            self.next(cpu, now_ns, tasks);
        }
    }

    fn run(&mut self, cpu: usize, task: usize, tasks: &[Task]) {
        self.vtime_now = self.vtime_now.max(tasks[task].vruntime);
        self.places[task] = Place::Runs;
        self.running[cpu] = Some(task);
        self.left_ns[cpu] = SLICE_NS;
    }

    /// Takes the task off its processor and charges its slice.
    fn stop(&mut self, cpu: usize, tasks: &mut [Task]) {
        if let Some(task) = self.running[cpu].take() {
            tasks[task].vruntime += (SLICE_NS - self.left_ns[cpu].max(0)) as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::budget::Budget;
    use crate::simulate::kaemmerer;
    use crate::simulate::task::{Spec, Work};

    const STEP_NS: i64 = 100_000;

    /// CPU time of each of these tasks in a second; the first one is limited.
    fn used(cpus: usize, count: usize, limit: f64, idle: IdleCpus) -> Vec<f64> {
        let machine = Machine {
            cpus,
            ..kaemmerer::machine()
        };
        let mut random = Random::new(1);
        let mut tasks: Vec<Task> = (0..count)
            .map(|_| Task::new(Spec::new(Work::Compute), &mut random))
            .collect();
        tasks[0].budget = Some(Budget::new(limit, 0));
        let mut budgets = Budgets::new(&machine, count, idle, &mut random);
        let mut used = vec![0.0; count];
        for step in 0..10_000 {
            budgets.schedule(step * STEP_NS, &machine, &mut tasks);
            for task in budgets.running.iter().flatten() {
                used[*task] += STEP_NS as f64 / 1e9;
            }
            budgets.pass(STEP_NS, &mut tasks);
        }
        used
    }

    #[test]
    fn a_limit_holds_and_the_others_share_the_rest() {
        for limit in [0.03, 0.25, 0.5] {
            let used = used(2, 3, limit, IdleCpus::Hold);
            assert!((used[0] - limit).abs() < 0.005, "{used:?}");
            assert!((used[1] - 1.0).abs() < limit + 0.05, "{used:?}");
            assert!((used.iter().sum::<f64>() - 2.0).abs() < 0.01, "{used:?}");
        }
    }

    /// Tasks that run together wait for the device together.
    #[test]
    fn no_more_are_let_go_at_once_than_their_limits_add_up_to() {
        let mut random = Random::new(3);
        let mut tasks: Vec<Task> = (0..5)
            .map(|_| Task::new(Spec::new(Work::Compute), &mut random))
            .collect();
        // All budgets start equal.
        for task in &mut tasks {
            task.budget = Some(Budget::new(0.27, 2_000_000));
        }
        let mut budgets = Budgets::new(&kaemmerer::machine(), 5, IdleCpus::Hold, &mut random);
        let mut used = [0.0; 5];
        for step in 0..20_000 {
            budgets.schedule(step * STEP_NS, &kaemmerer::machine(), &mut tasks);
            let running: Vec<usize> = budgets.running.iter().flatten().copied().collect();
            // They wake up together, before any limit is in force.
            assert!(running.len() <= 2 || step < 100, "{step}: {running:?}");
            running
                .iter()
                .for_each(|task| used[*task] += STEP_NS as f64 / 2e9);
            budgets.pass(STEP_NS, &mut tasks);
        }
        assert!(
            used.iter().all(|used| (used - 0.27).abs() < 0.01),
            "{used:?}"
        );
    }

    #[test]
    fn whether_idle_time_is_given_away_is_a_choice() {
        assert!((used(2, 2, 0.25, IdleCpus::Hold)[0] - 0.25).abs() < 0.005);
        assert!(used(2, 2, 0.25, IdleCpus::Use)[0] > 0.95);
        // Not if another task wants it.
        let used = used(1, 2, 0.25, IdleCpus::Use);
        assert!(used[0] < 0.3 && used[1] > 0.7, "{used:?}");
    }

    #[test]
    fn without_limits_all_tasks_get_the_same() {
        for used in used(2, 5, 9.0, IdleCpus::Hold) {
            assert!((used - 0.4).abs() < 0.02, "{used}");
        }
    }
}
