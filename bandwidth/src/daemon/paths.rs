//! The processors on which a user runs, for paths from a part of the processors to a device.

use std::fs;
use std::path::Path;

use crate::perf::numbers;

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The processors that a cgroup may use; all of them where it has no cpuset of its own.
pub fn cpus_of(cgroup: &Path) -> Vec<u32> {
    // Only cgroups below one with the controller have the file.
    let own = cgroup.ancestors().find_map(|path| {
        let text = fs::read_to_string(path.join("cpuset.cpus.effective")).ok()?;
        let cpus = numbers(text.trim());
        (!cpus.is_empty()).then_some(cpus)
    });
    own.unwrap_or_else(online)
}

/// All processors.
pub fn online() -> Vec<u32> {
    numbers(fs::read_to_string(ONLINE).unwrap_or_default().trim())
}

/// The part of these processors that belong to a path. Where a user runs among its processors is
/// not counted: it is assumed to use them alike.
pub fn part_of(cpus: &[u32], path: &[u32]) -> f64 {
    match cpus.is_empty() {
        true => 1.0,
        false => {
            let on = cpus.iter().filter(|cpu| path.contains(cpu)).count();
            on as f64 / cpus.len() as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_without_a_cpuset_uses_that_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        fs::write(folder.path().join("a/cpuset.cpus.effective"), "0-2,8\n").unwrap();
        assert_eq!(cpus_of(&below), [0, 1, 2, 8]);
        assert!(!cpus_of(folder.path()).is_empty(), "all processors");
    }

    #[test]
    fn the_part_of_a_path_is_that_of_its_processors() {
        assert_eq!(part_of(&[0, 1, 2, 3], &[2, 3, 4, 5]), 0.5);
        assert_eq!(part_of(&[0, 1], &[2, 3]), 0.0);
        assert_eq!(part_of(&[], &[2, 3]), 1.0);
    }
}
