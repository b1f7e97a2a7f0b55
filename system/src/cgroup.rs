//! Cgroup hierarchies of version 1 and 2: where they are mounted, what is below them, which
//! processes are in a group.

use std::io;
use std::path::{Path, PathBuf};

use crate::root::write_attribute;
use crate::{Root, mounts};

/// Which files a hierarchy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller or group of controllers.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Where it is mounted (below the [`Root`] that it was found in).
    pub root: PathBuf,
    /// Its version.
    pub version: Version,
}

impl Hierarchy {
    /// The hierarchy with this controller (`cpu`, `cpuacct`); version 2 if both have it.
    ///
    /// # Errors
    /// The mounts cannot be read.
    pub fn with_controller(root: &Root, controller: &str) -> io::Result<Option<Hierarchy>> {
        let mut found = None;
        for mount in mounts::read(root)? {
            let version = match mount.kind.as_str() {
                "cgroup2" if lists(root, &mount.point, controller) => Version::V2,
                "cgroup" if mount.has_option(controller) => Version::V1,
                _ => continue,
            };
            let hierarchy = Hierarchy {
                root: root.path(&mount.point),
                version,
            };
            if version == Version::V2 {
                return Ok(Some(hierarchy));
            }
            found = Some(hierarchy);
        }
        Ok(found)
    }

    /// The unified hierarchy, whatever controllers it has: it alone has the freezer.
    ///
    /// # Errors
    /// The mounts cannot be read.
    pub fn unified(root: &Root) -> io::Result<Option<Hierarchy>> {
        let mounts = mounts::read(root)?;
        let mount = mounts.into_iter().find(|mount| mount.kind == "cgroup2");
        Ok(mount.map(|mount| Hierarchy {
            root: root.path(&mount.point),
            version: Version::V2,
        }))
    }
}

fn lists(root: &Root, point: &str, controller: &str) -> bool {
    let text = root.read(&format!("{point}/cgroup.controllers"));
    let text = text.unwrap_or_default();
    text.split_whitespace().any(|name| name == controller)
}

/// The path in the unified hierarchy from the text of `/proc/PID/cgroup`: `/user.slice`.
pub fn unified_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The path of a process in the unified hierarchy; none if it has ended.
pub fn of_process(root: &Root, pid: i32) -> Option<String> {
    let text = root.read(&format!("proc/{pid}/cgroup")).ok()?;
    unified_path(&text).map(str::to_owned)
}

/// The path of the calling process in the unified hierarchy.
pub fn own(root: &Root) -> Option<String> {
    let text = root.read("proc/self/cgroup").ok()?;
    unified_path(&text).map(str::to_owned)
}

/// The processes in a group, not in the groups below it.
///
/// # Errors
/// The group is gone, or cannot be read.
pub fn processes(group: &Path) -> io::Result<Vec<i32>> {
    let text = std::fs::read_to_string(group.join("cgroup.procs"))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Moves a process with all of its threads into a group.
///
/// # Errors
/// The group or the process is gone, or the caller may not.
pub fn enter(group: &Path, pid: u32) -> io::Result<()> {
    write_attribute(&group.join("cgroup.procs"), &pid.to_string())
}

/// The number behind a key of a flat-keyed file such as `cpu.stat` or `cgroup.events`.
pub fn value(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(mounts: &str, controllers: &str) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        root.create("proc/self/mounts", mounts).unwrap();
        let path = "sys/fs/cgroup/unified/cgroup.controllers";
        root.create(path, controllers).unwrap();
        (directory, root)
    }

    #[test]
    fn the_hierarchy_is_the_one_with_the_controller_and_version_2_first() {
        let mounts = "proc /proc proc rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let (_directory, root) = machine(mounts, "blkio");
        let found = Hierarchy::with_controller(&root, "cpu").unwrap().unwrap();
        assert_eq!(found.version, Version::V1);
        assert_eq!(found.root, root.path("sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(Hierarchy::with_controller(&root, "pids").unwrap(), None);
        let (_directory, root) = machine(mounts, "cpuset cpu io");
        let found = Hierarchy::with_controller(&root, "cpu").unwrap().unwrap();
        assert_eq!(found.version, Version::V2);
        assert_eq!(Hierarchy::unified(&root).unwrap(), Some(found));
    }

    #[test]
    fn a_machine_without_mounts_is_an_error_and_one_without_cgroups_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert!(Hierarchy::unified(&root).is_err());
        root.create("proc/self/mounts", "x /y cgroup rw,cpuset 0 0\n")
            .unwrap();
        assert_eq!(Hierarchy::unified(&root).unwrap(), None);
    }

    #[test]
    fn a_process_is_never_moved_into_a_group_that_has_gone() {
        let directory = tempfile::tempdir().unwrap();
        assert!(enter(directory.path(), 1).is_err());
        assert!(!directory.path().join("cgroup.procs").exists());
        std::fs::write(directory.path().join("cgroup.procs"), "7\n9\n").unwrap();
        assert_eq!(processes(directory.path()).unwrap(), [7, 9]);
    }

    #[test]
    fn the_unified_path_stands_behind_number_0() {
        let text = "12:cpu,cpuacct:/a\n0::/user.slice/b c\n";
        assert_eq!(unified_path(text), Some("/user.slice/b c"));
        assert_eq!(unified_path("12:cpu:/a\n"), None);
    }

    #[test]
    fn a_value_is_found_by_its_whole_key() {
        let text = "usage_usec 12\nusage 7\nfrozen 1\n";
        assert_eq!(
            (value(text, "usage"), value(text, "frozen")),
            (Some(7), Some(1))
        );
        assert_eq!(value(text, "us"), None);
    }
}
