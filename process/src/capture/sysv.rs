//! System V semaphores, message queues and shared memory. They belong to nobody: the kernel only
//! tells who touched them last. After a boot they are gone, so who uses them is refused.
//!
//! Attached shared memory is found among the mappings.

use std::fs;

use super::Builder;
use crate::procfs;
use crate::ptrace::Pid;

/// Semaphores of a set that are asked for; the usual limit is 250.
const SEMAPHORES_MAX: i32 = 1000;

impl Builder<'_> {
    /// Refuses what processes of the tree have used.
    pub(super) fn system_v(&mut self, tree: &[Pid]) {
        let mut found = Vec::new();
        for row in rows("sem") {
            // key, semid, perms, nsems
            let [_, set, _, count, ..] = row[..] else {
                continue;
            };
            let users = (0..(count as i32).min(SEMAPHORES_MAX)).map(|semaphore| {
                // SAFETY: no memory involved.
                unsafe { libc::semctl(set as i32, semaphore, libc::GETPID) }
            });
            let user = users.into_iter().find(|user| tree.contains(user));
            found.extend(user.map(|user| (user, format!("System V semaphore set {set}"))));
        }
        for row in rows("msg") {
            // key, msqid, perms, cbytes, qnum, lspid, lrpid
            let [_, queue, _, _, _, sender, receiver, ..] = row[..] else {
                continue;
            };
            let user = [sender, receiver].map(|pid| pid as Pid);
            let user = user.into_iter().find(|user| tree.contains(user));
            found.extend(user.map(|user| (user, format!("System V message queue {queue}"))));
        }
        for row in rows("shm") {
            // key, shmid, perms, size, cpid, lpid, nattch
            let [_, segment, _, _, maker, last, 0, ..] = row[..] else {
                continue;
            };
            let user = [maker, last].map(|pid| pid as Pid);
            let user = user.into_iter().find(|user| tree.contains(user));
            found.extend(user.map(|user| (user, format!("System V shared memory {segment}"))));
        }
        for (pid, what) in found {
            self.pid = pid;
            self.program = procfs::stat(pid, pid).map_or_else(|_| String::new(), |stat| stat.name);
            self.refuse(format!("it uses the {what}"));
        }
    }
}

/// The numbers of a table of /proc/sysvipc; none where the kernel has no such things.
fn rows(table: &str) -> Vec<Vec<i64>> {
    let text = fs::read_to_string(format!("/proc/sysvipc/{table}")).unwrap_or_default();
    let lines = text.lines().skip(1);
    lines
        .map(|line| {
            let words = line.split_ascii_whitespace();
            words.map(|word| word.parse().unwrap_or(-1)).collect()
        })
        .collect()
}
