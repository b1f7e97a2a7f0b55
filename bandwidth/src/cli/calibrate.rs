//! `dormouse bandwidth doctor --calibrate`: each configured counter compared with known traffic.

use super::check::Check;
use crate::daemon::calibration::{Compared, compare};
use crate::daemon::config::{Config, CounterConfig, DeviceConfig};
use crate::daemon::counters;

/// Bytes that are moved in each direction.
const BYTES: u64 = 256 << 20;

/// What a comparison says, for the report.
pub struct Calibration {
    pub checks: Vec<Check>,
    /// Whether a counter that was compared is off.
    pub is_off: bool,
}

/// Compares the configured counter and its fallbacks.
pub fn run(config: &Config) -> Calibration {
    let mut all = Calibration {
        checks: Vec::new(),
        is_off: false,
    };
    let devices = config.devices.iter();
    let counters =
        devices.flat_map(|device| device.counters().enumerate().map(move |one| (device, one)));
    for (device, (at, one)) in counters {
        let checks = checks(config, device, one, &mut all.is_off).into_iter();
        all.checks.extend(checks.map(|check| match at {
            0 => check,
            _ => check.optional(),
        }));
    }
    all
}

fn checks(
    config: &Config,
    device: &DeviceConfig,
    one: &CounterConfig,
    is_off: &mut bool,
) -> Vec<Check> {
    let id = match config.devices.len() {
        1 => format!("calibration, {}", one.kind()),
        _ => format!("calibration, {}, {}", device.name, one.kind()),
    };
    if !device.cpus.is_empty() {
        let found = "a path: traffic of a single processor says nothing about it".to_owned();
        return vec![Check::new(id, Err((found, "calibrate its device"))).optional()];
    }
    if matches!(one, CounterConfig::Assumed { .. }) {
        let found = "it counts nothing that could be compared".to_owned();
        return vec![Check::new(id, Err((found, "name a counter of the device"))).optional()];
    }
    let mut counter = counters::one(one);
    // An interleaved node is divided evenly among its devices.
    let ways = |node: &u32| {
        let of_node = |other: &&DeviceConfig| other.cpus.is_empty() && other.nodes.contains(node);
        1.0 / config.devices.iter().filter(of_node).count().max(1) as f64
    };
    let nodes: Vec<(u32, f64)> = device
        .nodes
        .iter()
        .map(|node| (*node, ways(node)))
        .collect();
    match compare(counter.as_mut(), &nodes, BYTES, one.counts_writes()) {
        Ok(all) => {
            *is_off |= all.iter().any(|one| !one.is_disturbed() && !one.is_right());
            all.iter().map(|one| check(&id, one)).collect()
        }
        Err(error) => {
            let todo = "each node needs 32 MiB, another 64 MiB left free, and a counter that can \
                        be read";
            vec![Check::new(id, Err((error.to_string(), todo)))]
        }
    }
}

fn check(id: &str, one: &Compared) -> Check {
    let found = one.describe();
    let todo = match (one.is_disturbed(), one.is_right()) {
        (true, _) => "others move too much: try again while the device is idle",
        (false, true) => return Check::new(id, Ok(found)),
        (false, false) => {
            "do not use this counter: it is off by more than 10 %. Does it count this node's device, \
             and are bytes_per_count and the events right?"
        }
    };
    Check::new(id, Err((found, todo)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration with a counter in a text file; `None`: the file is not there.
    fn calibrated(text: Option<&str>) -> (Calibration, String) {
        let folder = tempfile::tempdir().unwrap();
        let (file, counts) = (folder.path().join("toml"), folder.path().join("counts"));
        if let Some(text) = text {
            std::fs::write(&counts, text).unwrap();
        }
        let settings = format!(
            "nodes = [0]\nthreshold_gib_s = 1.0\ncgroups = [\"a\"]\n\
             [counter]\nkind = \"text\"\npath = \"{}\"\n",
            counts.display()
        );
        std::fs::write(&file, settings).unwrap();
        let found = run(&Config::read(&file).unwrap());
        let text = serde_json::to_string(&found.checks).unwrap();
        (found, text)
    }

    #[test]
    fn a_counter_that_counts_nothing_of_known_traffic_is_off() {
        let (found, text) = calibrated(Some("read write\n7 9\n"));
        assert!(found.is_off, "{text}");
        for direction in [
            "reads: counted 0 of 256 MiB",
            "writes: counted 0 of 512 MiB",
        ] {
            assert!(text.contains(direction), "{text}");
        }
    }

    #[test]
    fn a_counter_that_cannot_be_read_is_lacking_and_not_off() {
        let (found, text) = calibrated(None);
        assert!(!found.is_off, "{text}");
        assert!(text.contains("cannot be read"), "{text}");
    }
}
