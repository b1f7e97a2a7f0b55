//! The user processes of the machine, from /proc: name, size, and when each one last ran.

pub mod freezer;
pub mod order;

use crate::system::tree::Tree;

/// `PF_KTHREAD` in the flags of /proc/PID/stat: no memory of its own.
const KERNEL_THREAD_FLAG: u64 = 0x0020_0000;

/// What the policies know of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub name: String,
    /// Start time in clock ticks since boot: with the pid, the identity of a process.
    pub start_ticks: u64,
    pub rss_bytes: u64,
    /// When one of its threads last ran (`se.exec_start`), if the kernel shows it.
    pub exec_start_ns: Option<u64>,
    pub kernel: bool,
}

/// Parses /proc/PID/stat. The name may hold spaces and parentheses: the last `)` ends it.
pub fn parse_stat(text: &str, page_bytes: u64) -> Option<Process> {
    let (head, tail) = text.split_at(text.rfind(')')?);
    let (pid, name) = head.split_once('(')?;
    // From field 3 (state) on; flags is field 9, starttime 22, rss 24 (proc(5)).
    let fields: Vec<&str> = tail[1..].split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Process {
        pid: pid.trim().parse().ok()?,
        name: name.to_owned(),
        start_ticks: number(22)?,
        rss_bytes: number(24)?.saturating_mul(page_bytes),
        exec_start_ns: None,
        kernel: number(9)? & KERNEL_THREAD_FLAG != 0,
    })
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
pub fn list(tree: &Tree) -> Vec<Process> {
    let page_bytes = rustix::param::page_size() as u64;
    let mut processes: Vec<Process> = tree
        .list("proc")
        .iter()
        .filter_map(|name| name.parse::<i32>().ok())
        .filter_map(|pid| parse_stat(&tree.read(&format!("proc/{pid}/stat")).ok()?, page_bytes))
        .filter(|process| !process.kernel && process.rss_bytes > 0)
        .collect();
    processes.sort_by_key(|process| process.pid);
    processes
}

/// Adds to each process when it last ran. Done before user space is frozen: freezing wakes every
/// thread once and would make them all look recent.
pub fn add_exec_start(tree: &Tree, processes: &mut [Process]) {
    for process in processes {
        let tasks = format!("proc/{}/task", process.pid);
        process.exec_start_ns = tree
            .list(&tasks)
            .iter()
            .filter_map(|thread| {
                parse_exec_start(&tree.read(&format!("{tasks}/{thread}/sched")).ok()?)
            })
            .max();
    }
}

/// The process that has this pid now.
pub fn identify(tree: &Tree, pid: i32) -> Option<Process> {
    let page_bytes = rustix::param::page_size() as u64;
    parse_stat(&tree.read(&format!("proc/{pid}/stat")).ok()?, page_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT: &str = "4711 (a (b) c) S 1 4711 4711 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 555 \
                        12345678 256 18446744073709551615 1 1";

    #[test]
    fn a_name_with_parentheses_does_not_confuse_the_parser() {
        let process = parse_stat(STAT, 4096).unwrap();
        assert_eq!((process.pid, process.name.as_str()), (4711, "a (b) c"));
        assert_eq!((process.start_ticks, process.rss_bytes), (555, 256 * 4096));
        assert!(!process.kernel);
    }

    #[test]
    fn a_kernel_thread_is_recognised() {
        let text = STAT.replace(" 4194560 ", " 69238880 ");
        assert!(parse_stat(&text, 4096).unwrap().kernel);
    }

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
        let mut processes = list(&Tree::real());
        add_exec_start(&Tree::real(), &mut processes);
        let own = std::process::id() as i32;
        let found = processes.iter().find(|process| process.pid == own).unwrap();
        assert!(found.rss_bytes > 0);
        assert!(processes.iter().all(|process| !process.kernel));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,200}", number in any::<u64>()) {
            let _ = parse_stat(&text, number);
            let _ = parse_stat(&format!("1 ({text}) S {number} {text}"), 4096);
            let _ = parse_exec_start(&format!("se.exec_start : {text}"));
        }
    }
}
