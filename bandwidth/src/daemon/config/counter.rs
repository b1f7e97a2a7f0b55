//! Configuration of a counter.

use std::path::PathBuf;

use serde::Deserialize;

fn bar_offset() -> u64 {
    0x18100
}

fn resctrl_root() -> PathBuf {
    crate::resctrl::ROOT.into()
}

fn bytes_per_count() -> u64 {
    64
}

/// The source of the device's bandwidth.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum CounterConfig {
    /// Lines `read write` in bytes, one for each node, under a line of headings: the format of the
    /// kernel module of Kämmerer 2025 in debugfs.
    Text {
        /// The file.
        path: PathBuf,
    },
    /// Pairs of 64-bit counters of reads and writes in a PCI device's memory, one for each node,
    /// as the FPGA of Kämmerer 2025 has them: `path` is the device's `resourceN` in sysfs.
    Bar {
        /// The file.
        path: PathBuf,
        /// Offset of the first counter, in bytes.
        #[serde(default = "bar_offset")]
        offset: u64,
        /// Bytes of one count: a cache line, or 1 where bytes are counted.
        #[serde(default = "bytes_per_count")]
        bytes_per_count: u64,
    },
    /// Memory bandwidth monitoring of the processor (resctrl): reads of slow memory, which is CXL
    /// memory on AMD, summed over all L3 domains and control groups. With `domains`, all memory
    /// traffic of those processors, a folder `mon_L3_*` for each node.
    Resctrl {
        /// The folders `mon_L3_*`, one for each node; empty: slow memory.
        #[serde(default)]
        domains: Vec<PathBuf>,
        /// Where resctrl is mounted.
        #[serde(default = "resctrl_root")]
        root: PathBuf,
    },
    /// Events of PMUs, through the kernel's perf: `cxl_pmu` of the device, memory controllers.
    Perf {
        /// For each node, the names of its PMUs in /sys/bus/event_source/devices.
        pmus: Vec<Vec<String>>,
        /// Events of each PMU, added up; empty: the default events of the PMU.
        #[serde(default)]
        reads: Vec<String>,
        /// The same for writes.
        #[serde(default)]
        writes: Vec<String>,
        /// Bytes of one count where sysfs does not define a scale.
        #[serde(default = "bytes_per_count")]
        bytes_per_count: u64,
        /// CPUs to count on instead of those that the PMU names, for example those of one socket.
        #[serde(default)]
        cpus: Vec<u32>,
    },
    /// No counter: a CPU second of a task whose memory is all on the device is assumed to move
    /// this many GiB.
    Assumed {
        /// GiB per CPU second.
        gib_per_cpu_second: f64,
    },
}

impl CounterConfig {
    /// Whether it counts writes; slow memory of resctrl is counted when it is read.
    pub fn counts_writes(&self) -> bool {
        !matches!(self, Self::Resctrl { domains, .. } if domains.is_empty())
    }

    pub(super) fn check(&self, nodes: usize) -> Result<(), &'static str> {
        match self {
            Self::Resctrl { domains, .. } if domains.is_empty() && nodes != 1 => Err(
                "resctrl counts the slow memory of all nodes together: with several nodes, use \
                 another counter, or name domains",
            ),
            Self::Resctrl { domains, .. } if !domains.is_empty() && domains.len() != nodes => {
                Err("domains: resctrl needs one for each node")
            }
            Self::Bar {
                offset,
                bytes_per_count,
                ..
            } if offset % 8 != 0 || *offset >= 1 << 40 || *bytes_per_count == 0 => {
                Err("offset must be a multiple of 8 within the device, bytes_per_count above 0")
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
                    return Err("bytes_per_count must be above 0; writes need reads beside them");
                }
                let inside = |name: &String| !name.is_empty() && !name.contains('/');
                let inside = pmus.iter().flatten().all(inside);
                inside.then_some(()).ok_or("pmus must be names, without /")
            }
            Self::Assumed { gib_per_cpu_second }
                if !(*gib_per_cpu_second > 0.0 && gib_per_cpu_second.is_finite()) =>
            {
                Err("gib_per_cpu_second must be above 0")
            }
            _ => Ok(()),
        }
    }

    /// Its name in the configuration.
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
