//! Configures the total event to count reads of slow memory only, which is CXL memory on AMD
//! (Bandwidth Monitoring Event Configuration), and restores what it counted before.
//!
//! Bits 4 and 5 are reads of slow memory, local and remote. Dirty victims (bit 6) are those to all
//! types of memory, so write-backs to CXL memory cannot be counted apart. A cached store reads its
//! line first, and that is counted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Reads of slow memory in the local and the remote domain.
const SLOW_READS: u64 = 0x30;
/// The same as words of `event_filter`.
const SLOW_FILTER: [&str; 2] = ["local_reads_slow_memory", "remote_reads_slow_memory"];

const CONFIG: &str = "info/L3_MON/mbm_total_bytes_config";
const FILTER: &str = "info/L3_MON/event_configs/mbm_total_bytes/event_filter";
const MODE: &str = "info/L3_MON/mbm_assign_mode";

/// The event counts slow memory while this exists.
#[derive(Debug)]
pub struct SlowMemory {
    /// The file, and its content before; `None`: it was like this already.
    before: Option<(PathBuf, String)>,
}

impl SlowMemory {
    /// Configures the event in all domains.
    ///
    /// # Errors
    /// The processor or the kernel cannot, or did not do it.
    pub fn count(root: &Path) -> Result<Self, String> {
        let (path, wanted) = wanted(root)?;
        let says = |error: io::Error| format!("{}: {error}", path.display());
        let before = fs::read_to_string(&path).map_err(says)?;
        if is_slow(&before) {
            return Ok(Self { before: None });
        }
        fs::write(&path, format!("{wanted}\n")).map_err(says)?;
        let now = fs::read_to_string(&path).map_err(says)?;
        if !is_slow(&now) {
            return Err(format!(
                "{}: wrote {wanted}, and it is {}",
                path.display(),
                now.trim()
            ));
        }
        Ok(Self {
            before: Some((path, before)),
        })
    }
}

impl Drop for SlowMemory {
    fn drop(&mut self) {
        if let Some((path, before)) = &self.before
            && let Err(error) = fs::write(path, format!("{}\n", before.trim()))
        {
            tracing::warn!(
                "{}: {error}; it still counts slow memory only",
                path.display()
            );
        }
    }
}

/// What the event counts now, or why it cannot count slow memory.
///
/// # Errors
/// A message.
pub fn describe(root: &Path) -> Result<String, String> {
    let (path, _) = wanted(root)?;
    let now = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(match is_slow(&now) {
        true => "the total event counts reads of slow memory".to_owned(),
        false => format!(
            "the total event can count slow memory; now it counts {}",
            now.trim()
        ),
    })
}

/// The file that configures the event, and what to write.
fn wanted(root: &Path) -> Result<(PathBuf, String), String> {
    let filter = root.join(FILTER);
    let mode = fs::read_to_string(root.join(MODE)).unwrap_or_default();
    // With counters that are assigned to groups, this file replaces the other one.
    if filter.is_file() && mode.contains("[mbm_event]") {
        return Ok((filter, SLOW_FILTER.join(",")));
    }
    let config = root.join(CONFIG);
    let Ok(text) = fs::read_to_string(&config) else {
        let why = match root.join("info/L3_MON").is_dir() {
            true => {
                "the processor's monitoring cannot tell slow memory from other memory (AMD has BMEC from Zen 4 on)"
            }
            false => "no resctrl with memory bandwidth monitoring is mounted there",
        };
        return Err(format!("{}: {why}", root.display()));
    };
    let domains = text.trim().split(';').filter_map(|one| one.split_once('='));
    let each = domains.map(|(domain, _)| format!("{}={SLOW_READS:#x}", domain.trim()));
    Ok((config, each.collect::<Vec<_>>().join(";")))
}

/// Whether this content selects reads of slow memory and nothing else.
fn is_slow(text: &str) -> bool {
    let text = text.trim();
    if text.contains('=') {
        return text.split(';').all(|one| {
            let bits = one.split_once("=0x").map(|(_, bits)| bits.trim());
            bits.and_then(|bits| u64::from_str_radix(bits, 16).ok()) == Some(SLOW_READS)
        });
    }
    let mut words: Vec<&str> = text.split(',').map(str::trim).collect();
    words.sort_unstable();
    words == SLOW_FILTER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resctrl::tests_support::Machine;

    #[test]
    fn every_domain_counts_slow_memory_and_is_restored() {
        let machine = Machine::new(3, 16);
        let config = || fs::read_to_string(machine.root().join(CONFIG)).unwrap();
        let slow = SlowMemory::count(machine.root()).unwrap();
        assert_eq!(config().trim(), "0=0x30;1=0x30;2=0x30");
        assert!(SlowMemory::count(machine.root()).unwrap().before.is_none());
        drop(slow);
        assert_eq!(config().trim(), "0=0x7f;1=0x7f;2=0x7f");
    }

    #[test]
    fn the_newer_file_is_used_where_counters_are_assigned() {
        let machine = Machine::new(2, 16);
        machine.assign_counters();
        let slow = SlowMemory::count(machine.root()).unwrap();
        let text = fs::read_to_string(machine.root().join(FILTER)).unwrap();
        assert_eq!(
            text.trim(),
            "local_reads_slow_memory,remote_reads_slow_memory"
        );
        assert!(
            describe(machine.root())
                .unwrap()
                .contains("counts reads of slow")
        );
        drop(slow);
        assert!(describe(machine.root()).unwrap().contains("local_reads,"));
    }

    #[test]
    fn a_processor_that_cannot_is_refused_with_the_reason() {
        let machine = Machine::new(2, 16);
        fs::remove_file(machine.root().join(CONFIG)).unwrap();
        let said = SlowMemory::count(machine.root()).unwrap_err();
        assert!(said.contains("BMEC"), "{said}");
        let said = SlowMemory::count(Path::new("/nowhere")).unwrap_err();
        assert!(said.contains("no resctrl"), "{said}");
    }
}
