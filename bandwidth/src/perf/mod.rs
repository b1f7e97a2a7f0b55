//! The kernel's performance counters (`perf_event_open`): the device's traffic, and samples of
//! accesses.
//!
//! ```text
//!  sysfs: type, format, events ──pmu──▶ attributes ─┬─▶ device: counts of a PMU, for a node
//!                                                   └─▶ ring: samples ──decode──▶ process, address
//!  sysfs: memory blocks of nodes ──blocks──▶ node of an address ─┐                     │
//!                                                                └──▶ shares of users ◀┘
//! ```
//!
//! Libraries open the events and parse rings and records (perf-event2, perf-event-data). They do
//! not support formats with several parts or terms without values, so `pmu` parses those.

pub mod blocks;
pub mod decode;
pub mod device;
pub mod pmu;
pub mod presets;
pub mod ring;
pub mod sampler;
#[cfg(test)]
pub(crate) mod tests_support;
pub mod usable;

/// Bytes of a cache line.
pub const LINE_BYTES: f64 = 64.0;

/// Numbers of a list in sysfs format: `0-2,5`.
pub fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        // No machine has more of anything.
        (last < 1 << 20).then_some(first..=last)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_sysfs_are_read() {
        assert_eq!(numbers("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(numbers("1\n"), [1]);
        assert!(numbers("\n").is_empty());
        assert!(numbers("0-4294967295").is_empty());
    }
}
