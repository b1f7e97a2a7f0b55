//! Placeholder processes. Groups and sessions outlive their leaders. To recreate one, a placeholder
//! process with the leader's number makes it, and ends when the members exist.
//!
//! A session is inherited, not joined: the placeholder process, or a living leader, creates its
//! first members as children of its own parent (`CLONE_PARENT`). A member that the tracker has
//! adopted is orphaned again: a child of the leader creates it, and ends.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::Error;
use super::super::stub::{Check, List};
use super::Writer;
use crate::procfs;
use crate::state::Tree;

/// Processes that are not created by their parents, and their creators.
#[derive(Debug, Default)]
pub struct Placeholders {
    /// By number of a session without a leader: indices of its first members.
    pub sessions: BTreeMap<i32, Vec<usize>>,
    /// By index of a process: numbers of groups without leaders that it makes.
    pub groups: BTreeMap<usize, Vec<i32>>,
    /// By index of a living session leader: processes that it makes beside itself.
    pub siblings: BTreeMap<usize, Vec<usize>>,
    /// By index of a living session leader: processes that are the tracker's, as orphans.
    pub orphans: BTreeMap<usize, Vec<usize>>,
}

impl Placeholders {
    /// Finds them.
    pub fn of(tree: &Tree) -> Self {
        let mut found = Self::default();
        let by_pid: HashMap<i32, usize> = tree
            .processes
            .iter()
            .enumerate()
            .map(|(index, process)| (process.pid, index))
            .collect();
        let living = || {
            let all = tree.processes.iter().enumerate();
            all.filter(|(_, process)| process.zombie.is_none())
        };
        for (index, process) in living() {
            let session = process.session;
            let parent = by_pid.get(&process.parent).map(|at| &tree.processes[*at]);
            if session == 0
                || session == process.pid
                || parent.is_some_and(|parent| parent.session == session)
            {
                continue;
            }
            match by_pid.get(&session) {
                None => found.sessions.entry(session).or_default().push(index),
                Some(&leader) if tree.processes[leader].parent == process.parent => {
                    found.siblings.entry(leader).or_default().push(index);
                }
                Some(&leader) if process.parent == 0 && tree.processes[leader].zombie.is_none() => {
                    found.orphans.entry(leader).or_default().push(index);
                }
                // Its parent has left that session since.
                Some(_) => {}
            }
        }
        // A zombie is in a group, too.
        for process in &tree.processes {
            let group = process.group;
            let led = by_pid.contains_key(&group) || found.sessions.contains_key(&group);
            if group == 0 || led {
                continue;
            }
            let maker = living().find(|(_, other)| other.session == process.session);
            if let Some((maker, _)) = maker {
                let groups = found.groups.entry(maker).or_default();
                if !groups.contains(&group) {
                    groups.push(group);
                }
            }
        }
        found
    }

    /// Processes that their parents do not make.
    pub fn made_by_others(&self) -> HashSet<usize> {
        let all = self.sessions.values().chain(self.siblings.values());
        let all = all.chain(self.orphans.values());
        all.flatten().copied().collect()
    }
}

/// Processes that their parents do not make: their indices.
pub fn made_by_others(tree: &Tree) -> HashSet<usize> {
    Placeholders::of(tree).made_by_others()
}

/// Numbers of groups and sessions of which no process of the tree is the leader.
pub fn leaderless(tree: &Tree) -> HashSet<i32> {
    let pids: HashSet<i32> = tree.processes.iter().map(|process| process.pid).collect();
    let numbers = tree.processes.iter().flat_map(|process| {
        let session = if process.zombie.is_none() {
            process.session
        } else {
            0
        };
        [process.group, session]
    });
    numbers
        .filter(|number| *number != 0 && !pids.contains(number))
        .collect()
}

/// Numbers of groups and sessions that placeholder processes make.
pub fn placeholder_groups(tree: &Tree) -> HashSet<i32> {
    let placeholders = Placeholders::of(tree);
    let groups = placeholders.groups.into_values().flatten();
    groups.chain(placeholders.sessions.into_keys()).collect()
}

impl Writer<'_> {
    /// Whether a process is made as an orphan: until all processes are there, its parent dies.
    pub(super) fn is_orphan(&self, index: usize) -> bool {
        let mut orphans = self.placeholders.orphans.values().flatten();
        orphans.any(|orphan| *orphan == index)
    }

    /// Has the caller of `list`, a session leader, make the members of its session that are not
    /// its children.
    pub(super) fn members(&mut self, list: &mut List, leader: usize) -> Result<(), Error> {
        let siblings = self.placeholders.siblings.get(&leader).cloned();
        for sibling in siblings.unwrap_or_default() {
            self.create_sibling(list, sibling)?;
        }
        let orphans = self.placeholders.orphans.get(&leader).cloned();
        for orphan in orphans.unwrap_or_default() {
            let own = self.process(orphan)?;
            let pid = self.tree.processes[orphan].pid;
            let mut short_lived = List::default();
            self.clone(&mut short_lived, 0, libc::SIGCHLD as u64, pid, own)?;
            short_lived.call(libc::SYS_exit_group, &[0], "end");
            let number = self.free_number();
            let own = self.put(&short_lived, number)?;
            self.clone(list, 0, libc::SIGCHLD as u64, number, own)?;
            Self::dismiss(list, &[number]);
        }
        Ok(())
    }

    /// A PID that is free now and is not used by the tree.
    fn free_number(&self) -> i32 {
        let most = procfs::text("/proc/sys/kernel/pid_max");
        let most: i32 = most
            .ok()
            .and_then(|most| most.trim().parse().ok())
            .unwrap_or(1 << 15);
        let threads = self
            .tree
            .processes
            .iter()
            .flat_map(|process| &process.threads);
        let mut taken: HashSet<i32> = threads.map(|thread| thread.tid).collect();
        taken.extend(self.tree.processes.iter().map(|process| process.pid));
        taken.extend(leaderless(self.tree));
        let free = |number: &i32| {
            !taken.contains(number) && !std::path::Path::new(&format!("/proc/{number}")).exists()
        };
        (2..most).rev().find(free).unwrap_or(most - 1)
    }

    /// Has the caller of `list` create the placeholder processes that are its children, for the sessions of
    /// which the first members are. Returns their numbers.
    pub(super) fn session_placeholders(
        &mut self,
        list: &mut List,
        parent: i32,
    ) -> Result<Vec<i32>, Error> {
        let sessions = self.sessions_under(parent);
        for session in &sessions {
            let own = self.session_placeholder(*session)?;
            self.clone(list, 0, libc::SIGCHLD as u64, *session, own)?;
        }
        Ok(sessions)
    }

    /// Sessions without a leader whose first members are children of `parent`.
    pub(super) fn sessions_under(&self, parent: i32) -> Vec<i32> {
        let sessions = self.placeholders.sessions.iter();
        sessions
            .filter(|(_, members)| self.tree.processes[members[0]].parent == parent)
            .map(|(session, _)| *session)
            .collect()
    }

    /// The list of a process that stands in for a session's leader.
    pub(super) fn session_placeholder(&mut self, session: i32) -> Result<u64, Error> {
        let mut list = List::default();
        die_with_parent(&mut list);
        list.call(libc::SYS_setsid, &[], "make a session");
        for member in self.placeholders.sessions[&session].clone() {
            self.create_sibling(&mut list, member)?;
        }
        self.stand(list, session)
    }

    /// Has the caller of `list` create placeholder processes for group leaders. Returns their numbers.
    pub(super) fn group_placeholders(
        &mut self,
        list: &mut List,
        maker: usize,
    ) -> Result<Vec<i32>, Error> {
        let groups = self.placeholders.groups.get(&maker).cloned();
        let groups = groups.unwrap_or_default();
        for group in &groups {
            let mut own = List::default();
            die_with_parent(&mut own);
            own.call(libc::SYS_setpgid, &[0, 0], "make a process group");
            let own = self.stand(own, *group)?;
            self.clone(list, 0, libc::SIGCHLD as u64, *group, own)?;
        }
        Ok(groups)
    }

    /// Waits until all members are there, and ends.
    fn stand(&mut self, mut list: List, number: i32) -> Result<u64, Error> {
        self.processes += 1;
        list.report();
        list.wait(self.grouped);
        list.report();
        list.wait(self.filled);
        list.call(libc::SYS_exit_group, &[0], "end");
        self.put(&list, number)
    }

    /// Creates a process as a child of the caller's parent.
    pub(super) fn create_sibling(&mut self, list: &mut List, index: usize) -> Result<(), Error> {
        let own = self.process(index)?;
        let pid = self.tree.processes[index].pid;
        self.clone(list, libc::CLONE_PARENT as u64, 0, pid, own)
    }

    /// Takes the ends of placeholder processes, so that no other process sees them.
    pub(super) fn dismiss(list: &mut List, placeholders: &[i32]) {
        for number in placeholders {
            let number = *number as u64;
            list.call(
                libc::SYS_wait4,
                &[number, 0, 0, 0],
                "end a placeholder process",
            )
            .about(number)
            .expect(Check::Equals(number));
        }
    }
}

pub(super) fn die_with_parent(list: &mut List) {
    list.prctl(
        libc::PR_SET_PDEATHSIG,
        &[libc::SIGKILL as u64],
        "ask to die with its parent",
    );
}
