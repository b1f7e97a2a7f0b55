//! Cgroups without the memory controller: their pages are charged to the next cgroup above, so
//! samples do not identify them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::enforce::cgroup::{Cgroup, Hierarchy};
use crate::samples::UserRef;
use crate::samples::shares::Run;

/// What to do about it.
pub const REMEDY: &str = "write +memory into cgroup.subtree_control of the cgroups above";

/// The users without it.
#[derive(Debug, Default)]
pub struct Uncharged {
    /// For each user: whether memory is charged to it.
    users: HashMap<u64, bool>,
    /// Not reported yet.
    new: Vec<PathBuf>,
}

impl Uncharged {
    pub fn set_users(&mut self, users: &[UserRef]) {
        let before = std::mem::take(&mut self.users);
        for user in users {
            let known = before.get(&user.id).copied();
            // A cgroup rarely loses a controller.
            let charged = known == Some(true) || !lacks_memory(user.path);
            if !charged && known.is_none() {
                self.new.push(user.path.to_owned());
            }
            self.users.insert(user.id, charged);
        }
    }

    /// For each node: whether such a user has memory there.
    pub fn nodes(&self, count: usize, runs: &[Run]) -> Vec<bool> {
        let mut nodes = vec![false; count];
        for run in runs {
            if self.users.get(&run.id) == Some(&false) {
                for (node, &share) in nodes.iter_mut().zip(run.shares) {
                    *node |= share > 0.0;
                }
            }
        }
        nodes
    }

    /// The users found since the last call.
    pub fn notices(&mut self) -> Option<String> {
        let lacking = describe(&std::mem::take(&mut self.new))?;
        Some(format!(
            "{lacking}: {REMEDY}; until then CPU time and resident memory attribute the traffic of the \
             nodes that they use"
        ))
    }
}

/// Whether an existing cgroup has no memory controller.
pub fn lacks_memory(path: &Path) -> bool {
    !path.join("memory.current").exists() && path.exists()
}

/// A description for messages.
pub fn describe(paths: &[PathBuf]) -> Option<String> {
    let (first, others) = paths.split_first()?;
    let first = first.display();
    Some(match others.len() {
        0 => format!("{first}: no memory is charged to it"),
        more => format!("{first} and {more} more: no memory is charged to them"),
    })
}

/// Cgroups with processes and without the memory controller among these and all below them.
pub fn below(hierarchy: &Hierarchy, roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = roots.iter().map(|path| hierarchy.root.join(path)).collect();
    let mut found = Vec::new();
    while let Some(path) = folders.pop() {
        let entries = fs::read_dir(&path).into_iter().flatten().flatten();
        let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        folders.extend(entries.filter(is_folder).map(|entry| entry.path()));
        let processes = Cgroup::new(&path, hierarchy.version).processes();
        if lacks_memory(&path) && processes.is_ok_and(|all| !all.is_empty()) {
            found.push(path);
        }
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforce::cgroup::Version;

    /// Cgroups with and without processes, with and without the memory controller.
    fn hierarchy(folder: &Path) -> Hierarchy {
        for (name, processes, memory) in [
            ("a", "", true),
            ("a/good", "1\n", true),
            ("a/empty", "", false),
            ("a/bad", "2\n", false),
            ("b", "3\n", false),
        ] {
            let path = folder.join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("cgroup.procs"), processes).unwrap();
            if memory {
                fs::write(path.join("memory.current"), "0\n").unwrap();
            }
        }
        Hierarchy {
            root: folder.to_owned(),
            version: Version::V2,
        }
    }

    #[test]
    fn cgroups_below_with_processes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let hierarchy = hierarchy(folder.path());
        let paths = |names: &[&str]| -> Vec<PathBuf> {
            names.iter().map(|name| folder.path().join(name)).collect()
        };
        let below = |names: &[&str]| {
            let roots: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            below(&hierarchy, &roots)
        };
        assert_eq!(below(&["a", "not-there"]), paths(&["a/bad"]));
        assert_eq!(below(&["a", "b"]), paths(&["a/bad", "b"]));
        assert_eq!(below(&["a/good"]), paths(&[]));
        assert_eq!(describe(&[]), None);
        let said = describe(&below(&["a", "b"])).unwrap();
        assert!(said.contains("a/bad and 1 more"), "{said}");
    }

    #[test]
    fn each_user_without_the_controller_is_reported_once_and_its_nodes_stay_marked() {
        let folder = tempfile::tempdir().unwrap();
        hierarchy(folder.path());
        let (good, bad) = (folder.path().join("a/good"), folder.path().join("a/bad"));
        let gone = folder.path().join("gone");
        let all = [&good, &bad, &gone].map(|path| path.as_path());
        let users = [1, 2, 3].map(|id| UserRef {
            path: all[id as usize - 1],
            id,
            processes: &[],
        });
        let run = |id, shares| Run {
            id,
            cpu_s: 0.0,
            shares,
        };
        let runs = [
            run(1, &[0.5, 0.0]),
            run(2, &[0.0, 0.5]),
            run(3, &[0.5, 0.0]),
        ];
        let mut uncharged = Uncharged::default();
        for first in [true, false] {
            uncharged.set_users(&users);
            assert_eq!(uncharged.nodes(2, &runs), [false, true]);
            assert_eq!(uncharged.nodes(2, &runs[..1]), [false, false]);
            let notices = uncharged.notices();
            let told = notices.is_some_and(|what| what.contains("a/bad: no memory"));
            assert_eq!(told, first);
        }
        fs::write(bad.join("memory.current"), "0\n").unwrap();
        uncharged.set_users(&users);
        assert_eq!(uncharged.nodes(2, &runs), [false, false]);
    }
}
