//! Control groups: a restored program is in those of its tracker, all of it.

use std::fs;

use super::{Builder, Error};
use crate::procfs;
use crate::ptrace::FrozenProcess;

impl Builder<'_> {
    /// Refuses a process with a thread that would be in another control group after a restore.
    pub(super) fn check_cgroups(&mut self, frozen: &FrozenProcess) -> Result<(), Error> {
        let Some(started_in) = self.options.cgroups else {
            return Ok(());
        };
        let own = procfs::text("/proc/self/cgroup");
        let own = own.map_err(self.failed("read the tracker's control groups"))?;
        for thread in &frozen.threads {
            let path = format!("/proc/{}/task/{}/cgroup", self.pid, thread.tid);
            let its = fs::read_to_string(path).map_err(self.failed("read its control groups"))?;
            if let Some((hierarchy, path)) = moved(&its, started_in, &own) {
                let of = match hierarchy {
                    "" => String::new(),
                    hierarchy => format!(" of {hierarchy}"),
                };
                self.refuse(format!(
                    "it has moved to the control group {path}{of}, away from where it was started"
                ));
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The hierarchy and path of the first control group that a thread has moved to. In a hierarchy that was
/// there when the program was started, it must be where it was; in one that was mounted later,
/// where its tracker is. Nobody has moved it there: a new hierarchy begins with all processes in its
/// root.
fn moved<'its>(its: &'its str, started_in: &str, own: &str) -> Option<(&'its str, &'its str)> {
    groups(its).find(|&(hierarchy, path)| {
        let of = |text: &str| {
            let mut same = groups(text).filter(|(other, _)| *other == hierarchy);
            same.next().map(|(_, path)| path.to_owned())
        };
        of(started_in).or_else(|| of(own)).as_deref() != Some(path)
    })
}

/// The controllers (or the name) and the path of each line. The number of a hierarchy is not its own: one
/// that is mounted again may have another.
fn groups(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: &str = "2:cpu,cpuacct:/\n1:name=systemd:/a.scope\n0::/a.scope\n";

    #[test]
    fn a_process_that_stays_has_not_moved_also_under_another_number() {
        assert_eq!(moved(STARTED, STARTED, STARTED), None);
        let renumbered = "7:cpu,cpuacct:/\n1:name=systemd:/a.scope\n0::/a.scope\n";
        assert_eq!(moved(renumbered, STARTED, renumbered), None);
    }

    #[test]
    fn a_new_hierarchy_is_no_move_where_the_tracker_is_in_the_same_group() {
        let its = format!("3:name=new:/\n{STARTED}");
        assert_eq!(moved(&its, STARTED, &its), None);
        let its = format!("3:name=new:/sub\n{STARTED}");
        let own = format!("3:name=new:/\n{STARTED}");
        assert_eq!(moved(&its, STARTED, &own), Some(("name=new", "/sub")));
        // It was unmounted in between.
        assert_eq!(moved(&its, STARTED, STARTED), Some(("name=new", "/sub")));
    }

    #[test]
    fn a_move_in_a_known_hierarchy_is_one_also_after_the_tracker() {
        let its = "2:cpu,cpuacct:/\n1:name=systemd:/a.scope\n0::/b.scope\n";
        assert_eq!(moved(its, STARTED, its), Some(("", "/b.scope")));
    }
}
