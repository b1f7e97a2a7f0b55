//! What is usual: the events that count a device's traffic, and those that sample who makes it.
//!
//! Sources: drivers/perf/cxl_pmu.c and Documentation/admin-guide/perf/cxl.rst of Linux (names of
//! CXL events; data is 64 bytes a message: CXL 3.1, tables 3-35 to 3-50); the uncore events' own
//! scales in sysfs; perf-mem(1) and arch/x86/events/intel/ds.c (mem-loads, mem-loads-aux);
//! perf-amd-ibs(1); tools/perf/pmu-events/arch/x86/amdzen4 (fills from extension memory).

use serde::Deserialize;

use super::pmu::Pmu;

/// Events that count reads and such that count writes; each one's counts are added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usual {
    pub reads: Vec<String>,
    pub writes: Vec<String>,
}

/// Names of events, the first ones wherever a device has them. A CXL device counts data that it
/// sends (`s2m_drs`: one message, one line), requests to read, or its DRAM's bursts.
const READS: [&[&str]; 6] = [
    &["s2m_drs_memdata"],
    &["m2s_req_memrd", "m2s_req_memrddata"],
    &["m2s_req_memrd"],
    &["ddr_casrd"],
    &["cas_count_read"],
    &["data_reads"],
];
const WRITES: [&[&str]; 5] = [
    &["m2s_rwd_memwr", "m2s_rwd_memwrptl"],
    &["m2s_rwd_memwr"],
    &["ddr_caswr"],
    &["cas_count_write"],
    &["data_writes"],
];

/// What a PMU has of it; nothing if it has no event that is known to count reads.
pub fn usual(pmu: &Pmu) -> Option<Usual> {
    let first = |choices: &[&[&str]]| {
        let has = |names: &&&[&str]| names.iter().all(|name| pmu.has(name));
        let names = choices.iter().find(has)?;
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    };
    Some(Usual {
        reads: first(&READS)?,
        writes: first(&WRITES).unwrap_or_default(),
    })
}

/// What a sampled event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// A line is read.
    #[default]
    Load,
    /// A line is read, and written later.
    Store,
}

/// How it is known that a sample is of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// By its physical address, unless a cache had the line.
    #[default]
    Address,
    /// The processor says that the line came from CXL memory; by its address from which node.
    Source,
    /// The event counts nothing else.
    Event,
}

/// An event that is sampled.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampledEvent {
    pub pmu: String,
    /// As [`Pmu::event`] takes it.
    pub event: String,
    #[serde(default)]
    pub op: Op,
    #[serde(default)]
    pub place: Place,
    /// How near the sampled instruction has to be (`precise_ip`, 0 to 3).
    #[serde(default)]
    pub precise: u8,
    /// An event that has to be counted beside it, where the PMU has it.
    pub beside: Option<String>,
}

impl SampledEvent {
    fn new(pmu: &str, event: &str, op: Op, place: Place, precise: u8) -> Self {
        Self {
            pmu: pmu.to_owned(),
            event: event.to_owned(),
            op,
            place,
            precise,
            beside: None,
        }
    }
}

/// How it is found out who uses the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleKind {
    /// Intel: loads that took longer than a cache does, and stores, with their addresses.
    Pebs,
    /// AMD: operations (where it can, only those that missed the caches) with their data's source.
    Ibs,
    /// AMD from Zen 4 on: lines that came from extension memory, as the kernel calls CXL's there.
    AmdFills,
    /// The kernel's own count of faults, by their address: for trying it out without a PMU, because
    /// a page is touched for the first time once only.
    PageFaults,
}

impl SampleKind {
    pub const ALL: [Self; 4] = [Self::Pebs, Self::Ibs, Self::AmdFills, Self::PageFaults];

    /// As the configuration names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pebs => "pebs",
            Self::Ibs => "ibs",
            Self::AmdFills => "amd-fills",
            Self::PageFaults => "page-faults",
        }
    }

    /// The events that it samples, on a machine whose PMUs are opened like this; nothing: it has
    /// not what is needed.
    pub fn events(self, open: impl Fn(&str) -> Option<Pmu>) -> Option<Vec<SampledEvent>> {
        let event = SampledEvent::new;
        match self {
            Self::Pebs => {
                // Hybrid processors name their large cores' PMU otherwise.
                let names = ["cpu", "cpu_core"];
                let has = |name: &&&str| open(name).is_some_and(|pmu| pmu.has("mem-loads"));
                let pmu = names.iter().find(has)?;
                let mut loads = event(pmu, "mem-loads,ldlat=64", Op::Load, Place::Address, 2);
                loads.beside = Some("mem-loads-aux".to_owned());
                let stores = event(pmu, "mem-stores", Op::Store, Place::Address, 2);
                Some(vec![loads, stores])
            }
            Self::Ibs => {
                let pmu = open("ibs_op")?;
                let mut terms = vec!["config=0"];
                for term in ["cnt_ctl", "l3missonly"] {
                    if pmu.has(term) {
                        terms.push(term);
                    }
                }
                let text = terms.join(",");
                Some(vec![event("ibs_op", &text, Op::Load, Place::Address, 0)])
            }
            Self::AmdFills => {
                // Intel's `cpu` has the same terms, and other events by them.
                let amd = open("ibs_op").is_some();
                let cpu = open("cpu").filter(|pmu| amd && pmu.has("umask"));
                let text = "event=0x44,umask=0x80";
                cpu.map(|_| vec![event("cpu", text, Op::Load, Place::Event, 0)])
            }
            Self::PageFaults => {
                // Unlike `page-faults`, these are counted when the page is there already, so that
                // it has a physical address.
                let (op, place) = (Op::Load, Place::Address);
                Some(vec![event("software", "minor-faults", op, place, 0)])
            }
        }
    }

    /// One sample of so many; prime, so that no loop hides from it. Faults are rare.
    pub fn period(self) -> u64 {
        match self {
            Self::PageFaults => 1,
            // A multiple of 16 is what the hardware counts.
            Self::Ibs => 100_003 / 16 * 16,
            _ => 10_007,
        }
    }
}
