//! In which order processes' pages move: largest first on the way down (so that no CPU ends up
//! alone with a big one), most recently running first while they migrate back.

use crate::options::Policy;
use crate::processes::Process;

/// Sorts processes for migrating back, with either policy. Where the kernel shows no `se.exec_start`, the process that was started
/// last comes first; pids make the order total.
pub fn for_migrate_back(policy: Policy, processes: &mut [Process]) {
    match policy {
        Policy::ProcessOrder | Policy::HotFirst => processes.sort_by(|a, b| {
            (b.exec_start_ns, b.start_ticks, b.pid).cmp(&(a.exec_start_ns, a.start_ticks, a.pid))
        }),
    }
}

/// Sorts for the way down: largest first.
pub fn for_sleep(processes: &mut [Process]) {
    processes.sort_by(|a, b| (b.rss_bytes, a.pid).cmp(&(a.rss_bytes, b.pid)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn process(pid: i32, exec_start_ns: Option<u64>, start_ticks: u64, rss_bytes: u64) -> Process {
        Process {
            pid,
            name: String::new(),
            start_ticks,
            rss_bytes,
            exec_start_ns,
            kernel: false,
        }
    }

    fn pids(processes: &[Process]) -> Vec<i32> {
        processes.iter().map(|process| process.pid).collect()
    }

    fn sorted<const N: usize>(sort: impl Fn(&mut [Process]), mut all: [Process; N]) -> Vec<i32> {
        sort(&mut all);
        pids(&all)
    }

    fn in_process_order(processes: &mut [Process]) {
        for_migrate_back(Policy::ProcessOrder, processes);
    }

    #[test]
    fn the_process_that_ran_last_migrates_back_first() {
        let ran = |pid, exec_start_ns, ticks| process(pid, Some(exec_start_ns), ticks, 0);
        let all = [ran(1, 5, 1), ran(2, 900, 2), ran(3, 40, 9)];
        assert_eq!(sorted(in_process_order, all), [2, 3, 1]);
    }

    #[test]
    fn without_scheduler_data_the_youngest_comes_first_and_after_those_with_data() {
        let started = |pid, ticks| process(pid, None, ticks, 0);
        let all = [started(1, 10), started(2, 20), process(3, Some(1), 5, 0)];
        assert_eq!(sorted(in_process_order, all), [3, 2, 1]);
    }

    #[test]
    fn the_largest_goes_down_first() {
        let large = |pid, rss_bytes| process(pid, None, 0, rss_bytes);
        let all = [large(1, 10), large(2, 30), large(3, 30)];
        assert_eq!(sorted(for_sleep, all), [2, 3, 1]);
    }

    proptest! {
        #[test]
        fn the_order_does_not_depend_on_how_processes_were_listed(
            keys in prop::collection::vec((prop::option::of(0u64..4), 0u64..4), 0..30),
            turn in 0usize..30,
        ) {
            let mut one: Vec<Process> = keys
                .iter()
                .enumerate()
                .map(|(pid, (exec, start))| process(pid as i32, *exec, *start, 0))
                .collect();
            let mut other = one.clone();
            if !other.is_empty() {
                let turn = turn % other.len();
                other.rotate_left(turn);
            }
            for_migrate_back(Policy::ProcessOrder, &mut one);
            for_migrate_back(Policy::ProcessOrder, &mut other);
            prop_assert_eq!(pids(&one), pids(&other));
        }
    }
}
