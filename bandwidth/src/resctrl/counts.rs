//! Bytes of monitoring groups, summed over L3 domains, through domains and groups that come and go.
//!
//! An RMID is reused when its group is removed, and a group of the same name may be created again:
//! a folder is identified by its inode, and what it showed before is forgotten with it. So a group
//! that goes takes nothing out of a sum, and one that comes adds what it has counted since it
//! exists.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The event that counts.
pub const EVENT: &str = "mbm_total_bytes";

/// Why a group has no count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// There is no such group, or the kernel has no such event.
    #[error(
        "{0}: no domain shows {EVENT}: mount resctrl on a processor with memory bandwidth monitoring"
    )]
    None(PathBuf),
    /// No domain shows a number.
    #[error("{0}: every domain shows {1:?} instead of a number")]
    Text(PathBuf, String),
}

/// One domain of one group.
#[derive(Clone, Copy, Debug)]
struct Domain {
    inode: u64,
    /// `None`: it has shown no number yet.
    last: Option<u64>,
    seen: bool,
}

/// Follows one group, or several.
#[derive(Debug, Default)]
pub struct Counts {
    domains: HashMap<PathBuf, Domain>,
    bytes: u64,
    begun: bool,
}

impl Counts {
    /// Bytes of these groups since the first reading.
    ///
    /// # Errors
    /// No domain of any group shows a number.
    pub fn read(&mut self, groups: &[PathBuf]) -> Result<u64, CountError> {
        for domain in self.domains.values_mut() {
            domain.seen = false;
        }
        let (mut numbers, mut text) = (0, None);
        for group in groups {
            for (folder, inode) in domains(group) {
                match fs::read_to_string(folder.join(EVENT)) {
                    Ok(content) => match content.trim().parse() {
                        Ok(now) => {
                            numbers += 1;
                            self.add(folder, inode, Some(now));
                        }
                        // `Unavailable` (the first reading after the event was configured),
                        // `Error`, `Unassigned`.
                        Err(_) => {
                            text = Some(content.trim().to_owned());
                            self.add(folder, inode, None);
                        }
                    },
                    Err(_) => continue,
                }
            }
        }
        self.domains.retain(|_, domain| domain.seen);
        self.begun = true;
        let group = || groups.first().cloned().unwrap_or_default();
        match (numbers, text) {
            (0, Some(text)) => Err(CountError::Text(group(), text)),
            (0, None) => Err(CountError::None(group())),
            _ => Ok(self.bytes),
        }
    }

    fn add(&mut self, folder: PathBuf, inode: u64, now: Option<u64>) {
        let known = self.domains.get(&folder).filter(|one| one.inode == inode);
        let last = match known {
            Some(domain) => domain.last,
            // What was there at the first reading has counted before; a later one starts from 0,
            // because the kernel resets an RMID that it hands out again.
            None => self.begun.then_some(0),
        };
        if let (Some(now), Some(last)) = (now, last) {
            // A count that falls was reset, by an event that was configured anew.
            self.bytes = self.bytes.wrapping_add(now.saturating_sub(last));
        }
        let domain = Domain {
            inode,
            last: now.or(last),
            seen: true,
        };
        self.domains.insert(folder, domain);
    }
}

/// The folders `mon_L3_*` of a group: one for each core complex or socket with a processor that is
/// online.
fn domains(group: &Path) -> Vec<(PathBuf, u64)> {
    let entries = fs::read_dir(group.join("mon_data"));
    let domain = |entry: fs::DirEntry| {
        let l3 = entry.file_name().to_str()?.starts_with("mon_L3_");
        l3.then(|| Some((entry.path(), entry.metadata().ok()?.ino())))?
    };
    let mut found: Vec<_> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(domain)
        .collect();
    found.sort();
    found
}

/// All CTRL_MON groups: the default one, and folders beside it. Together they count the machine.
pub fn control_groups(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let others = entries.filter_map(|entry| {
        let name = entry.file_name();
        let reserved = ["info", "mon_data", "mon_groups"].iter();
        let is_group =
            reserved.into_iter().all(|one| name != *one) && entry.path().join("mon_data").is_dir();
        is_group.then(|| entry.path())
    });
    let mut groups: Vec<PathBuf> = std::iter::once(root.to_owned()).chain(others).collect();
    groups[1..].sort();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resctrl::tests_support::Machine;

    fn total(counts: &mut Counts, machine: &Machine) -> u64 {
        counts.read(&control_groups(machine.root())).unwrap()
    }

    #[test]
    fn a_machines_count_is_that_of_all_domains_and_control_groups() {
        // Two sockets of four core complexes each.
        let machine = Machine::new(8, 16);
        let other = machine.control_group("batch");
        machine.put(1, &other);
        let mut counts = Counts::default();
        machine.move_bytes(2, 0, 5_000_000);
        assert_eq!(
            total(&mut counts, &machine),
            0,
            "what came before is not counted"
        );
        for domain in 0..8 {
            machine.move_bytes(1, domain, 1000);
            machine.move_bytes(2, domain, 10);
        }
        assert_eq!(total(&mut counts, &machine), 8080);
    }

    #[test]
    fn groups_and_domains_that_come_and_go_take_nothing_out_of_the_sum() {
        let machine = Machine::new(2, 16);
        let mut counts = Counts::default();
        total(&mut counts, &machine);
        let other = machine.control_group("batch");
        machine.put(1, &other);
        machine.move_bytes(1, 0, 700);
        machine.move_bytes(2, 1, 50);
        assert_eq!(
            total(&mut counts, &machine),
            750,
            "a new group counts from its start"
        );
        // Its RMID is handed out again, under the same name.
        machine.remove_group(&other);
        let again = machine.control_group("batch");
        machine.put(1, &again);
        machine.move_bytes(1, 0, 900);
        assert_eq!(
            total(&mut counts, &machine),
            1650,
            "more than before under the same name"
        );
        // All processors of a domain go offline and return.
        machine.offline(1);
        machine.move_bytes(1, 0, 1);
        assert_eq!(total(&mut counts, &machine), 1651);
        machine.online(1);
        machine.move_bytes(2, 1, 5);
        assert_eq!(total(&mut counts, &machine), 1656);
    }

    #[test]
    fn text_instead_of_a_number_is_no_count_and_loses_nothing() {
        let machine = Machine::new(2, 16);
        let mut counts = Counts::default();
        total(&mut counts, &machine);
        machine.move_bytes(2, 1, 30);
        machine.say(0, "Unavailable");
        assert_eq!(total(&mut counts, &machine), 30, "the other domain counts");
        machine.say(0, "Error");
        machine.say(1, "Error");
        let groups = control_groups(machine.root());
        let said = counts.read(&groups).unwrap_err().to_string();
        assert!(said.contains("Error"), "{said}");
        machine.move_bytes(2, 0, 4);
        machine.move_bytes(2, 1, 8);
        assert_eq!(total(&mut counts, &machine), 42);
        let nowhere = counts.read(&[PathBuf::from("/nowhere")]).unwrap_err();
        assert!(nowhere.to_string().contains("mount resctrl"), "{nowhere}");
    }
}
