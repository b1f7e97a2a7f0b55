//! A monitoring group for each user: its bytes are counted and not estimated.
//!
//! ```text
//!  user's cgroup ─▶ its processes' threads ─▶ tasks of mon_groups/dormouse-USER ─▶ bytes
//! ```
//!
//! Threads and processes that a member starts are members, too. A process may belong to any
//! CTRL_MON group (a container runtime's class of service); it can only be in a MON group below
//! that one, so a user may have several. Monitoring changes nothing for a task but where its
//! traffic is counted.
//!
//! RMIDs are few. A user for which none is left has no group: its traffic stays in its CTRL_MON
//! group's count, CPU time and memory attribute the machine's traffic while there is such a user.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::counts::{Counts, control_groups};
use super::{Kernel, SlowMemory};
use crate::samples::shares::{Run, Shares};
use crate::samples::{Samples, UserRef};

/// Names of our groups; a start removes those that an earlier daemon left behind.
const PREFIX: &str = "dormouse-";

/// A user's groups, one below each CTRL_MON group that it uses.
#[derive(Debug, Default)]
struct Member {
    groups: Vec<PathBuf>,
    counts: Counts,
    bytes: u64,
}

/// Counts each user's traffic.
pub struct Groups {
    root: PathBuf,
    kernel: Box<dyn Kernel>,
    members: HashMap<u64, Member>,
    /// Users without a group.
    without: HashSet<u64>,
    /// The whole machine.
    all: Counts,
    all_bytes: u64,
    nodes: usize,
    shares: Shares,
    notices: Vec<String>,
    /// Restores what the event counted before.
    _slow: SlowMemory,
}

impl Groups {
    /// Counts slow memory from now on, for this number of nodes, whose traffic is one count.
    ///
    /// # Errors
    /// The processor or the kernel cannot, as a message.
    pub fn open(root: &Path, nodes: usize, kernel: Box<dyn Kernel>) -> Result<Self, String> {
        let slow = SlowMemory::count(root)?;
        remove_left_behind(root, kernel.as_ref());
        let mut all = Counts::default();
        // The first reading after a change of what is counted says nothing.
        let all_bytes = all.read(&control_groups(root)).unwrap_or(0);
        Ok(Self {
            root: root.to_owned(),
            kernel,
            members: HashMap::new(),
            without: HashSet::new(),
            all,
            all_bytes,
            nodes,
            shares: Shares::of_all(nodes),
            notices: Vec::new(),
            _slow: slow,
        })
    }

    /// Moves a user's threads into its groups.
    fn enlist(&mut self, user: &UserRef) {
        let mut member = self.members.remove(&user.id).unwrap_or_default();
        let mut full = false;
        // Threads that are in a group of the user already need no write.
        let known: HashSet<i32> = member
            .groups
            .iter()
            .flat_map(|group| tasks(group))
            .collect();
        for &process in user.processes {
            for thread in self.kernel.threads(process) {
                if known.contains(&thread) {
                    continue;
                }
                match self.join(&mut member, user.id, thread) {
                    Ok(()) => (),
                    Err(error) if is_full(&error) => full = true,
                    // It has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => (),
                    Err(error) => self.notices.push(format!(
                        "{}: thread {thread}: {error}; its traffic is not attributed to it",
                        user.path.display()
                    )),
                }
            }
        }
        let lacked = self.without.contains(&user.id);
        if full && !lacked {
            self.notices.push(format!(
                "{}: all monitoring groups of the processor are in use (num_rmids); CPU time and \
                 resident memory attribute the traffic",
                user.path.display()
            ));
            self.without.insert(user.id);
        } else if !full {
            self.without.remove(&user.id);
        }
        self.members.insert(user.id, member);
    }

    /// Puts a thread into the user's group below its CTRL_MON group.
    fn join(&self, member: &mut Member, user: u64, thread: i32) -> io::Result<()> {
        // The groups that the user has are likely.
        for group in &member.groups {
            match self.kernel.assign(group, thread) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (),
                other => return other,
            }
        }
        for control in control_groups(&self.root) {
            let group = control.join("mon_groups").join(format!("{PREFIX}{user}"));
            if member.groups.contains(&group) || !tasks(&control).contains(&thread) {
                continue;
            }
            self.kernel.create(&group)?;
            member.groups.push(group.clone());
            return self.kernel.assign(&group, thread);
        }
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }

    fn disband(&mut self, id: u64) {
        for group in self.members.remove(&id).unwrap_or_default().groups {
            if let Err(error) = self.kernel.remove(&group) {
                self.notices.push(format!("{}: {error}", group.display()));
            }
        }
        self.without.remove(&id);
    }
}

impl Samples for Groups {
    fn set_users(&mut self, users: &[UserRef]) {
        let present: HashSet<u64> = users.iter().map(|user| user.id).collect();
        let gone: Vec<u64> = self.members.keys().copied().collect();
        for id in gone.into_iter().filter(|id| !present.contains(id)) {
            self.disband(id);
        }
        for user in users {
            self.enlist(user);
        }
        self.shares
            .set_blind(vec![!self.without.is_empty(); self.nodes]);
    }

    /// Users are identified by their processes, so counts reveal no new cgroup.
    fn collect(&mut self, _interval_ms: f64) -> Vec<PathBuf> {
        let mut counted = 0;
        for (&id, member) in &mut self.members {
            let Ok(now) = member.counts.read(&member.groups) else {
                continue;
            };
            let grown = now.wrapping_sub(std::mem::replace(&mut member.bytes, now));
            counted += grown;
            // Which node a byte is on is not counted: memory decides.
            self.shares.charge(id, None, grown as f64);
        }
        if let Ok(now) = self.all.read(&control_groups(&self.root)) {
            let grown = now.wrapping_sub(std::mem::replace(&mut self.all_bytes, now));
            let rest = grown.saturating_sub(counted) as f64 / self.nodes.max(1) as f64;
            (0..self.nodes).for_each(|node| self.shares.charge_unattributed(node, rest));
        }
        Vec::new()
    }

    fn step(&mut self, interval_ms: f64, runs: &[Run]) {
        self.shares.step(interval_ms, runs);
    }

    fn shares(&self) -> &Shares {
        &self.shares
    }

    fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let all: Vec<u64> = self.members.keys().copied().collect();
        all.into_iter().for_each(|id| self.disband(id));
    }
}

/// Whether no RMID is free: all are in use (`ENOSPC`), or those of removed groups wait until the
/// caches hold few of their lines (`EBUSY`, RMIDs in limbo). It is tried again with the next scan.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EBUSY))
}

/// The threads of a group.
fn tasks(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("tasks")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

/// Removes groups of a daemon that was killed.
fn remove_left_behind(root: &Path, kernel: &dyn Kernel) {
    for control in control_groups(root) {
        let entries = fs::read_dir(control.join("mon_groups"));
        for entry in entries.into_iter().flatten().flatten() {
            let ours = entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with(PREFIX));
            if ours && let Err(error) = kernel.remove(&entry.path()) {
                tracing::warn!("{}: {error}", entry.path().display());
            }
        }
    }
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
