//! The daemon's configuration, in TOML.

mod counter;
mod samples;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::curve::{Curve, CurveError, GIB};
use crate::enforce::ext::IdleCpus;
pub use counter::CounterConfig;
pub use samples::{SamplesConfig, SamplesKind};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The file is no TOML, or has a wrong or unknown setting.
    #[error("{path}: {error}")]
    Toml {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: Box<toml::de::Error>,
    },
    /// A setting cannot be used.
    #[error("{path}: {why}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The setting, and what is wrong with it.
        why: String,
    },
    /// The curve cannot be used.
    #[error(transparent)]
    Curve(#[from] CurveError),
}

/// The mechanism that enforces limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// Quotas of cgroups.
    #[default]
    Quota,
    /// The sched_ext scheduler; quotas after the kernel has ended it.
    SchedExt,
}

/// All settings.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// NUMA nodes of the device, in the order of the counter's lines.
    pub nodes: Vec<u32>,
    /// The source of the device's traffic.
    pub counter: CounterConfig,
    /// More counters of the same nodes, used in this order when a counter is at fault.
    #[serde(default)]
    pub fallback: Vec<CounterConfig>,
    /// Samples for attribution; without them, CPU time and resident memory decide.
    pub samples: Option<SamplesConfig>,
    /// The threshold; without it, four fifths of the curve's working point.
    pub threshold_gib_s: Option<f64>,
    /// A curve's file or name.
    pub curve: Option<String>,
    /// The maximum latency of an access: latency is measured and the threshold follows from it. A
    /// threshold or a curve beside it is the maximum threshold.
    #[serde(alias = "most_latency_ns")]
    pub max_latency_ns: Option<f64>,
    /// Accesses of one latency sample; eight are taken between two passes.
    #[serde(default = "defaults::probe_reads")]
    pub probe_reads: usize,
    /// An upper bound of the device's bandwidth.
    #[serde(default = "defaults::max_gib_s", alias = "most_gib_s")]
    pub max_gib_s: f64,
    /// Time between two passes.
    #[serde(default = "defaults::interval_ms")]
    pub interval_ms: u64,
    /// Half-life of the averages of bandwidths.
    #[serde(default = "defaults::half_life_ms")]
    pub half_life_ms: f64,
    /// Half-life of the data from which bytes per CPU second are learned, where no samples exist.
    /// 0: CPU time and memory on the device decide.
    #[serde(default)]
    pub learn_half_life_ms: f64,
    /// How long limits stay in force while a counter is at fault, before they are lifted.
    #[serde(default = "defaults::hold_ms")]
    pub hold_ms: u64,
    /// Cgroups, relative to the hierarchy's root. All cgroups below them that have processes are
    /// watched.
    pub cgroups: Vec<PathBuf>,
    /// Of them, those (with all below) that are never limited.
    #[serde(default)]
    pub protected: Vec<PathBuf>,
    /// The mechanism that enforces limits.
    #[serde(default)]
    pub enforce: Enforcement,
    /// With `enforce = "sched-ext"`: what processors do that would be idle otherwise.
    #[serde(default)]
    pub idle: IdleCpus,
    /// The folder of the ledger and the status.
    #[serde(default = "defaults::state")]
    pub state: PathBuf,
    /// The address for Prometheus, for example `127.0.0.1:9474`.
    pub metrics: Option<std::net::SocketAddr>,
}

/// The default offset of the ring of cache-line samples in the device's memory.
pub const RING_OFFSET: u64 = 0x40000;

mod defaults {
    pub fn probe_reads() -> usize {
        16
    }
    pub fn max_gib_s() -> f64 {
        256.0
    }
    pub fn interval_ms() -> u64 {
        50
    }
    pub fn half_life_ms() -> f64 {
        10.0
    }
    pub fn hold_ms() -> u64 {
        1000
    }
    pub fn state() -> std::path::PathBuf {
        "/run/dormouse/bandwidth".into()
    }
}

impl Config {
    /// Reads and validates a file.
    ///
    /// # Errors
    /// It cannot be read, or a setting is invalid; the message names it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Read {
            path: path.to_owned(),
            error,
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| ConfigError::Toml {
            path: path.to_owned(),
            error: Box::new(error),
        })?;
        config.check().map_err(|why| ConfigError::Wrong {
            path: path.to_owned(),
            why: why.to_owned(),
        })?;
        Ok(config)
    }

    fn check(&self) -> Result<(), &'static str> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        if self.nodes.is_empty() {
            return Err("nodes: name the device's NUMA nodes");
        }
        if self.cgroups.is_empty() {
            return Err("cgroups: name the cgroups to watch");
        }
        let outside = |path: &PathBuf| {
            path.is_absolute() || path.components().any(|part| part.as_os_str() == "..")
        };
        if self.cgroups.iter().chain(&self.protected).any(outside) {
            return Err("cgroups and protected are relative to the hierarchy's root, without ..");
        }
        let thresholds = [self.threshold_gib_s, self.max_latency_ns];
        if thresholds == [None; 2] && self.curve.is_none() {
            return Err("threshold_gib_s, curve or max_latency_ns is needed");
        }
        if thresholds
            .into_iter()
            .flatten()
            .any(|value| !positive(value))
        {
            return Err("threshold_gib_s and max_latency_ns must be above 0");
        }
        if !(4..=4096).contains(&self.probe_reads) {
            return Err("probe_reads must be 4 to 4096");
        }
        if !positive(self.max_gib_s) || !positive(self.half_life_ms) {
            return Err("max_gib_s and half_life_ms must be above 0");
        }
        if !(0.0..=1e6).contains(&self.learn_half_life_ms) {
            return Err("learn_half_life_ms must be 0 to 1000000");
        }
        if !(5..=10_000).contains(&self.interval_ms) {
            return Err("interval_ms must be 5 to 10000");
        }
        for counter in std::iter::once(&self.counter).chain(&self.fallback) {
            counter.check(self.nodes.len())?;
        }
        self.samples.as_ref().map_or(Ok(()), SamplesConfig::check)
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

    /// Whether latency is measured: to keep it, or to compare it with the curve.
    pub fn measures_latency(&self) -> bool {
        self.max_latency_ns.is_some() || self.curve.is_some()
    }

    /// The curve with which measured latency is compared; `None`: none is configured.
    ///
    /// # Errors
    /// The curve cannot be used.
    pub fn latency_curve(&self) -> Result<Option<Curve>, ConfigError> {
        let curve = self.curve.as_ref().map(|name| Curve::find(name));
        Ok(curve.transpose()?)
    }

    /// Whether there is a threshold without a measured latency.
    pub fn has_threshold(&self) -> bool {
        self.threshold_gib_s.is_some() || self.curve.is_some()
    }

    /// The ledger's file.
    pub fn ledger(&self) -> PathBuf {
        self.state.join("ledger")
    }

    /// The status file.
    pub fn status(&self) -> PathBuf {
        self.state.join("status.json")
    }
}

#[cfg(test)]
mod tests;
