//! Counts of PMUs that see a device's whole traffic, as bytes of its node.

use std::fs;
use std::io;
use std::path::Path;

use perf_event::Counter;

use super::pmu::Pmu;
use super::presets::{Cpu, default_events};
use super::ring::{builder, cpus};
use crate::estimate::Counts;

/// The counters of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// All of them: channels, or devices that the node is interleaved over.
    pub pmus: Vec<String>,
    /// Events; empty: the defaults of the PMU.
    pub reads: Vec<String>,
    pub writes: Vec<String>,
    /// Bytes of one count where sysfs defines no scale.
    pub bytes_per_count: f64,
    /// CPUs instead of those that the PMU names.
    pub cpus: Vec<u32>,
}

/// One open event.
struct Open {
    counter: Counter,
    bytes: f64,
    /// Count, nanoseconds enabled, nanoseconds running.
    last: (u64, u64, u64),
}

/// The open events of one node.
pub struct NodeCounter {
    reads: Vec<Open>,
    writes: Vec<Open>,
    read_bytes: f64,
    write_bytes: f64,
}

impl NodeCounter {
    /// Starts counting.
    ///
    /// # Errors
    /// A PMU or an event does not exist, or the kernel refuses it; a message.
    pub fn open(devices: &Path, wanted: &Wanted, cpu: &Cpu) -> Result<Self, String> {
        let mut node = Self {
            reads: Vec::new(),
            writes: Vec::new(),
            read_bytes: 0.0,
            write_bytes: 0.0,
        };
        for name in &named(devices, &wanted.pmus)? {
            let pmu = Pmu::open(devices, name).map_err(|error| error.to_string())?;
            let (reads, writes) = match wanted.reads.is_empty() {
                false => (wanted.reads.clone(), wanted.writes.clone()),
                true => {
                    let events = default_events(&pmu, cpu)?;
                    (events.reads, events.writes)
                }
            };
            for event in &reads {
                open(&pmu, name, event, wanted, &mut node.reads)?;
            }
            for event in &writes {
                open(&pmu, name, event, wanted, &mut node.writes)?;
            }
        }
        if node.reads.is_empty() {
            let all = wanted.pmus.join(", ");
            return Err(format!(
                "{all}: none counts reads (uncore_cxlcm does, uncore_cxldp counts writes)"
            ));
        }
        Ok(node)
    }

    /// Bytes since it was opened.
    ///
    /// # Errors
    /// A counter cannot be read, or did not count at all since the last reading.
    pub fn read(&mut self) -> io::Result<Counts> {
        self.read_bytes += grown(&mut self.reads)?;
        self.write_bytes += grown(&mut self.writes)?;
        Ok(Counts {
            read_bytes: self.read_bytes as u64,
            write_bytes: self.write_bytes as u64,
        })
    }
}

/// The PMUs of these names; one that ends in `*` stands for all that begin with it, such as the
/// ports of all sockets.
fn named(devices: &Path, names: &[String]) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for name in names {
        let Some(prefix) = name.strip_suffix('*') else {
            all.push(name.clone());
            continue;
        };
        let entries = fs::read_dir(devices).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut found: Vec<String> = found.filter(|name| name.starts_with(prefix)).collect();
        if found.is_empty() {
            return Err(format!("this machine has no PMU {name:?}"));
        }
        found.sort();
        all.extend(found);
    }
    Ok(all)
}

fn open(
    pmu: &Pmu,
    name: &str,
    event: &str,
    wanted: &Wanted,
    into: &mut Vec<Open>,
) -> Result<(), String> {
    let found = pmu.event(event).map_err(|error| error.to_string())?;
    let cpus = if wanted.cpus.is_empty() {
        cpus(pmu)
    } else {
        wanted.cpus.clone()
    };
    for cpu in cpus {
        let open = || -> io::Result<Open> {
            let mut counter = builder(found, cpu).build()?;
            counter.enable()?;
            let last = now(&mut counter)?;
            Ok(Open {
                counter,
                bytes: found.bytes.unwrap_or(wanted.bytes_per_count),
                last,
            })
        };
        into.push(open().map_err(|error| format!("{name}/{event}/ on CPU {cpu}: {error}"))?);
    }
    Ok(())
}

fn now(counter: &mut Counter) -> io::Result<(u64, u64, u64)> {
    let now = counter.read_count_and_time()?;
    Ok((now.count, now.time_enabled, now.time_running))
}

/// Bytes since the last reading.
fn grown(open: &mut [Open]) -> io::Result<f64> {
    let mut sum = 0.0;
    for one in open {
        let now = now(&mut one.counter)?;
        let share = counted(one.last, now).ok_or_else(|| {
            io::Error::other("the kernel did not count: too many events share the PMU's counters")
        })?;
        one.last = now;
        sum += share * one.bytes;
    }
    Ok(sum)
}

/// The counts between two readings. Events that are multiplexed on the PMU's counters are scaled
/// up; `None` if nothing was counted.
fn counted(before: (u64, u64, u64), now: (u64, u64, u64)) -> Option<f64> {
    let count = now.0.wrapping_sub(before.0) as f64;
    let enabled = now.1.saturating_sub(before.1) as f64;
    let running = now.2.saturating_sub(before.2) as f64;
    if enabled == 0.0 && count == 0.0 {
        return Some(0.0);
    }
    (running > 0.0).then(|| count * (enabled / running).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::pmu::DEVICES;

    #[test]
    fn events_that_take_turns_stand_for_the_time_between() {
        let before = (100, 1000, 1000);
        assert_eq!(counted(before, (300, 2000, 2000)), Some(200.0));
        assert_eq!(counted(before, (300, 2000, 1250)), Some(800.0));
        assert_eq!(counted(before, (100, 2000, 1000)), None, "it did not count");
        assert_eq!(counted(before, before), Some(0.0));
        // The kernel's count has 64 bits and wraps.
        assert_eq!(counted((u64::MAX, 0, 0), (9, 1, 1)), Some(10.0));
    }

    #[test]
    fn a_real_counter_of_this_kernel_counts_what_happens() {
        let wanted = Wanted {
            pmus: vec!["software".to_owned()],
            reads: vec!["page-faults".to_owned()],
            writes: Vec::new(),
            bytes_per_count: 4096.0,
            cpus: Vec::new(),
        };
        let mut node = match NodeCounter::open(Path::new(DEVICES), &wanted, &Cpu::here()) {
            Ok(node) => node,
            Err(why) => {
                eprintln!("left out: {why}");
                return;
            }
        };
        let before = node.read().unwrap().read_bytes;
        let pages = 500;
        let mut memory = crate::perf::tests_support::fresh(pages);
        memory.touch(0..pages);
        let after = node.read().unwrap().read_bytes;
        assert!(after - before >= pages as u64 * 4096, "{before} {after}");
    }

    #[test]
    fn a_missing_event_or_pmu_is_named() {
        let mut wanted = Wanted {
            pmus: vec!["cxl_pmu_mem77.0".to_owned()],
            reads: Vec::new(),
            writes: Vec::new(),
            bytes_per_count: 64.0,
            cpus: Vec::new(),
        };
        let open =
            |wanted: &Wanted| NodeCounter::open(Path::new(DEVICES), wanted, &Cpu::here()).err();
        assert!(open(&wanted).unwrap().contains("cxl_pmu_mem77.0"));
        wanted.pmus = vec!["software".to_owned()];
        assert!(open(&wanted).unwrap().contains("name some"));
        wanted.reads = vec!["bytes".to_owned()];
        assert!(open(&wanted).unwrap().contains("bytes"));
    }
}
