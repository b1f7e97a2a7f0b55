//! The lower bound of all schedules: the critical path, the work of the CPUs, and the queue at the
//! busiest slow bus.
//!
//! What shares a CPU or a bus cannot begin before the devices that it waits for are done, and other
//! devices run after it. So each of these resources is bounded by the maximum over all sets of
//! devices of the earliest start in the set, the work of the set, and the shortest chain behind it.
//! Jackson's preemptive schedule attains this maximum (J. Carlier, The one-machine sequencing
//! problem, European Journal of Operational Research 11, 1982).

use std::collections::{BTreeMap, BinaryHeap};

use serde::Serialize;

use super::Problem;

/// The lower bound of a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// The longest chain of devices that wait for each other.
    pub critical_path_ns: u64,
    /// Its devices, in the order in which they run; those that take no time are left out.
    pub critical_path: Vec<usize>,
    /// Time on a CPU of any set of devices, divided by the number of CPUs, with what must come before
    /// and after it.
    pub work_per_cpu_ns: u64,
    /// The same for devices that share a slow bus, one at a time.
    pub busiest_bus_ns: u64,
}

impl Bound {
    /// The largest of them.
    pub fn ns(&self) -> u64 {
        self.critical_path_ns
            .max(self.work_per_cpu_ns)
            .max(self.busiest_bus_ns)
    }
}

/// The bound of a phase on `cpus` CPUs. It counts the devices' own time only, without the overhead
/// of a schedule.
pub fn bound(problem: &Problem, cpus: usize) -> Bound {
    let chains = Chains::of(problem, 0);
    let last = (0..problem.jobs.len()).max_by_key(|&device| chains.finish_ns(device));
    let mut critical_path = Vec::new();
    let mut next = last;
    while let Some(device) = next {
        if problem.jobs[device].duration_ns() > 0 {
            critical_path.push(device);
        }
        let before = problem.before(device).iter().map(|&d| d as usize);
        next = before.max_by_key(|&d| chains.finish_ns(d));
    }
    critical_path.reverse();
    Bound {
        busiest_bus_ns: busiest_bus_ns(problem, &chains),
        critical_path_ns: last.map_or(0, |device| chains.finish_ns(device)),
        critical_path,
        work_per_cpu_ns: work_per_cpu_ns(problem, &chains, cpus, 0),
    }
}

/// The bound of a phase on a machine with one clock for the instructions of all CPUs, in which the
/// kernel takes `handling_ns` for each device and for each of `others`, devices of which no more is
/// known.
///
/// Handling adds up on the clock, whichever CPU does it, and a CPU that handles a device does not
/// compute for another one meanwhile: beside a CPU that computes, handling takes twice as long, and
/// alone it keeps that CPU from computing. So each device asks for `handling_ns` of all CPUs, and
/// for its own time of one of them.
pub fn bound_with_handling(problem: &Problem, cpus: usize, handling_ns: u64, others: usize) -> u64 {
    let chains = Chains::of(problem, handling_ns);
    let longest = (0..problem.jobs.len()).map(|device| chains.finish_ns(device));
    longest
        .max()
        .unwrap_or(0)
        .max(work_per_cpu_ns(problem, &chains, cpus, others))
        .max(busiest_bus_ns(problem, &chains))
}

fn work_per_cpu_ns(problem: &Problem, chains: &Chains, cpus: usize, others: usize) -> u64 {
    let cpus = cpus.max(1) as u64;
    let jobs = problem.jobs.iter().enumerate();
    // In units of 1/cpus ns, so that one CPU does the work of all.
    let handling = chains.handling_ns * cpus;
    let works = jobs.map(|(device, job)| {
        let work = chains.work(device, job.busy_ns);
        Work {
            head_ns: work.head_ns * cpus,
            ns: work.ns + handling,
            tail_ns: work.tail_ns * cpus,
        }
    });
    let unknown = (0..others).map(|_| Work {
        ns: handling,
        ..Work::default()
    });
    one_at_a_time(works.chain(unknown)).div_ceil(cpus)
}

fn busiest_bus_ns(problem: &Problem, chains: &Chains) -> u64 {
    let mut buses: BTreeMap<u32, Vec<Work>> = BTreeMap::new();
    for (device, job) in problem.jobs.iter().enumerate() {
        if let Some(bus) = job.bus {
            let work = chains.work(device, job.duration_ns());
            buses.entry(bus).or_default().push(work);
        }
    }
    buses.into_values().map(one_at_a_time).max().unwrap_or(0)
}

/// The chains of devices before and behind each device, with `handling_ns` for each of their devices.
struct Chains {
    handling_ns: u64,
    /// When each device can begin, with as many CPUs and buses as one could wish for.
    head_ns: Vec<u64>,
    own_ns: Vec<u64>,
    /// What must come after each device.
    tail_ns: Vec<u64>,
}

impl Chains {
    fn of(problem: &Problem, handling_ns: u64) -> Chains {
        let jobs = problem.jobs.iter();
        let own_ns: Vec<u64> = jobs.map(|job| job.duration_ns() + handling_ns).collect();
        let mut head_ns = vec![0; own_ns.len()];
        // The walk never has a device before one that it waits for.
        for &device in &problem.walk {
            let before = problem.before(device).iter().map(|&d| d as usize);
            let ends = before.map(|d| head_ns[d] + own_ns[d]);
            head_ns[device] = ends.max().unwrap_or(0);
        }
        let mut tail_ns = vec![0; own_ns.len()];
        for &device in problem.walk.iter().rev() {
            let after = problem.after(device).iter().map(|&d| d as usize);
            let rest = after.map(|d| tail_ns[d] + own_ns[d]);
            tail_ns[device] = rest.max().unwrap_or(0);
        }
        Chains {
            handling_ns,
            head_ns,
            own_ns,
            tail_ns,
        }
    }

    fn finish_ns(&self, device: usize) -> u64 {
        self.head_ns[device] + self.own_ns[device]
    }

    fn work(&self, device: usize, ns: u64) -> Work {
        Work {
            head_ns: self.head_ns[device],
            ns,
            tail_ns: self.tail_ns[device],
        }
    }
}

/// What a device asks of a resource.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Before this time it cannot begin.
    head_ns: u64,
    ns: u64,
    /// What comes after it without the resource.
    tail_ns: u64,
}

/// When the last tail can have ended, if a resource does one work at a time and may interrupt it:
/// Jackson's preemptive schedule, in which the longest tail goes first.
fn one_at_a_time(works: impl IntoIterator<Item = Work>) -> u64 {
    let mut works: Vec<Work> = works.into_iter().filter(|work| work.ns > 0).collect();
    works.sort_unstable_by_key(|work| work.head_ns);
    let mut works = works.into_iter().peekable();
    let mut ready: BinaryHeap<(u64, u64)> = BinaryHeap::new();
    let (mut now_ns, mut end_ns) = (0, 0);
    loop {
        while let Some(work) = works.next_if(|work| work.head_ns <= now_ns) {
            ready.push((work.tail_ns, work.ns));
        }
        let next_ns = works.peek().map(|work| work.head_ns);
        match (ready.pop(), next_ns) {
            (None, None) => return end_ns,
            (None, Some(next_ns)) => now_ns = next_ns,
            (Some((tail_ns, ns)), Some(next_ns)) if now_ns + ns > next_ns => {
                ready.push((tail_ns, now_ns + ns - next_ns));
                now_ns = next_ns;
            }
            (Some((tail_ns, ns)), _) => {
                now_ns += ns;
                end_ns = end_ns.max(now_ns + tail_ns);
            }
        }
    }
}

/// The longest remaining chain of each device, itself included: the priority of list scheduling.
pub fn remaining(problem: &Problem) -> Vec<u64> {
    let mut remaining_ns = vec![0; problem.jobs.len()];
    for &device in problem.walk.iter().rev() {
        let after = problem.after(device).iter();
        let longest_ns = after.map(|&d| remaining_ns[d as usize]).max().unwrap_or(0);
        remaining_ns[device] = longest_ns + problem.jobs[device].duration_ns();
    }
    remaining_ns
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{Direction, Edge, Edges, list_order};
    use crate::simulate::Job;

    fn work(head_ns: u64, ns: u64, tail_ns: u64) -> Work {
        Work {
            head_ns,
            ns,
            tail_ns,
        }
    }

    /// The bound as its definition has it: the maximum over all sets.
    fn over_all_sets(works: &[Work]) -> u64 {
        let sets = 1u32..1 << works.len();
        let of_set = |set: u32| {
            let members = works.iter().enumerate();
            let members: Vec<&Work> = members
                .filter(|(index, work)| set & (1 << index) != 0 && work.ns > 0)
                .map(|(_, work)| work)
                .collect();
            let head_ns = members.iter().map(|work| work.head_ns).min()?;
            let tail_ns = members.iter().map(|work| work.tail_ns).min()?;
            let sum_ns: u64 = members.iter().map(|work| work.ns).sum();
            Some(head_ns + sum_ns + tail_ns)
        };
        sets.filter_map(of_set).max().unwrap_or(0)
    }

    /// How far a device is, for [`best`].
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Stage {
        /// Halves of a nanosecond that are left.
        Handling(u64),
        /// Handled, and not begun.
        Handled,
        Computing(u64),
        Waiting(u64),
        Done,
    }

    impl Stage {
        fn begun(job: &Job) -> Stage {
            match (job.busy_ns, job.wait_ns) {
                (0, 0) => Stage::Done,
                (0, ns) => Stage::Waiting(ns),
                (ns, _) => Stage::Computing(ns),
            }
        }

        fn holds_its_bus(self) -> bool {
            matches!(self, Stage::Computing(_) | Stage::Waiting(_))
        }

        /// After another nanosecond, in which `running` devices share the clock.
        fn next(self, job: &Job, is_running: bool, running: u64) -> Stage {
            match self {
                Stage::Handling(left) if is_running => match left.saturating_sub(2 / running) {
                    0 => Stage::Handled,
                    left => Stage::Handling(left),
                },
                Stage::Computing(1) if is_running => match job.wait_ns {
                    0 => Stage::Done,
                    ns => Stage::Waiting(ns),
                },
                Stage::Computing(left) if is_running => Stage::Computing(left - 1),
                Stage::Waiting(1) => Stage::Done,
                Stage::Waiting(left) => Stage::Waiting(left - 1),
                same => same,
            }
        }
    }

    fn is_free(problem: &Problem, state: &[Stage], device: usize) -> bool {
        let before = problem.before(device);
        before.iter().all(|&d| state[d as usize] == Stage::Done)
    }

    /// The shortest of all preemptive schedules on the one clock of one or two CPUs, which may
    /// switch at each whole nanosecond: a search through all of them.
    fn best(problem: &Problem, cpus: usize, handling_ns: u64) -> u64 {
        let count = problem.jobs.len();
        let first = match handling_ns {
            0 => Stage::Handled,
            ns => Stage::Handling(2 * ns),
        };
        let mut states = BTreeSet::from([vec![first; count]]);
        for now_ns in 0.. {
            let mut open: Vec<Vec<Stage>> = states.iter().cloned().collect();
            while let Some(state) = open.pop() {
                for device in 0..count {
                    let job = &problem.jobs[device];
                    let held = |other: usize| {
                        state[other].holds_its_bus() && problem.jobs[other].bus == job.bus
                    };
                    if state[device] == Stage::Handled
                        && is_free(problem, &state, device)
                        && !(job.bus.is_some() && (0..count).any(held))
                    {
                        let mut begun = state.clone();
                        begun[device] = Stage::begun(job);
                        if states.insert(begun.clone()) {
                            open.push(begun);
                        }
                    }
                }
            }
            if states.contains(&vec![Stage::Done; count]) {
                return now_ns;
            }
            let mut after = BTreeSet::new();
            for state in &states {
                let may_run = |device: usize| match state[device] {
                    Stage::Handling(_) => is_free(problem, state, device),
                    Stage::Computing(_) => true,
                    _ => false,
                };
                for set in 0u32..1 << count {
                    let is_running = |device: usize| set & (1 << device) != 0;
                    if set.count_ones() as usize > cpus
                        || (0..count).any(|device| is_running(device) && !may_run(device))
                    {
                        continue;
                    }
                    let running = u64::from(set.count_ones());
                    let stages = state.iter().zip(&problem.jobs).enumerate();
                    let next = stages
                        .map(|(device, (stage, job))| stage.next(job, is_running(device), running));
                    after.insert(next.collect());
                }
            }
            states = after;
        }
        unreachable!("every device ends")
    }

    fn random_below(state: &mut u64, limit: u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*state >> 33) % limit
    }

    fn small_problem(state: &mut u64) -> Problem {
        let mut below = |limit| random_below(state, limit);
        let count = 1 + below(4) as usize;
        let pairs = (0..below(5)).map(|_| (below(4) as usize, below(4) as usize));
        let pairs: Vec<(usize, usize)> = pairs.filter(|(a, b)| a < b && *b < count).collect();
        let edges = pairs.into_iter().map(|(superior, subordinate)| Edge {
            superior,
            subordinate,
        });
        let edges = Edges::from_candidates(count, edges);
        let jobs = (0..count).map(|_| Job {
            busy_ns: below(2) * below(4),
            wait_ns: below(2) * below(4),
            bus: (below(2) == 0).then_some(0),
            has_callback: true,
        });
        let jobs: Vec<Job> = jobs.collect();
        let list = list_order(&edges, |device| device);
        Problem::new(Direction::Resume, jobs, edges, &list)
    }

    #[test]
    fn no_schedule_is_shorter_than_the_bound() {
        let (mut state, mut attained) = (7, 0);
        for round in 0..400 {
            let problem = small_problem(&mut state);
            let cpus = 1 + round % 2;
            let handling_ns = random_below(&mut state, 3);
            let bound_ns = bound_with_handling(&problem, cpus, handling_ns, 0);
            let best_ns = best(&problem, cpus, handling_ns);
            assert!(bound_ns <= best_ns, "{bound_ns} > {best_ns}: {problem:?}");
            if handling_ns == 0 {
                assert_eq!(bound_ns, bound(&problem, cpus).ns());
            }
            attained += u32::from(bound_ns == best_ns);
        }
        assert!(attained > 200, "{attained}");
    }

    #[test]
    fn handling_takes_the_clock_from_all_cpus() {
        let problem = |count: usize| {
            let job = Job {
                busy_ns: 10,
                ..Job::default()
            };
            let edges = Edges::from_candidates(count, std::iter::empty());
            let list: Vec<usize> = (0..count).collect();
            Problem::new(Direction::Resume, vec![job; count], edges, &list)
        };
        // Four handlings of 3, and 40 on two CPUs.
        assert_eq!(bound_with_handling(&problem(4), 2, 3, 0), 4 * 3 + 20);
        assert_eq!(bound_with_handling(&problem(4), 2, 3, 5), 9 * 3 + 20);
        // One device: its own chain.
        assert_eq!(bound_with_handling(&problem(1), 2, 3, 0), 13);
    }

    #[test]
    fn work_that_cannot_begin_earlier_and_has_others_behind_it_raises_the_bound() {
        assert_eq!(one_at_a_time([work(5, 2, 0), work(5, 2, 0)]), 9);
        assert_eq!(one_at_a_time([work(0, 2, 7), work(0, 2, 7)]), 11);
        assert_eq!(one_at_a_time([work(0, 0, 9)]), 0);
    }

    #[test]
    fn the_preemptive_schedule_attains_the_maximum_over_all_sets() {
        let mut state = 1u64;
        let mut below = |limit: u64| random_below(&mut state, limit);
        for _ in 0..2_000 {
            let works: Vec<Work> = (0..1 + below(8))
                .map(|_| work(below(20), below(6), below(20)))
                .collect();
            let ns = one_at_a_time(works.iter().copied());
            assert_eq!(ns, over_all_sets(&works), "{works:?}");
        }
    }
}
