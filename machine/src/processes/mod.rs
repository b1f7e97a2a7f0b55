//! The user processes of the machine, from /proc: name, size, and when each one last ran.

pub mod freezer;
pub(crate) mod order;

use dormouse_system::Root;
use dormouse_system::proc::{self, Stat};

use crate::parallel::{self, cpus};

/// What the policies know of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process ID.
    pub pid: i32,
    /// The name of the program.
    pub name: String,
    /// Start time in clock ticks since boot: with the pid, the identity of a process.
    pub start_ticks: u64,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
    /// When one of its threads last ran (`se.exec_start`), if the kernel shows it.
    pub exec_start_ns: Option<u64>,
    /// Whether it is a thread of the kernel.
    pub kernel: bool,
}

impl From<Stat> for Process {
    fn from(stat: Stat) -> Process {
        let page_bytes = rustix::param::page_size() as u64;
        Process {
            pid: stat.pid,
            name: stat.name,
            start_ticks: stat.start_ticks,
            rss_bytes: stat.resident_pages.saturating_mul(page_bytes),
            exec_start_ns: None,
            kernel: stat.is_kernel_thread,
        }
    }
}

/// Parses `se.exec_start` of /proc/PID/task/TID/sched, milliseconds with six decimals, to ns.
pub fn parse_exec_start(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.starts_with("se.exec_start"))?;
    let value = line.split_once(':')?.1.trim();
    let (milliseconds, decimals) = value.split_once('.').unwrap_or((value, "0"));
    if decimals.len() > 6 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds: u64 = format!("{decimals:0<6}").parse().ok()?;
    milliseconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(nanoseconds)
}

/// All user processes, in the order of their pids. One that ends meanwhile is left out.
pub fn list(root: &Root) -> Vec<Process> {
    proc::pids(root)
        .into_iter()
        .filter_map(|pid| identify(root, pid))
        .filter(|process| !process.kernel && process.rss_bytes > 0)
        .collect()
}

/// Adds to each process when it last ran. Done before user space is frozen: freezing wakes every
/// thread once and would make them all look recent.
pub fn add_exec_start(root: &Root, processes: &mut [Process]) {
    let times = parallel::map(cpus(), processes, |process| exec_start(root, process.pid));
    for (process, exec_start_ns) in processes.iter_mut().zip(times) {
        process.exec_start_ns = exec_start_ns;
    }
}

fn exec_start(root: &Root, pid: i32) -> Option<u64> {
    let threads = proc::threads(root, pid).into_iter();
    let time = |thread| {
        let path = format!("proc/{pid}/task/{thread}/sched");
        parse_exec_start(&root.read(&path).ok()?)
    };
    threads.filter_map(time).max()
}

/// The process that has this pid now.
pub fn identify(root: &Root, pid: i32) -> Option<Process> {
    proc::stat(root, pid).ok().map(Process::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_time_of_last_running_is_read_in_nanoseconds() {
        let text = "sed (1, #threads: 1)\n----\nse.exec_start            :       1504097.533867\n";
        assert_eq!(parse_exec_start(text), Some(1_504_097_533_867));
        assert_eq!(parse_exec_start("se.exec_start : 2.5\n"), Some(2_500_000));
        assert_eq!(parse_exec_start("se.vruntime : 2.5\n"), None);
        assert_eq!(parse_exec_start("se.exec_start : -2.5\n"), None);
    }

    #[test]
    fn this_process_is_found_in_the_real_proc() {
        let mut processes = list(&Root::host());
        add_exec_start(&Root::host(), &mut processes);
        let own = std::process::id() as i32;
        let found = processes.iter().find(|process| process.pid == own).unwrap();
        assert!(found.rss_bytes > 0);
        assert!(processes.iter().all(|process| !process.kernel));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,200}") {
            let _ = parse_exec_start(&format!("se.exec_start : {text}"));
        }
    }
}
