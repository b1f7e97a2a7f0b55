//! The daemon's configuration, in TOML.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::curve::{Curve, CurveError, GIB};
use crate::enforce::ext::Idle;
use crate::perf::presets::{SampleKind, SampledEvent};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: {error}")]
    Read {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {error}")]
    Toml {
        path: PathBuf,
        error: Box<toml::de::Error>,
    },
    #[error("{path}: {why}")]
    Wrong { path: PathBuf, why: String },
    #[error(transparent)]
    Curve(#[from] CurveError),
}

/// Where the device's bandwidth comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum CounterConfig {
    /// Text of lines `read write` in bytes, one for each node, under a line of headings: what the
    /// seed's kernel module shows in debugfs.
    Text { path: PathBuf },
    /// Pairs of 64-bit counters of reads and writes in a PCI device's memory, one for each node, as
    /// the seed's FPGA has them: `path` is the device's `resourceN` in sysfs.
    Bar {
        path: PathBuf,
        #[serde(default = "defaults::bar_offset")]
        offset: u64,
        /// What 1 stands for: a line, or 1 where bytes are counted.
        #[serde(default = "defaults::bytes_per_count")]
        bytes_per_count: u64,
    },
    /// What the processor counts itself (resctrl's memory bandwidth monitoring), in a folder
    /// `mon_L3_*` for each node. It is all traffic of those processors, not the device's alone.
    Resctrl { domains: Vec<PathBuf> },
    /// Events of PMUs, through the kernel's perf: `cxl_pmu` of the device, memory controllers.
    Perf {
        /// For each node, the names of its PMUs in /sys/bus/event_source/devices.
        pmus: Vec<Vec<String>>,
        /// Events of each PMU, added up; none: those that are usual for it.
        #[serde(default)]
        reads: Vec<String>,
        #[serde(default)]
        writes: Vec<String>,
        /// What 1 stands for where sysfs does not say it.
        #[serde(default = "defaults::bytes_per_count")]
        bytes_per_count: u64,
        /// CPUs to count on instead of those that the PMU names: one processor's, for instance.
        #[serde(default)]
        cpus: Vec<u32>,
    },
    /// Nothing counts: a CPU second of a task all of whose memory is on the device is taken to move
    /// so many GiB.
    Assumed { gib_per_cpu_second: f64 },
}

impl CounterConfig {
    fn check(&self, nodes: usize) -> Result<(), &'static str> {
        match self {
            Self::Resctrl { domains } if domains.len() != nodes => {
                Err("domains: resctrl needs one for each node")
            }
            Self::Bar {
                offset,
                bytes_per_count,
                ..
            } if offset % 8 != 0 || *offset >= 1 << 40 || *bytes_per_count == 0 => {
                Err("offset is a multiple of 8 in the device, bytes_per_count is above 0")
            }
            Self::Perf { pmus, .. } if pmus.len() != nodes || pmus.iter().any(Vec::is_empty) => {
                Err("pmus: perf needs a list of PMUs for each node")
            }
            Self::Perf {
                pmus,
                reads,
                writes,
                bytes_per_count,
                ..
            } => {
                if *bytes_per_count == 0 || (reads.is_empty() && !writes.is_empty()) {
                    return Err("bytes_per_count is above 0; writes are named beside reads only");
                }
                let inside = |name: &String| !name.is_empty() && !name.contains('/');
                let inside = pmus.iter().flatten().all(inside);
                inside.then_some(()).ok_or("pmus are names, without /")
            }
            Self::Assumed { gib_per_cpu_second }
                if !(*gib_per_cpu_second > 0.0 && gib_per_cpu_second.is_finite()) =>
            {
                Err("gib_per_cpu_second is above 0")
            }
            _ => Ok(()),
        }
    }

    /// As the configuration names its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text { .. } => "text",
            Self::Bar { .. } => "bar",
            Self::Resctrl { .. } => "resctrl",
            Self::Perf { .. } => "perf",
            Self::Assumed { .. } => "assumed",
        }
    }
}

/// What samples accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplesKind {
    Pebs,
    Ibs,
    AmdFills,
    PageFaults,
    /// The device itself, into a ring in its memory.
    Device,
}

impl SamplesKind {
    /// Through the kernel's perf; nothing: otherwise.
    pub fn perf(self) -> Option<SampleKind> {
        match self {
            Self::Pebs => Some(SampleKind::Pebs),
            Self::Ibs => Some(SampleKind::Ibs),
            Self::AmdFills => Some(SampleKind::AmdFills),
            Self::PageFaults => Some(SampleKind::PageFaults),
            Self::Device => None,
        }
    }
}

/// Samples of who accesses the device.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplesConfig {
    pub kind: Option<SamplesKind>,
    /// One of so many events is sampled.
    pub period: Option<u64>,
    /// Events instead of those that are usual for the kind.
    #[serde(default)]
    pub events: Vec<SampledEvent>,
    /// Of `device`: the `resourceN` in sysfs of the device's memory, and where the ring begins in it.
    pub path: Option<PathBuf>,
    pub offset: Option<u64>,
}

impl SamplesConfig {
    fn check(&self) -> Result<(), &'static str> {
        if self.kind.is_none() && self.events.is_empty() {
            return Err("samples: a kind or events are needed");
        }
        if self.kind == Some(SamplesKind::Device) {
            if self.path.is_none() || self.period.is_some() || !self.events.is_empty() {
                return Err("samples: a device's need a path, and have no period and no events");
            }
            if self.offset.is_some_and(|at| at % 8 != 0 || at >= 1 << 40) {
                return Err("samples: offset is a multiple of 8 in the device");
            }
        } else if self.path.is_some() || self.offset.is_some() {
            return Err("samples: path and offset are of kind \"device\"");
        }
        if self.period == Some(0) {
            return Err("samples: period is above 0");
        }
        if self.events.iter().any(|event| event.pmu.contains('/')) {
            return Err("samples: a pmu is a name, without /");
        }
        if self.events.iter().any(|event| event.precise > 3) {
            return Err("samples: precise is 0 to 3");
        }
        Ok(())
    }
}

/// What holds users to their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// Quotas of cgroups.
    #[default]
    Quota,
    /// Our scheduler; quotas where the kernel ends it.
    SchedExt,
}

/// Everything that can be set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// NUMA nodes of the device, in the order of the counter's lines.
    pub nodes: Vec<u32>,
    pub counter: CounterConfig,
    /// Further counters of the same nodes: where one is at fault, the next one's are used.
    #[serde(default)]
    pub fallback: Vec<CounterConfig>,
    /// Who makes the traffic; without it, that is told by CPU time and resident memory.
    pub samples: Option<SamplesConfig>,
    /// The bandwidth to stay at; without it, four fifths of the curve's working point.
    pub threshold_gib_s: Option<f64>,
    /// A curve's file or name.
    pub curve: Option<String>,
    /// How long an access may take: it is measured, and the threshold found that keeps it so. Beside
    /// one of the above, that is the highest threshold.
    pub most_latency_ns: Option<f64>,
    /// Accesses of one look, of which there are eight between two passes.
    #[serde(default = "defaults::probe_reads")]
    pub probe_reads: usize,
    /// More than the device can carry.
    #[serde(default = "defaults::most_gib_s")]
    pub most_gib_s: f64,
    #[serde(default = "defaults::interval_ms")]
    pub interval_ms: u64,
    #[serde(default = "defaults::half_life_ms")]
    pub half_life_ms: f64,
    /// Where nothing samples what users access: learn what their CPU seconds move; what was seen this
    /// long ago counts half. 0: CPU time and memory on the device decide.
    #[serde(default)]
    pub learn_half_life_ms: f64,
    /// Time for which limits stay as they are while a counter is at fault; then they are lifted.
    #[serde(default = "defaults::hold_ms")]
    pub hold_ms: u64,
    /// Cgroups, relative to the hierarchy's root, below which all with processes are watched.
    pub cgroups: Vec<PathBuf>,
    /// Of them, those (with all below) that are never slowed.
    #[serde(default)]
    pub protected: Vec<PathBuf>,
    /// What holds users to their limits.
    #[serde(default)]
    pub enforce: Means,
    /// With `enforce = "sched-ext"`: what becomes of processors that would be idle otherwise.
    #[serde(default)]
    pub idle: Idle,
    /// What was changed, what goes on.
    #[serde(default = "defaults::state")]
    pub state: PathBuf,
    /// Where Prometheus may ask, for instance `127.0.0.1:9474`.
    pub metrics: Option<std::net::SocketAddr>,
}

/// Where a ring of sampled lines begins in a device's memory, unless it is said.
pub const RING_OFFSET: u64 = 0x40000;

mod defaults {
    pub fn bar_offset() -> u64 {
        0x18100
    }
    pub fn bytes_per_count() -> u64 {
        64
    }
    pub fn probe_reads() -> usize {
        16
    }
    pub fn most_gib_s() -> f64 {
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
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense; the message names what.
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
            return Err("nodes: the device's NUMA nodes are needed");
        }
        if self.cgroups.is_empty() {
            return Err("cgroups: there is nobody to watch");
        }
        let outside = |path: &PathBuf| {
            path.is_absolute() || path.components().any(|part| part.as_os_str() == "..")
        };
        if self.cgroups.iter().chain(&self.protected).any(outside) {
            return Err("cgroups and protected are relative to the hierarchy's root, without ..");
        }
        let thresholds = [self.threshold_gib_s, self.most_latency_ns];
        if thresholds == [None; 2] && self.curve.is_none() {
            return Err("threshold_gib_s, curve or most_latency_ns is needed");
        }
        if thresholds
            .into_iter()
            .flatten()
            .any(|value| !positive(value))
        {
            return Err("threshold_gib_s and most_latency_ns are above 0");
        }
        if !(4..=4096).contains(&self.probe_reads) {
            return Err("probe_reads is 4 to 4096");
        }
        if !positive(self.most_gib_s) || !positive(self.half_life_ms) {
            return Err("most_gib_s and half_life_ms are above 0");
        }
        if !(0.0..=1e6).contains(&self.learn_half_life_ms) {
            return Err("learn_half_life_ms is 0 to 1000000");
        }
        if !(5..=10_000).contains(&self.interval_ms) {
            return Err("interval_ms is 5 to 10000");
        }
        for counter in std::iter::once(&self.counter).chain(&self.fallback) {
            counter.check(self.nodes.len())?;
        }
        self.samples.as_ref().map_or(Ok(()), SamplesConfig::check)
    }

    /// The bandwidth to stay at, in bytes a second; where latency decides, the highest one.
    ///
    /// # Errors
    /// The curve cannot be used.
    pub fn threshold(&self) -> Result<f64, ConfigError> {
        if let Some(gib_s) = self.threshold_gib_s {
            return Ok(gib_s * GIB);
        }
        match &self.curve {
            Some(name) => Ok(Curve::find(name)?.threshold()),
            None => Ok(self.most_gib_s * GIB),
        }
    }

    /// Whether there is a threshold without latency being measured.
    pub fn has_threshold(&self) -> bool {
        self.threshold_gib_s.is_some() || self.curve.is_some()
    }

    /// The ledger's file.
    pub fn ledger(&self) -> PathBuf {
        self.state.join("ledger")
    }

    /// The file that says what goes on.
    pub fn status(&self) -> PathBuf {
        self.state.join("status.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "nodes = [1]\ncgroups = [\"a.slice\"]\nthreshold_gib_s = 4.0\n\
        [counter]\nkind = \"assumed\"\ngib_per_cpu_second = 3.0\n";

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("x.toml"), text)
    }

    #[test]
    fn the_least_that_must_be_said_is_enough() {
        let config = parse(LEAST).unwrap();
        assert_eq!(config.threshold().unwrap(), 4.0 * GIB);
        assert_eq!(config.interval_ms, 50);
        assert_eq!((config.enforce, config.idle), (Means::Quota, Idle::Hold));
        let ext = LEAST.replace(
            "[counter]",
            "enforce = \"sched-ext\"\nidle = \"use\"\n[counter]",
        );
        let ext = parse(&ext).unwrap();
        assert_eq!((ext.enforce, ext.idle), (Means::SchedExt, Idle::Use));
        let curve = LEAST.replace("threshold_gib_s = 4.0", "curve = \"linear-knee\"");
        assert!((parse(&curve).unwrap().threshold().unwrap() / GIB - 12.8).abs() < 1e-9);
    }

    #[test]
    fn a_latency_does_for_a_threshold_and_a_threshold_bounds_it() {
        let latency = LEAST.replace("threshold_gib_s = 4.0", "most_latency_ns = 600");
        let config = parse(&latency).unwrap();
        assert_eq!(config.most_latency_ns, Some(600.0));
        assert_eq!(config.threshold().unwrap(), config.most_gib_s * GIB);
        assert!(!config.has_threshold());
        let both = LEAST.replace("[counter]", "most_latency_ns = 600\n[counter]");
        let both = parse(&both).unwrap();
        assert_eq!(both.threshold().unwrap(), 4.0 * GIB);
        assert!(both.has_threshold());
    }

    #[test]
    fn several_counters_and_samples_can_be_named() {
        let more = "[samples]\nperiod = 5\n\
            events = [{ pmu = \"cpu\", event = \"event=0x1\", op = \"store\", precise = 2 }]\n\
            [[fallback]]\nkind = \"perf\"\npmus = [[\"cxl_pmu_mem0.0\", \"cxl_pmu_mem1.0\"]]\n\
            [counter]";
        let config = parse(&LEAST.replace("[counter]", more)).unwrap();
        assert_eq!(config.counter.kind(), "assumed");
        assert_eq!(config.fallback[0].kind(), "perf");
        let samples = config.samples.unwrap();
        assert_eq!(samples.kind, None);
        assert_eq!(samples.events[0].op, crate::perf::presets::Op::Store);
    }

    #[test]
    fn a_device_may_sample_itself() {
        let device = |more: &str| {
            let table = format!("[samples]\nkind = \"device\"\n{more}\n[counter]");
            parse(&LEAST.replace("[counter]", &table)).map_err(|error| error.to_string())
        };
        let samples = device("path = \"/x\"").unwrap().samples.unwrap();
        assert_eq!(samples.kind.and_then(SamplesKind::perf), None);
        for (more, why) in [
            ("", "need a path"),
            ("path = \"/x\"\nperiod = 7", "no period"),
            ("path = \"/x\"\noffset = 7", "multiple of 8"),
        ] {
            let said = device(more).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let other = "[samples]\nkind = \"ibs\"\npath = \"/x\"\n[counter]";
        let said = parse(&LEAST.replace("[counter]", other)).unwrap_err();
        assert!(said.to_string().contains("are of kind"), "{said}");
    }

    #[test]
    fn the_example_that_comes_with_the_unit_is_one() {
        let text = include_str!("../../systemd/bandwidth.toml");
        let config = parse(text).unwrap();
        assert!(matches!(config.counter, CounterConfig::Text { .. }));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let refused = |from: &str, to: &str, why: &str| {
            let said = parse(&LEAST.replace(from, to)).unwrap_err().to_string();
            assert!(said.contains("x.toml") && said.contains(why), "{said}");
        };
        refused("[1]", "[]", "nodes");
        refused("a.slice", "/a", "relative");
        refused("a.slice", "a/../..", "relative");
        refused("= 4.0", "= -4.0", "threshold");
        refused("threshold_gib_s = 4.0", "", "most_latency_ns is needed");
        refused(
            "threshold_gib_s = 4.0",
            "most_latency_ns = 0",
            "most_latency_ns",
        );
        refused("[counter]", "probe_reads = 1\n[counter]", "probe_reads");
        refused("assumed", "guessed", "guessed");
        refused("nodes", "knots = 1\nnodes", "knots");
        refused("= 3.0", "= 0.0", "gib_per_cpu_second");
        let bar = "kind = \"bar\"\npath = \"/x\"\noffset = 4\n";
        let assumed = "kind = \"assumed\"\ngib_per_cpu_second = 3.0\n";
        refused(assumed, bar, "multiple of 8");
        refused(
            assumed,
            "kind = \"resctrl\"\ndomains = []\n",
            "one for each",
        );
        refused("[counter]", "interval_ms = 1\n[counter]", "interval_ms");
        let perf = |more: &str| format!("kind = \"perf\"\n{more}\n");
        refused(assumed, &perf("pmus = []"), "for each node");
        refused(assumed, &perf("pmus = [[\"../x\"]]"), "without /");
        refused(
            assumed,
            &perf("pmus = [[\"x\"]]\nwrites = [\"w\"]"),
            "beside reads",
        );
        refused("[counter]", "[samples]\n[counter]", "kind or events");
        refused(
            "[counter]",
            "[samples]\nkind = \"pebs\"\nperiod = 0\n[counter]",
            "period",
        );
        refused(
            "[counter]",
            "[samples]\nkind = \"guess\"\n[counter]",
            "guess",
        );
        refused(
            "[counter]",
            "[[fallback]]\nkind = \"resctrl\"\ndomains = []\n[counter]",
            "one for each",
        );
    }
}
