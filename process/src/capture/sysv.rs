//! System V semaphores, message queues and shared memory. They have no owning process: the kernel
//! reports only the PID of the process that touched them last, and when. They do not survive a
//! boot, so a program that uses them is refused.
//!
//! They outlive the process that made them, and PIDs are reused: an object that was last touched
//! before a process started was not touched by that process. (If the wall clock was set forward in
//! between, this check can miss an object, which the program then lacks after a restore.)
//!
//! Attached shared memory is found among the mappings.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::ClockId;

use super::Builder;
use crate::procfs;
use crate::ptrace::Pid;

/// Semaphores of a set that are read; the usual limit is 250.
const SEMAPHORES_MAX: i32 = 1000;

/// What the kernel's times of such things (whole seconds) and of starts (ticks) may be apart.
const SLACK_SECONDS: i64 = 2;

/// A process of the tree, and the second (of the wall clock) in which it started.
struct Member {
    pid: Pid,
    started: i64,
}

impl Member {
    fn of(pid: Pid) -> Self {
        // A process without a readable start time counts as older than everything: refusing is safer.
        let started = procfs::stat(pid, pid).map_or(0, |stat| {
            let ticks = rustix::param::clock_ticks_per_second().max(1);
            (booted() + Duration::from_secs(stat.started / ticks)).as_secs() as i64
        });
        Self { pid, started }
    }
}

/// When the machine booted, by the wall clock as it is set now.
fn booted() -> Duration {
    let up = rustix::time::clock_gettime(ClockId::Boottime);
    let up = Duration::new(up.tv_sec as u64, up.tv_nsec as u32);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.saturating_sub(up)
}

/// Which of `tree` has touched a thing that `pid` touched no later than `when`, in seconds.
fn toucher(tree: &[Member], pid: i64, when: i64) -> Option<Pid> {
    let is_it = |member: &&Member| {
        i64::from(member.pid) == pid && when.saturating_add(SLACK_SECONDS) >= member.started
    };
    tree.iter().find(is_it).map(|member| member.pid)
}

impl Builder<'_> {
    /// Refuses what processes of the tree have used.
    pub(super) fn system_v(&mut self, tree: &[Pid]) {
        let tree: Vec<Member> = tree.iter().map(|pid| Member::of(*pid)).collect();
        let mut found = semaphores(&tree, &table("sem"));
        found.extend(messages(&tree, &table("msg")));
        found.extend(segments(&tree, &table("shm")));
        for (pid, what) in found {
            self.pid = pid;
            self.program = procfs::stat(pid, pid).map_or_else(|_| String::new(), |stat| stat.name);
            self.refuse(format!("it uses the {what}"));
        }
    }
}

type Found = Vec<(Pid, String)>;

fn semaphores(tree: &[Member], table: &str) -> Found {
    let columns = ["semid", "nsems", "otime", "ctime"];
    let user = |[set, count, operated, changed]: [i64; 4]| {
        // The times are the whole set's, no earlier than any semaphore's own.
        let user = (0..(count as i32).min(SEMAPHORES_MAX)).find_map(|semaphore| {
            // SAFETY: no memory involved.
            let pid = unsafe { libc::semctl(set as i32, semaphore, libc::GETPID) };
            toucher(tree, pid.into(), operated.max(changed))
        });
        Some((user?, format!("System V semaphore set {set}")))
    };
    rows(table, columns).filter_map(user).collect()
}

fn messages(tree: &[Member], table: &str) -> Found {
    let columns = ["msqid", "lspid", "lrpid", "stime", "rtime"];
    let user = |[queue, sender, receiver, sent, received]: [i64; 5]| {
        let user = toucher(tree, sender, sent).or_else(|| toucher(tree, receiver, received));
        Some((user?, format!("System V message queue {queue}")))
    };
    rows(table, columns).filter_map(user).collect()
}

/// Those that no process has attached.
fn segments(tree: &[Member], table: &str) -> Found {
    let columns = ["shmid", "cpid", "lpid", "nattch", "atime", "dtime", "ctime"];
    let user = |[segment, maker, last, attached, at, dt, changed]: [i64; 7]| {
        if attached != 0 {
            return None;
        }
        let user = toucher(tree, maker, changed).or_else(|| toucher(tree, last, at.max(dt)));
        Some((user?, format!("System V shared memory {segment}")))
    };
    rows(table, columns).filter_map(user).collect()
}

/// A table of /proc/sysvipc; nothing where the kernel has no such things.
fn table(name: &str) -> String {
    fs::read_to_string(format!("/proc/sysvipc/{name}")).unwrap_or_default()
}

/// The values of these columns in each row that has them; -1 for what is no number.
fn rows<const N: usize>(table: &str, columns: [&str; N]) -> impl Iterator<Item = [i64; N]> {
    let mut lines = table.lines();
    let names: Vec<&str> = lines
        .next()
        .unwrap_or("")
        .split_ascii_whitespace()
        .collect();
    let places = columns.map(|column| names.iter().position(|name| *name == column));
    lines.filter_map(move |line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let values = places.map(|place| words.get(place?)?.parse().ok().or(Some(-1)));
        values
            .iter()
            .all(Option::is_some)
            .then(|| values.map(|value| value.unwrap_or(-1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process 77 left behind in second 1,000.
    const SEGMENTS: &str = "\
  key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap
    0    13   600 8192   77   77      0   0   0    0    0  1000  1000  1000   0    0
";
    const MESSAGES: &str = "\
  key msqid perms cbytes qnum lspid lrpid uid gid cuid cgid stime rtime ctime
    0     4   600      0    1    77     0   0   0    0    0  1000     0   900
";

    fn member(pid: Pid, started: i64) -> [Member; 1] {
        [Member { pid, started }]
    }

    #[test]
    fn what_a_process_of_the_tree_touched_is_found() {
        let tree = member(77, 950);
        assert_eq!(segments(&tree, SEGMENTS)[0].1, "System V shared memory 13");
        assert_eq!(messages(&tree, MESSAGES)[0].1, "System V message queue 4");
        assert!(segments(&member(78, 950), SEGMENTS).is_empty());
    }

    #[test]
    fn what_somebody_with_the_same_pid_left_behind_before_is_not_its() {
        let tree = member(77, 1010);
        assert!(segments(&tree, SEGMENTS).is_empty());
        assert!(messages(&tree, MESSAGES).is_empty());
    }

    #[test]
    fn an_own_set_of_semaphores_is_found_in_the_kernels_table() {
        // SAFETY: no memory involved.
        let set = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
        assert!(set >= 0);
        // SAFETY: SETVAL takes a number.
        unsafe { libc::semctl(set, 0, libc::SETVAL, 1) };
        let tree = [Member::of(std::process::id() as Pid)];
        let before = [Member {
            started: tree[0].started + 1_000_000,
            ..tree[0]
        }];
        let named = format!("System V semaphore set {set}");
        let is_named = |found: Found| found.iter().any(|(_, what)| *what == named);
        let (found, not_its) = (
            semaphores(&tree, &table("sem")),
            semaphores(&before, &table("sem")),
        );
        // SAFETY: no memory involved.
        unsafe { libc::semctl(set, 0, libc::IPC_RMID) };
        assert!(is_named(found));
        assert!(!is_named(not_its));
    }
}
