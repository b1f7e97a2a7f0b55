//! Configuration of a device: its nodes, counters and threshold.
//!
//! ```text
//!  [[device]]            nodes = [2]          a device with a node of its own
//!  [[device]] × 2        nodes = [3]          two devices that are interleaved behind node 3
//!  [[device]]            cpus = [0, 1, …]     the path of these processors to the nodes of a device
//! ```

use serde::Deserialize;

use super::counter::CounterConfig;
use super::{ConfigError, defaults};
use crate::curve::{Curve, GIB};

/// One device, or one path to a device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// Its name in the log, in `top` and in metrics; empty: `device` and its number.
    #[serde(default)]
    pub name: String,
    /// Its NUMA nodes, in the order of the counter's lines. A node of several devices is
    /// interleaved over them.
    pub nodes: Vec<u32>,
    /// The source of its traffic.
    pub counter: CounterConfig,
    /// More counters of the same nodes, used in this order when a counter is at fault.
    #[serde(default)]
    pub fallback: Vec<CounterConfig>,
    /// The threshold; without it, four fifths of the curve's working point.
    pub threshold_gib_s: Option<f64>,
    /// A curve's file or name.
    pub curve: Option<String>,
    /// The maximum latency of an access.
    #[serde(alias = "most_latency_ns")]
    pub max_latency_ns: Option<f64>,
    /// An upper bound of its bandwidth.
    #[serde(default = "defaults::max_gib_s", alias = "most_gib_s")]
    pub max_gib_s: f64,
    /// The processors of a path, for example those of one socket: only their traffic counts.
    /// Empty: all processors.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// A part of a device's traffic that is counted on its own: that of one of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The device, by its position in the configuration.
    pub device: usize,
    /// The node.
    pub node: u32,
    /// The position of the node among all nodes.
    pub node_at: usize,
    /// Whether its traffic is part of the machine's: that of a path is part of its device's.
    pub in_total: bool,
}

impl DeviceConfig {
    /// The configured counters, in the order of preference.
    pub fn counters(&self) -> impl Iterator<Item = &CounterConfig> {
        std::iter::once(&self.counter).chain(&self.fallback)
    }

    /// The threshold, in bytes a second; with `max_latency_ns`, the maximum threshold.
    ///
    /// # Errors
    /// The curve cannot be used.
    pub fn threshold(&self) -> Result<f64, ConfigError> {
        if let Some(gib_s) = self.threshold_gib_s {
            return Ok(gib_s * GIB);
        }
        match &self.curve {
            Some(name) => Ok(Curve::find(name)?.threshold()),
            None => Ok(self.max_gib_s * GIB),
        }
    }

    /// The curve with which measured latency is compared; `None`: none is configured.
    ///
    /// # Errors
    /// The curve cannot be used.
    pub fn latency_curve(&self) -> Result<Option<Curve>, ConfigError> {
        let curve = self.curve.as_ref().map(|name| Curve::find(name));
        Ok(curve.transpose()?)
    }

    /// Whether latency is measured: to keep it, or to compare it with the curve.
    pub fn measures_latency(&self) -> bool {
        self.max_latency_ns.is_some() || self.curve.is_some()
    }

    /// Whether there is a threshold without a measured latency.
    pub fn has_threshold(&self) -> bool {
        self.threshold_gib_s.is_some() || self.curve.is_some()
    }

    /// Checks the settings; `classes`: latency classes name the latency.
    pub(super) fn check(&self, classes: bool) -> Result<(), &'static str> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        if self.nodes.is_empty() {
            return Err("nodes: name the device's NUMA nodes");
        }
        let thresholds = [self.threshold_gib_s, self.max_latency_ns];
        if thresholds == [None; 2] && self.curve.is_none() && !classes {
            return Err("threshold_gib_s, curve or max_latency_ns is needed");
        }
        let mut thresholds = thresholds.into_iter().flatten();
        if thresholds.any(|value| !positive(value)) {
            return Err("threshold_gib_s and max_latency_ns must be above 0");
        }
        if !positive(self.max_gib_s) {
            return Err("max_gib_s must be above 0");
        }
        self.counters()
            .try_for_each(|counter| counter.check(self.nodes.len()))
    }
}

/// The unique nodes of these devices, in their order.
pub(super) fn nodes(devices: &[DeviceConfig]) -> Vec<u32> {
    let mut nodes = Vec::new();
    for &node in devices.iter().flat_map(|device| &device.nodes) {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    nodes
}

/// The legs of these devices, device after device.
pub(super) fn legs(devices: &[DeviceConfig]) -> Vec<Leg> {
    let all = nodes(devices);
    let is_whole = |device: &DeviceConfig| device.cpus.is_empty();
    let mut legs = Vec::new();
    for (device, config) in devices.iter().enumerate() {
        for &node in &config.nodes {
            let of_node = |other: &DeviceConfig| is_whole(other) && other.nodes.contains(&node);
            legs.push(Leg {
                device,
                node,
                node_at: all.iter().position(|one| *one == node).unwrap_or(0),
                in_total: is_whole(config) || !devices.iter().any(of_node),
            });
        }
    }
    legs
}

/// Checks that the counters of several devices can be distinguished.
pub(super) fn check_together(devices: &[DeviceConfig]) -> Result<(), &'static str> {
    let slow = |counter: &CounterConfig| !counter.counts_writes();
    if devices.len() > 1 && devices.iter().flat_map(DeviceConfig::counters).any(slow) {
        return Err(
            "resctrl counts the slow memory of all devices together: with several devices, use \
             another counter, or name domains",
        );
    }
    let mut names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    names.sort_unstable();
    if names.windows(2).any(|two| two[0] == two[1]) {
        return Err("device: two devices have the same name");
    }
    Ok(())
}
