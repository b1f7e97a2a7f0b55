//! The daemon's configuration, in TOML.

mod class;
mod counter;
mod device;
mod samples;
mod tiering;
mod units;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::curve::CurveError;
use crate::enforce::ext::IdleCpus;
pub use class::ClassConfig;
pub use counter::CounterConfig;
pub use device::{DeviceConfig, Leg};
pub use samples::{SamplesConfig, SamplesKind};
pub use tiering::TieringConfig;
pub use units::{KubernetesConfig, UserUnit};

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
    /// All NUMA nodes. In the file: those of the only device, in the order of the counter's lines.
    #[serde(default)]
    pub nodes: Vec<u32>,
    /// The devices; in the file, tables `[[device]]`, or the settings of the only device beside the
    /// others.
    #[serde(default, rename = "device")]
    pub devices: Vec<DeviceConfig>,
    counter: Option<CounterConfig>,
    #[serde(default)]
    fallback: Vec<CounterConfig>,
    threshold_gib_s: Option<f64>,
    curve: Option<String>,
    #[serde(alias = "most_latency_ns")]
    max_latency_ns: Option<f64>,
    #[serde(alias = "most_gib_s")]
    max_gib_s: Option<f64>,
    /// Samples for attribution; without them, CPU time and resident memory decide.
    pub samples: Option<SamplesConfig>,
    /// Accesses of one latency sample; eight are taken between two passes.
    #[serde(default = "defaults::probe_reads")]
    pub probe_reads: usize,
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
    /// What a user is: each cgroup with processes, or a service or pod with all below it.
    #[serde(default)]
    pub users: UserUnit,
    /// Where pods have their annotations.
    pub kubernetes: Option<KubernetesConfig>,
    /// Latency classes: while a user of one is active on a device, its latency is kept there.
    #[serde(default, rename = "class")]
    pub classes: Vec<ClassConfig>,
    /// The traffic of the kernel's memory tiering as a user of its own.
    pub tiering: Option<TieringConfig>,
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
        let mut config: Self = toml::from_str(text).map_err(|error| ConfigError::Toml {
            path: path.to_owned(),
            error: Box::new(error),
        })?;
        let checked = config.gather().and_then(|()| config.check());
        checked.map_err(|why| ConfigError::Wrong {
            path: path.to_owned(),
            why: why.to_owned(),
        })?;
        Ok(config)
    }

    /// Makes a device of the settings of the only one; names devices without a name.
    fn gather(&mut self) -> Result<(), &'static str> {
        let has_own = self.counter.is_some()
            || !self.nodes.is_empty()
            || !self.fallback.is_empty()
            || self.threshold_gib_s.is_some()
            || self.curve.is_some()
            || self.max_latency_ns.is_some()
            || self.max_gib_s.is_some();
        if self.devices.is_empty() {
            let device = DeviceConfig {
                name: String::new(),
                nodes: std::mem::take(&mut self.nodes),
                counter: self
                    .counter
                    .take()
                    .ok_or("counter: a table [counter] is needed")?,
                fallback: std::mem::take(&mut self.fallback),
                threshold_gib_s: self.threshold_gib_s.take(),
                curve: self.curve.take(),
                max_latency_ns: self.max_latency_ns.take(),
                max_gib_s: self.max_gib_s.take().unwrap_or_else(defaults::max_gib_s),
                cpus: Vec::new(),
            };
            self.devices.push(device);
        } else if has_own {
            return Err(
                "with tables [[device]], nodes, counter, fallback, threshold_gib_s, curve, \
                 max_latency_ns and max_gib_s belong into each of them",
            );
        }
        for (at, device) in self.devices.iter_mut().enumerate() {
            if device.name.is_empty() {
                device.name = format!("device{at}");
            }
        }
        self.nodes = device::nodes(&self.devices);
        Ok(())
    }

    fn check(&self) -> Result<(), &'static str> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        if self.cgroups.is_empty() {
            return Err("cgroups: name the cgroups to watch");
        }
        let outside = |path: &PathBuf| {
            path.is_absolute() || path.components().any(|part| part.as_os_str() == "..")
        };
        if self.cgroups.iter().chain(&self.protected).any(outside) {
            return Err("cgroups and protected are relative to the hierarchy's root, without ..");
        }
        for device in &self.devices {
            device.check(!self.classes.is_empty())?;
        }
        device::check_together(&self.devices)?;
        if !(4..=4096).contains(&self.probe_reads) {
            return Err("probe_reads must be 4 to 4096");
        }
        if !positive(self.half_life_ms) {
            return Err("half_life_ms must be above 0");
        }
        if !(0.0..=1e6).contains(&self.learn_half_life_ms) {
            return Err("learn_half_life_ms must be 0 to 1000000");
        }
        if !(5..=10_000).contains(&self.interval_ms) {
            return Err("interval_ms must be 5 to 10000");
        }
        self.check_users()?;
        self.classes.iter().try_for_each(ClassConfig::check)?;
        self.tiering.as_ref().map_or(Ok(()), TieringConfig::check)?;
        self.samples.as_ref().map_or(Ok(()), SamplesConfig::check)
    }

    fn check_users(&self) -> Result<(), &'static str> {
        let is_ring = |samples: &SamplesConfig| samples.kind == Some(SamplesKind::Device);
        if self.devices.len() > 1 && self.samples.as_ref().is_some_and(is_ring) {
            return Err(
                "samples: the ring of cache-line samples is that of one device: with several, use \
                 samples of the processors",
            );
        }
        if self.users == UserUnit::Cgroup {
            return match &self.kubernetes {
                None => Ok(()),
                Some(_) => Err("kubernetes: it needs users = \"unit\""),
            };
        }
        if self.enforce == Enforcement::SchedExt {
            return Err(
                "users = \"unit\" needs enforce = \"quota\": the scheduler limits the processes of a \
                 cgroup itself and not those below it",
            );
        }
        if self.samples.as_ref().is_some_and(is_ring) {
            return Err(
                "users = \"unit\" works without samples or with those of the processor: the ring of \
                 cache-line samples tells the cgroup that has the memory",
            );
        }
        Ok(())
    }

    /// The legs of all devices, device after device.
    pub fn legs(&self) -> Vec<Leg> {
        device::legs(&self.devices)
    }

    /// The threshold of each device, in bytes a second.
    ///
    /// # Errors
    /// A curve cannot be used.
    pub fn thresholds(&self) -> Result<Vec<f64>, ConfigError> {
        self.devices.iter().map(DeviceConfig::threshold).collect()
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
