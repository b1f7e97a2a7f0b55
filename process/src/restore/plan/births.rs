//! Sessions into which processes are born. A session is inherited at birth and can only be left for
//! a new one, so a process whose descendants are in an older session than its own must itself be
//! born in that session: its parent creates it before it makes a session of its own.
//!
//! ```text
//!  1 (session 1) ── 10 (session 10) ── 11 (session 11) ── 12 (session 1)
//!                   born in 1          born in 1          born in 1
//! ```

use std::collections::HashMap;

use super::placeholders::Placeholders;
use crate::state::Tree;

/// For each process the session in which it must be born; `None`: any will do.
pub fn wanted(tree: &Tree, placeholders: &Placeholders) -> Vec<Option<i32>> {
    let by_others = placeholders.made_by_others();
    let index: HashMap<i32, usize> = by_pid(tree);
    let mut wanted: Vec<Option<i32>> = vec![None; tree.processes.len()];
    // Children stand behind their parents: theirs is known first.
    for (at, process) in tree.processes.iter().enumerate().rev() {
        if process.session != process.pid {
            wanted[at] = Some(process.session);
        }
        // A zombie in the wrong session is a documented difference.
        if process.zombie.is_some() {
            continue;
        }
        let parent = index.get(&process.parent).copied();
        if let Some(parent) = parent
            && let Some(session) = wanted[at]
            && tree.processes[parent].session == process.parent
            && session != process.parent
            && !by_others.contains(&at)
        {
            wanted[parent] = wanted[parent].or(Some(session));
        }
    }
    wanted
}

/// The first process that the plan would create in another session than its own.
pub fn misborn(tree: &Tree) -> Option<i32> {
    let placeholders = Placeholders::of(tree);
    let by_others = placeholders.made_by_others();
    let wanted = wanted(tree, &placeholders);
    let index = by_pid(tree);
    let mut born: Vec<i32> = vec![0; tree.processes.len()];
    for (at, process) in tree.processes.iter().enumerate() {
        if process.zombie.is_some() {
            continue;
        }
        born[at] = if by_others.contains(&at) {
            process.session
        } else if let Some(&parent) = index.get(&process.parent) {
            let leads = tree.processes[parent].session == process.parent;
            match wanted[at] {
                Some(session) if leads && session == process.parent => session,
                Some(_) if leads => born[parent],
                None if leads => process.parent,
                _ => tree.processes[parent].session,
            }
        } else {
            0
        };
        if wanted[at].is_some_and(|session| session != born[at]) {
            return Some(process.pid);
        }
    }
    None
}

fn by_pid(tree: &Tree) -> HashMap<i32, usize> {
    let all = tree.processes.iter().enumerate();
    all.map(|(index, process)| (process.pid, index)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Process;

    /// Of processes: number, parent, session.
    fn tree(processes: &[(i32, i32, i32)]) -> Tree {
        let processes = processes.iter().map(|&(pid, parent, session)| Process {
            session,
            group: session,
            ..Process::empty(pid, parent)
        });
        Tree {
            processes: processes.collect(),
            ..Tree::empty()
        }
    }

    #[test]
    fn the_ancestors_of_a_process_in_an_older_session_are_born_in_it() {
        let tree = tree(&[(2, 0, 2), (10, 2, 10), (11, 10, 11), (12, 11, 2)]);
        let placeholders = Placeholders::of(&tree);
        let wanted = wanted(&tree, &placeholders);
        assert_eq!(wanted[1..], [Some(2), Some(2), Some(2)]);
        assert_eq!(misborn(&tree), None);
    }

    #[test]
    fn a_process_with_children_in_two_older_sessions_cannot_be_created() {
        let tree = tree(&[
            (2, 0, 2),
            (10, 2, 10),
            (11, 10, 11),
            (12, 11, 2),
            (13, 11, 10),
        ]);
        assert!(misborn(&tree).is_some());
    }

    #[test]
    fn children_of_the_own_session_want_nothing_of_their_parent() {
        let tree = tree(&[(2, 0, 2), (10, 2, 10), (11, 10, 10), (12, 11, 10)]);
        let placeholders = Placeholders::of(&tree);
        assert_eq!(
            wanted(&tree, &placeholders),
            [None, None, Some(10), Some(10)]
        );
        assert_eq!(misborn(&tree), None);
    }
}
