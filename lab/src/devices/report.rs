//! Results of a check of the kernel, and of the kernel's own checks.

use std::collections::BTreeMap;

use serde::Serialize;

use super::switches::Mode;

/// What was checked, and what was wrong.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Graphs that were checked.
    pub graphs: u64,
    /// Failures that were injected.
    pub failures: u64,
    /// Wakeups that were injected.
    pub wakeups: u64,
    /// Hangs that were injected.
    pub hangs: u64,
    /// Devices that went or came in the midst of a transition.
    pub changes: u64,
    /// Transitions in which a device had a head start before one that it shares a bus with.
    pub head_starts: u64,
    /// Suspends and resumes.
    pub transitions: u64,
    /// Loads of the module that had to be refused.
    pub refusals: u64,
    /// Unloads of the module, after each of which nothing of it was left.
    pub unloads: u64,
    /// KUnit tests that passed, each time that the machine booted.
    pub kunit: u64,
    /// Memory accesses that the kernel watched for data races; 0 without `--checked races`.
    pub accesses_watched: u64,
    /// Transitions in each mode.
    pub by_mode: BTreeMap<Mode, u64>,
    /// Empty when all is as it must be. Each begins with what gives it again.
    pub breaches: Vec<String>,
    /// Faults that the kernel reported of itself: lockdep, KASAN, UBSAN, KCSAN, assertions, KUnit.
    pub kernel_reports: Vec<String>,
    /// First lines of reports of data races in which nothing of ours took part, see
    /// `is_stock_race`. They make no check fail.
    pub stock_races: Vec<String>,
}

impl Report {
    /// Nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.breaches.is_empty() && self.kernel_reports.is_empty()
    }

    /// Takes in what the kernel reported of itself.
    pub fn add_kernel_reports(&mut self, texts: &[String]) {
        for text in texts {
            if is_stock_race(text) {
                let title = text.lines().next().unwrap_or_default();
                self.stock_races.push(title.to_owned());
            } else {
                self.kernel_reports.push(text.clone());
            }
        }
    }

    /// Takes in what another boot of the machine came to.
    pub fn add(&mut self, other: Report) {
        self.graphs += other.graphs;
        self.failures += other.failures;
        self.wakeups += other.wakeups;
        self.hangs += other.hangs;
        self.changes += other.changes;
        self.head_starts += other.head_starts;
        self.transitions += other.transitions;
        self.refusals += other.refusals;
        self.unloads += other.unloads;
        self.kunit += other.kunit;
        self.accesses_watched += other.accesses_watched;
        for (mode, count) in other.by_mode {
            *self.by_mode.entry(mode).or_default() += count;
        }
        self.breaches.extend(other.breaches);
        self.kernel_reports.extend(other.kernel_reports);
        self.stock_races.extend(other.stock_races);
    }
}

/// Of the suite's results; 0 as soon as one failed.
pub fn kunit_passed(results: &str) -> u64 {
    let mut tests = results.lines().filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        (line.starts_with("ok ") || line.starts_with("not ok ")).then_some(line)
    });
    let passed = tests.clone().filter(|line| line.starts_with("ok ")).count() as u64;
    if tests.any(|line| line.starts_with("not")) {
        return 0;
    }
    passed
}

/// 0 where it is off.
pub fn accesses_watched(kcsan: &str) -> u64 {
    let value = |key: &str| -> Option<u64> {
        let rest = kcsan.lines().find_map(|line| line.strip_prefix(key))?;
        rest.trim_start_matches(':').trim().parse().ok()
    };
    match value("enabled") {
        Some(1) => value("setup_watchpoints").unwrap_or_default(),
        _ => 0,
    }
}

/// How functions of ours begin that others than our own code call: hooks, the workers' threads,
/// files in sysfs and debugfs, callbacks of the made-up devices.
const OURS: [&str; 11] = [
    "dpm_graph",
    "worker_main",
    "pm_graph",
    "test_",
    "costs_",
    "order_",
    "phases_",
    "status_",
    "graph_write",
    "build_write",
    "inject_write",
];

/// Where a stack begins, so that nothing of it is missing.
const BEGINNINGS: [&str; 4] = [
    "ret_from_fork_asm",
    "entry_SYSCALL",
    "common_startup",
    "secondary_startup",
];

/// The clock that runtime PM reads, whoever calls it: its writer keeps two copies under a sequence
/// counter, and the reader takes the copy that is not being written, or reads again
/// (`seqcount_latch_t` of `kernel/time/timekeeping.c`).
const LATCH: &str = "BUG: KCSAN: data-race in ktime_get_mono_fast_ns / timekeeping_update";

/// Functions of one side of a race, the innermost first; nothing where the stack is not whole.
///
/// What an interrupt runs has nothing to do with what it interrupts, so its stack begins at the
/// interrupt's entry. A fault (`asm_exc_`) is part of what the task does.
fn stack<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Vec<&'a str>> {
    let mut functions = Vec::new();
    for line in lines {
        let (function, _) = line.trim_start().split_once("+0x")?;
        functions.push(function);
        let is_interrupt = function.starts_with("asm_") && !function.starts_with("asm_exc_");
        if is_interrupt || BEGINNINGS.iter().any(|name| function.starts_with(name)) {
            return Some(functions);
        }
    }
    None
}

/// Whether KCSAN reports the stock kernel alone: both stacks are there down to where the task, the
/// system call or the interrupt begins, and in neither is one of our functions. The stock kernel
/// has many races that its authors hold for harmless (work queues, timers, the mutex's queue of
/// waiters). A race in a function of the stock kernel that one of our workers has called is not
/// among these: it is ours to explain; the one that is explained is [`LATCH`].
pub fn is_stock_race(text: &str) -> bool {
    let (stacks, _) = text.split_once("Reported by").unwrap_or((text, ""));
    let mut sides = stacks.split("\n\n");
    let is_race = sides
        .next()
        .is_some_and(|title| title.starts_with("BUG: KCSAN: data-race"));
    let is_latch = text.starts_with(LATCH);
    let is_side = |side: &&str| side.contains(" by task ") || side.contains(" by interrupt ");
    let sides: Vec<Option<Vec<&str>>> = sides
        .filter(is_side)
        .map(|side| stack(side.trim().lines().skip(1)))
        .collect();
    let is_stock = |functions: &Vec<&str>| {
        let ours = |function: &&str| OURS.iter().any(|name| function.starts_with(name));
        !functions.iter().any(ours)
    };
    is_latch
        || is_race
            && sides.len() == 2
            && sides.iter().all(|side| side.as_ref().is_some_and(is_stock))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RACE: &str = "BUG: KCSAN: data-race in osq_lock / osq_unlock\n\n\
        write (marked) to 0xffff88800f72ac40 of 8 bytes by task 1 on cpu 0:\n \
        osq_lock+0xc3/0x250\n mutex_lock+0x71/0x80\n device_resume_noirq+0x1/0x2\n \
        dpm_noirq_resume_devices+0x278/0x3b0\n entry_SYSCALL_64_after_hwframe+0x4b/0x53\n\n\
        read to 0xffff88800f72ac40 of 8 bytes by task 68 on cpu 1:\n \
        osq_unlock+0xa0/0x110\n async_resume_noirq+0x18/0x30\n worker_thread+0x2e2/0x550\n \
        ret_from_fork_asm+0x11/0x20\n\nvalue changed: 0x1 -> 0x2\n\nReported by Kernel Concurrency Sanitizer on:\n\
        CPU: 1 UID: 0 PID: 68 Comm: kworker/u9:10 Tainted: G N 6.12.117-dormouse #4\n";

    #[test]
    fn a_race_that_ours_take_part_in_is_no_stock_race() {
        assert!(is_stock_race(RACE));
        let clock = RACE.replace(
            "osq_lock / osq_unlock",
            &LATCH["BUG: KCSAN: data-race in ".len()..],
        );
        assert!(is_stock_race(
            &clock.replace("async_resume_noirq", "worker_main")
        ));
        let interrupted = "asm_common_interrupt+0x1/0x2\n worker_main";
        assert!(is_stock_race(&RACE.replace("mutex_lock", interrupted)));
        for (from, to) in [
            ("async_resume_noirq", "worker_main"),
            ("dpm_noirq_resume_devices", "dpm_graph_up"),
            ("mutex_lock", "test_resume"),
            // A fault is part of what the task does, an interrupt is not.
            ("mutex_lock", "asm_exc_page_fault+0x1/0x2\n worker_main"),
            // Half a stack may have lost one of ours.
            (" ret_from_fork_asm+0x11/0x20\n", ""),
            ("KCSAN: data-race", "KASAN: use-after-free"),
        ] {
            assert!(!is_stock_race(&RACE.replace(from, to)), "{to}");
        }
    }

    #[test]
    fn tests_in_the_kernel_count_only_where_none_failed() {
        let passed = "# Subtest: pm_graph\n    1..2\n    ok 1 a\n    ok 2 b\nok 1 pm_graph\n";
        assert_eq!(kunit_passed(passed), 2);
        assert_eq!(kunit_passed(&passed.replace("ok 2", "not ok 2")), 0);
        assert_eq!(kunit_passed(""), 0);
    }

    #[test]
    fn a_kernel_that_does_not_watch_for_races_is_seen() {
        let watches = "enabled: 1\nused_watchpoints: 0\nsetup_watchpoints: 4711\n";
        assert_eq!(accesses_watched(watches), 4711);
        assert_eq!(
            accesses_watched(&watches.replace("enabled: 1", "enabled: 0")),
            0
        );
    }
}
