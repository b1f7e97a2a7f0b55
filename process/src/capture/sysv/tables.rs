//! Which System V objects a tree uses, by the kernel's tables (/proc/sysvipc). They have no owning
//! process: the kernel reports only the PID of the process that touched them last, and when.
//!
//! They outlive the process that made them, and PIDs are reused: an object that was last touched
//! before a process started was not touched by that process. (If the wall clock was set forward in
//! between, this check can miss an object, which the program then lacks after a restore.)

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::ClockId;

use crate::procfs;
use crate::ptrace::Pid;

/// What the kernel's times of such things (whole seconds) and of starts (ticks) may be apart.
const SLACK_SECONDS: i64 = 2;

/// A process of the tree, and the second (of the wall clock) in which it started.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    pub pid: Pid,
    pub started: i64,
}

impl Member {
    /// `started` is in ticks after the boot. A process without it counts as older than everything: it
    /// is no loss to store too much.
    pub fn new(pid: Pid, started: Option<u64>) -> Self {
        let started = started.map_or(0, |started| {
            let ticks = rustix::param::clock_ticks_per_second().max(1);
            (booted() + Duration::from_secs(started / ticks)).as_secs() as i64
        });
        Self { pid, started }
    }
}

/// When a process started, in ticks after the boot.
pub fn started(pid: Pid) -> Option<u64> {
    procfs::stat(pid, pid).ok().map(|stat| stat.started)
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

/// The processes that may have touched an object, and the users that they run as.
#[derive(Debug)]
pub struct Users<'tree> {
    /// The tree's processes; first the tracker, which touches what it restores.
    pub members: &'tree [Member],
    /// Effective users of the tree.
    pub users: &'tree [u32],
}

impl Users<'_> {
    /// Whether one of them has touched a thing that `pid` touched no later than `when`, in seconds.
    fn touched(&self, pid: i64, when: i64) -> bool {
        self.members.iter().any(|member| {
            i64::from(member.pid) == pid && when.saturating_add(SLACK_SECONDS) >= member.started
        })
    }

    /// Whether one of them may have touched, or made, what was touched last at `when`, in seconds.
    fn were_there(&self, when: i64) -> bool {
        let mut members = self.members.iter();
        members.any(|member| when.saturating_add(SLACK_SECONDS) >= member.started)
    }

    /// Whether an object that nobody has touched since it was made may be theirs.
    fn may_have_made(&self, creator: i64, when: i64) -> bool {
        let first = self.members.iter().map(|member| member.started).min();
        self.users.iter().any(|user| i64::from(*user) == creator)
            && first.is_some_and(|first| when >= first)
    }
}

/// Semaphore sets that the tree uses. `last` gives the processes that last touched each semaphore of one.
pub fn semaphores(
    users: &Users<'_>,
    table: &str,
    last: impl Fn(i32, usize) -> Vec<Pid>,
) -> Vec<i32> {
    let mut found = Vec::new();
    for row in rows(table) {
        // key, semid, perms, nsems, uid, gid, cuid, cgid, otime, ctime
        let [_, set, _, count, _, _, creator, _, operated, changed, ..] = row[..] else {
            continue;
        };
        // The times are the whole set's, no earlier than any semaphore's own.
        let when = operated.max(changed);
        // A machine may have many sets of others: none is asked for that cannot be the tree's.
        if !users.were_there(when) {
            continue;
        }
        let touchers = last(set as i32, count.max(0) as usize);
        let untouched = touchers.iter().all(|pid| *pid == 0);
        let touched = touchers
            .iter()
            .any(|pid| users.touched((*pid).into(), when));
        if touched || untouched && users.may_have_made(creator, changed) {
            found.push(set as i32);
        }
    }
    found
}

/// All semaphore sets, each with whether a process has operated on it: no process has adjustments
/// of another one.
pub fn all_semaphores(table: &str) -> Vec<(i32, bool)> {
    let set = |row: Vec<i64>| match row[..] {
        // key, semid, perms, nsems, uid, gid, cuid, cgid, otime, ctime
        [_, set, _, _, _, _, _, _, operated, ..] => Some((set as i32, operated != 0)),
        // Of a kernel that does not say when, it may be.
        [_, set, ..] => Some((set as i32, true)),
        _ => None,
    };
    rows(table).into_iter().filter_map(set).collect()
}

/// Message queues that the tree uses.
pub fn queues(users: &Users<'_>, table: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for row in rows(table) {
        // key, msqid, perms, cbytes, qnum, lspid, lrpid, uid, gid, cuid, cgid, stime, rtime, ctime
        let [
            _,
            queue,
            _,
            _,
            _,
            sender,
            receiver,
            _,
            _,
            creator,
            _,
            sent,
            received,
            changed,
            ..,
        ] = row[..]
        else {
            continue;
        };
        let touched = users.touched(sender, sent) || users.touched(receiver, received);
        let untouched = sender == 0 && receiver == 0;
        if touched || untouched && users.may_have_made(creator, changed) {
            found.push(queue as i32);
        }
    }
    found
}

/// Segments of shared memory that the tree uses, and that no process has attached.
pub fn segments(users: &Users<'_>, table: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for row in rows(table) {
        // key, shmid, perms, size, cpid, lpid, nattch, uid, gid, cuid, cgid, atime, dtime, ctime
        let [
            _,
            segment,
            _,
            _,
            maker,
            last,
            0,
            _,
            _,
            _,
            _,
            attached,
            detached,
            changed,
            ..,
        ] = row[..]
        else {
            continue;
        };
        if users.touched(maker, changed) || users.touched(last, attached.max(detached)) {
            found.push(segment as i32);
        }
    }
    found
}

/// A table of /proc/sysvipc; nothing where the kernel has no such things.
pub fn table(name: &str) -> String {
    procfs::text(format!("/proc/sysvipc/{name}")).unwrap_or_default()
}

fn rows(table: &str) -> Vec<Vec<i64>> {
    let lines = table.lines().skip(1);
    lines
        .map(|line| {
            let words = line.split_ascii_whitespace();
            words.map(|word| word.parse().unwrap_or(-1)).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process 77 left behind in second 1,000.
    const SEGMENTS: &str = "\
  key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap
    0    13   600 8192   77   77      0   0   0    0    0  1000  1000  1000   0    0
";
    const QUEUES: &str = "\
  key msqid perms cbytes qnum lspid lrpid uid gid cuid cgid stime rtime ctime
    0     4   600      0    1    77     0   0   0    0    0  1000     0   900
";
    const SETS: &str = "\
  key semid perms nsems uid gid cuid cgid otime ctime
    0     6   600     2   0   0    0    0     0  1000
";

    fn with<Found>(pid: Pid, started: i64, find: impl FnOnce(&Users<'_>) -> Found) -> Found {
        find(&Users {
            members: &[Member { pid, started }],
            users: &[0],
        })
    }

    #[test]
    fn what_a_process_of_the_tree_touched_is_found() {
        assert_eq!(with(77, 950, |users| segments(users, SEGMENTS)), [13]);
        assert_eq!(with(77, 950, |users| queues(users, QUEUES)), [4]);
        let last = |_, count| vec![77; count];
        assert_eq!(with(77, 950, |users| semaphores(users, SETS, last)), [6]);
        assert!(with(78, 950, |users| segments(users, SEGMENTS)).is_empty());
        assert!(with(78, 950, |users| semaphores(users, SETS, last)).is_empty());
    }

    #[test]
    fn what_somebody_with_the_same_pid_left_behind_before_is_not_its() {
        assert!(with(77, 1010, |users| segments(users, SEGMENTS)).is_empty());
        assert!(with(77, 1010, |users| queues(users, QUEUES)).is_empty());
    }

    #[test]
    fn sets_that_were_touched_before_the_tree_started_are_not_asked_for() {
        let never = |_, _| panic!("asked for");
        assert!(with(77, 1003, |users| semaphores(users, SETS, never)).is_empty());
        let nobody = |_, count| vec![0; count];
        assert!(with(77, 1002, |users| semaphores(users, SETS, nobody)).is_empty());
    }

    #[test]
    fn only_sets_with_operations_may_have_adjustments() {
        assert_eq!(all_semaphores(SETS), [(6, false)]);
        let operated = SETS.replace("     0  1000", "  1000  1000");
        assert_ne!(operated, SETS);
        assert_eq!(all_semaphores(&operated), [(6, true)]);
        assert_eq!(all_semaphores("key semid\n 0 6\n"), [(6, true)]);
    }

    #[test]
    fn a_set_that_was_only_made_is_its_if_its_user_made_it_since_it_started() {
        let nobody = |_, count| vec![0; count];
        assert_eq!(with(77, 950, |users| semaphores(users, SETS, nobody)), [6]);
        assert!(with(77, 1001, |users| semaphores(users, SETS, nobody)).is_empty());
    }
}
