//! Stops user space through the cgroup v2 freezer: everything that does not contain us.
//!
//! ```text
//!  /                    (contains us: not frozen as a whole)
//!  ├── init.scope       pid 1: kept
//!  ├── user.slice       ▓ frozen with all below
//!  └── system.slice     (contains us)
//!      ├── redis        ▓ frozen
//!      └── suspend      us
//! ```

use std::time::{Duration, Instant};

use dormouse_system::Root;

use crate::error::SleepError;
use crate::options::Cancel;

/// A cgroup and what is below it; paths as in /proc/PID/cgroup (`/` is the root).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Its path.
    pub path: String,
    /// The cgroups directly below it.
    pub children: Vec<Group>,
}

/// Where cgroup v2 is mounted, relative to the root of the machine.
///
/// # Errors
/// There is no cgroup v2.
pub fn mount(root: &Root) -> Result<&'static str, SleepError> {
    ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        .into_iter()
        .find(|path| root.exists(&format!("{path}/cgroup.controllers")))
        .ok_or_else(|| SleepError::Lacks {
            what: "stop user space",
            path: root.path("sys/fs/cgroup"),
            found: "no cgroup v2".to_owned(),
            next: "mount it: mount -t cgroup2 none /sys/fs/cgroup",
        })
}

/// Reads the hierarchy below `path` (`""` is the root).
pub fn read_groups(root: &Root, mount: &str, path: &str) -> Group {
    let children = root
        .list_directories(&format!("{mount}{path}"))
        .into_iter()
        .map(|name| read_groups(root, mount, &format!("{path}/{name}")))
        .collect();
    Group {
        path: if path.is_empty() {
            "/".to_owned()
        } else {
            path.to_owned()
        },
        children,
    }
}

/// Whether `path` is `group` or lies below it.
fn is_within(path: &str, group: &str) -> bool {
    group == "/"
        || path == group
        || path
            .strip_prefix(group)
            .is_some_and(|rest| rest.starts_with('/'))
}

/// The largest cgroups that hold none of `kept`: freezing them stops all others. An entry of
/// `kept` is a path or the last component of one.
pub fn choose(root: &Group, kept: &[String]) -> Vec<String> {
    let mut chosen = Vec::new();
    let named = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or("");
        kept.iter().any(|kept| kept == name || kept == path)
    };
    fn holds(group: &Group, named: &dyn Fn(&str) -> bool) -> bool {
        named(&group.path) || group.children.iter().any(|child| holds(child, named))
    }
    fn descend(group: &Group, named: &dyn Fn(&str) -> bool, chosen: &mut Vec<String>) {
        for child in &group.children {
            if holds(child, named) {
                descend(child, named, chosen);
            } else {
                chosen.push(child.path.clone());
            }
        }
    }
    descend(root, &named, &mut chosen);
    chosen
}

/// Whether a process in `path` stops when `frozen` are frozen.
pub fn is_covered(path: &str, frozen: &[String]) -> bool {
    frozen.iter().any(|group| is_within(path, group))
}

fn flag(events: &str, name: &str) -> bool {
    events
        .lines()
        .any(|line| line.split_once(' ') == Some((name, "1")))
}

/// Those of `groups` that have processes and do not stand still already (another program's freeze
/// is left alone).
pub fn to_freeze(root: &Root, mount: &str, groups: Vec<String>) -> Vec<String> {
    let wanted = |group: &String| {
        let events = root
            .read(&format!("{mount}{group}/cgroup.events"))
            .unwrap_or_default();
        let frozen = root
            .read(&format!("{mount}{group}/cgroup.freeze"))
            .unwrap_or_default();
        flag(&events, "populated") && frozen != "1"
    };
    groups.into_iter().filter(wanted).collect()
}

/// Freezes the groups and waits until all stand still. The caller thaws, also after an error.
///
/// # Errors
/// The time is up, a signal came, or the kernel refuses.
pub fn freeze(
    root: &Root,
    mount: &str,
    groups: &[String],
    timeout: Duration,
    cancel: &Cancel,
) -> Result<(), SleepError> {
    for group in groups {
        let path = format!("{mount}{group}/cgroup.freeze");
        match root.write(&path, "1") {
            Ok(()) => {}
            // The group was removed meanwhile: no process is left in it.
            Err(error) if !root.exists(&path) => drop(error),
            Err(error) => {
                let next = "cgroup.freeze needs Linux 5.2 and root";
                return Err(SleepError::write("stop user space", root.path(&path), next)(error));
            }
        }
    }
    let deadline = Instant::now() + timeout;
    for group in groups {
        let path = format!("{mount}{group}/cgroup.events");
        // A group that vanished cannot be read, and need not be waited for.
        while root
            .read(&path)
            .is_ok_and(|events| !flag(&events, "frozen"))
        {
            if cancel.is_set() {
                return Err(SleepError::Interrupted {
                    step: "stopping user space",
                });
            }
            if Instant::now() >= deadline {
                return Err(SleepError::FreezeTimeout {
                    cgroup: group.clone(),
                    seconds: timeout.as_secs(),
                    processes: describe_processes(root, mount, group),
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Up to five processes of a group, those in uninterruptible sleep first: they hold it up.
fn describe_processes(root: &Root, mount: &str, group: &str) -> String {
    let mut found = Vec::new();
    let mut groups = vec![read_groups(root, mount, group)];
    while let Some(group) = groups.pop() {
        let procs = root
            .read(&format!("{mount}{}/cgroup.procs", group.path))
            .unwrap_or_default();
        for pid in procs.lines() {
            let stat = root.read(&format!("proc/{pid}/stat")).unwrap_or_default();
            let name = stat.split(['(', ')']).nth(1).unwrap_or("?");
            let waits = stat
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" D"));
            found.push((
                !waits,
                format!("{name} {pid}{}", if waits { " in D state" } else { "" }),
            ));
        }
        groups.extend(group.children);
    }
    found.sort();
    let names: Vec<String> = found.into_iter().take(5).map(|(_, name)| name).collect();
    if names.is_empty() {
        "no process visible".to_owned()
    } else {
        names.join(", ")
    }
}

/// Lets the groups run again; goes on after a failure and returns the failures.
///
/// # Errors
/// The groups that could not be thawed.
pub fn thaw(root: &Root, mount: &str, groups: &[String]) -> Result<(), String> {
    let failures: Vec<String> = groups
        .iter()
        .filter_map(|group| {
            let path = format!("{mount}{group}/cgroup.freeze");
            match root.write(&path, "0") {
                Err(error) if root.exists(&path) => Some(format!("{path}: {error}")),
                _ => None,
            }
        })
        .collect();
    if failures.is_empty() {
        Ok(())
    } else {
        Err(format!("write 0 there by hand: {}", failures.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(path: &str, children: Vec<Group>) -> Group {
        Group {
            path: path.to_owned(),
            children,
        }
    }

    fn systemd_like() -> Group {
        group(
            "/",
            vec![
                group("/init.scope", vec![]),
                group(
                    "/system.slice",
                    vec![
                        group("/system.slice/redis.service", vec![]),
                        group("/system.slice/systemd-journald.service", vec![]),
                        group(
                            "/system.slice/systemd-suspend.service",
                            vec![group(
                                "/system.slice/systemd-suspend.service/helper",
                                vec![],
                            )],
                        ),
                    ],
                ),
                group(
                    "/user.slice",
                    vec![group("/user.slice/user-0.slice", vec![])],
                ),
            ],
        )
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn everything_but_us_our_ancestors_and_what_is_kept_is_frozen() {
        let kept = names(&[
            "/system.slice/systemd-suspend.service",
            "/init.scope",
            "systemd-journald.service",
        ]);
        assert_eq!(
            choose(&systemd_like(), &kept),
            [
                "/system.slice/redis.service",
                "/system.slice/systemd-suspend.service/helper",
                "/user.slice"
            ]
        );
    }

    #[test]
    fn in_the_root_group_all_others_are_frozen_at_the_top() {
        let chosen = choose(&systemd_like(), &names(&["/"]));
        assert_eq!(chosen, ["/init.scope", "/system.slice", "/user.slice"]);
    }

    #[test]
    fn a_group_with_a_longer_name_is_not_taken_for_a_child() {
        assert!(is_covered("/a/b", &names(&["/a"])));
        assert!(!is_covered("/ab", &names(&["/a"])));
        assert!(is_covered("/a", &names(&["/"])));
    }

    fn arbitrary_groups() -> impl Strategy<Value = Group> {
        let leaf = Just(Group::default());
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop::collection::vec(inner, 0..4).prop_map(|children| group("", children))
        })
        .prop_map(|mut root| {
            fn name(group: &mut Group, path: String) {
                for (index, child) in group.children.iter_mut().enumerate() {
                    name(child, format!("{}/{index}", path.trim_end_matches('/')));
                }
                group.path = path;
            }
            name(&mut root, "/".to_owned());
            root
        })
    }

    fn all_paths(group: &Group) -> Vec<String> {
        let mut paths = vec![group.path.clone()];
        group
            .children
            .iter()
            .for_each(|child| paths.extend(all_paths(child)));
        paths
    }

    proptest! {
        #[test]
        fn we_never_freeze_ourselves_and_always_all_unrelated_groups(
            root in arbitrary_groups(),
            pick in any::<prop::sample::Index>(),
        ) {
            let paths = all_paths(&root);
            let own = paths[pick.index(paths.len())].clone();
            let chosen = choose(&root, std::slice::from_ref(&own));
            prop_assert!(!is_covered(&own, &chosen));
            for path in &paths {
                let related = is_within(&own, path);
                prop_assert_eq!(is_covered(path, &chosen), !related, "{}", path);
            }
        }
    }
}
