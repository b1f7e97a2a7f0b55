//! Configuration of samples of accesses.

use std::path::PathBuf;

use serde::Deserialize;

use crate::perf::presets::{SampleKind, SampledEvent};

/// The source of samples of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplesKind {
    /// Processor event-based sampling (Intel), through perf.
    Pebs,
    /// Instruction-based sampling (AMD), through perf.
    Ibs,
    /// Cache lines filled from CXL memory (AMD from Zen 4 on), through perf.
    AmdFills,
    /// Page faults, through perf.
    PageFaults,
    /// The device itself, into a ring in its memory.
    Device,
    /// A monitoring group of the processor for each user (AMD), which counts its reads of slow
    /// memory.
    Resctrl,
}

impl SamplesKind {
    /// The kind of perf samples; `None`: not from perf.
    pub fn perf(self) -> Option<SampleKind> {
        match self {
            Self::Pebs => Some(SampleKind::Pebs),
            Self::Ibs => Some(SampleKind::Ibs),
            Self::AmdFills => Some(SampleKind::AmdFills),
            Self::PageFaults => Some(SampleKind::PageFaults),
            Self::Device | Self::Resctrl => None,
        }
    }
}

/// Samples of accesses to the device.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplesConfig {
    /// The source; none: no samples.
    pub kind: Option<SamplesKind>,
    /// One in this many events is sampled.
    pub period: Option<u64>,
    /// Events instead of the defaults of the kind.
    #[serde(default)]
    pub events: Vec<SampledEvent>,
    /// For `device`: the `resourceN` in sysfs of the device's memory, and the offset of the ring.
    pub path: Option<PathBuf>,
    /// Offset of the ring, in bytes.
    pub offset: Option<u64>,
}

impl SamplesConfig {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.kind.is_none() && self.events.is_empty() {
            return Err("samples: name a kind or events");
        }
        if self.kind == Some(SamplesKind::Device) {
            if self.path.is_none() || self.period.is_some() || !self.events.is_empty() {
                return Err(
                    "samples: kind \"device\" needs a path, and takes no period and no events",
                );
            }
            if self.offset.is_some_and(|at| at % 8 != 0 || at >= 1 << 40) {
                return Err("samples: offset must be a multiple of 8 within the device");
            }
        } else if self.kind == Some(SamplesKind::Resctrl) {
            let plain = self.period.is_none() && self.events.is_empty() && self.offset.is_none();
            if !plain {
                return Err("samples: kind \"resctrl\" takes a path and nothing else");
            }
        } else if self.path.is_some() || self.offset.is_some() {
            return Err("samples: path and offset belong to kind \"device\"");
        }
        if self.period == Some(0) {
            return Err("samples: period must be above 0");
        }
        if self.events.iter().any(|event| event.pmu.contains('/')) {
            return Err("samples: a pmu must be a name, without /");
        }
        if self.events.iter().any(|event| event.precise > 3) {
            return Err("samples: precise must be 0 to 3");
        }
        Ok(())
    }
}
