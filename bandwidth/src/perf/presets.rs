//! Presets: the default events that count a device's traffic, and those that sample its accesses.
//!
//! Sources: drivers/perf/cxl_pmu.c and Documentation/admin-guide/perf/cxl.rst of Linux (names of
//! CXL events; data is 64 bytes a message: CXL 3.1, tables 3-35 to 3-50); tools/perf/pmu-events/
//! arch/x86/{sapphirerapids,graniterapids,sierraforest}/uncore-cxl.json; the scales of uncore
//! events in sysfs; perf-mem(1) and arch/x86/events/intel/ds.c (mem-loads, mem-loads-aux);
//! perf-amd-ibs(1); tools/perf/pmu-events/arch/x86/amdzen4 (fills from extension memory).

use serde::Deserialize;

use super::pmu::Pmu;

/// Events that count reads and events that count writes; their counts are added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultEvents {
    pub reads: Vec<String>,
    pub writes: Vec<String>,
}

/// Names of events of CXL devices in order of preference. A device counts data that it sends
/// (`s2m_drs`: one message for each line), read requests, or bursts of its DRAM.
const READS: [&[&str]; 4] = [
    &["s2m_drs_memdata"],
    &["m2s_req_memrd", "m2s_req_memrddata"],
    &["m2s_req_memrd"],
    &["ddr_casrd"],
];
const WRITES: [&[&str]; 3] = [
    &["m2s_rwd_memwr", "m2s_rwd_memwrptl"],
    &["m2s_rwd_memwr"],
    &["ddr_caswr"],
];
/// What memory controllers have: DRAM of the processor, which is no CXL memory.
const DRAM: [&str; 2] = ["cas_count_read", "data_reads"];

/// Intel processors with PMUs of their CXL ports: family 6, these models (tools/perf/pmu-events/
/// arch/x86/mapfile.csv: Sapphire Rapids, Emerald Rapids, Granite Rapids, Sierra Forest).
const CXL_PORT_MODELS: [u32; 5] = [0x8f, 0xcf, 0xad, 0xae, 0xaf];
/// Lines received from CXL memory, and lines sent to it (uncore-cxl.json of these models:
/// `UNC_CXLCM_RxC_PACK_BUF_INSERTS.MEM_DATA`, `UNC_CXLDP_TxC_AGF_INSERTS.M2S_DATA`). Linux names
/// the PMUs from 6.11 on (arch/x86/events/intel/uncore_snbep.c).
const CXL_PORTS: [(&str, &str); 2] = [
    ("uncore_cxlcm", "event=0x41,umask=0x10"),
    ("uncore_cxldp", "event=0x02,umask=0x20"),
];

/// A processor's vendor, family and model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    pub vendor: String,
    pub family: u32,
    pub model: u32,
}

impl Cpu {
    /// From the text of /proc/cpuinfo.
    pub fn parse(text: &str) -> Self {
        let value = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            let mut named = lines.filter(|(key, _)| key.trim() == name);
            named.next().map(|(_, value)| value.trim().to_owned())
        };
        let number = |name| value(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        Self {
            vendor: value("vendor_id").unwrap_or_default(),
            family: number("cpu family"),
            model: number("model"),
        }
    }

    /// This machine's.
    pub fn here() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
    }

    fn has_cxl_ports(&self) -> bool {
        self.vendor == "GenuineIntel" && self.family == 6 && CXL_PORT_MODELS.contains(&self.model)
    }
}

/// The default events of a PMU that count a CXL device's traffic.
///
/// # Errors
/// None are known, or the PMU counts something else, as a message.
pub fn default_events(pmu: &Pmu, cpu: &Cpu) -> Result<DefaultEvents, String> {
    let name = pmu.name();
    if let Some((prefix, event)) = CXL_PORTS
        .iter()
        .find(|(prefix, _)| name.starts_with(prefix))
    {
        if !cpu.has_cxl_ports() {
            return Err(format!(
                "{name}: its events are not known on this processor ({} family {} model {:#x}): \
                 name some in `reads`",
                cpu.vendor, cpu.family, cpu.model
            ));
        }
        let events = vec![(*event).to_owned()];
        return Ok(match *prefix == CXL_PORTS[0].0 {
            true => DefaultEvents {
                reads: events,
                writes: Vec::new(),
            },
            false => DefaultEvents {
                reads: Vec::new(),
                writes: events,
            },
        });
    }
    let first = |choices: &[&[&str]]| {
        let has = |names: &&&[&str]| names.iter().all(|name| pmu.has(name));
        let names = choices.iter().find(has)?;
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    };
    match first(&READS) {
        Some(reads) => Ok(DefaultEvents {
            reads,
            writes: first(&WRITES).unwrap_or_default(),
        }),
        None if DRAM.iter().any(|event| pmu.has(event)) => Err(format!(
            "{name} counts the traffic of DRAM and not of a CXL device: name events in `reads` if \
             that is wanted"
        )),
        None => Err(format!(
            "{name} has no event that is known to count reads: name some in `reads`"
        )),
    }
}

/// The operation of a sampled event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// A line is read.
    #[default]
    Load,
    /// A line is read and later written.
    Store,
}

/// How a sample is located on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// By its physical address, unless a cache had the line.
    #[default]
    Address,
    /// By the data source: CXL memory. The address identifies the node.
    Source,
    /// The event counts nothing else.
    Event,
}

/// A sampled event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampledEvent {
    pub pmu: String,
    /// In the syntax of [`Pmu::event`].
    pub event: String,
    #[serde(default)]
    pub op: Op,
    #[serde(default)]
    pub place: Place,
    /// The precision of the sampled instruction (`precise_ip`, 0 to 3).
    #[serde(default)]
    pub precise: u8,
    /// An event that must be the leader of its group, if the PMU has it.
    #[serde(alias = "beside")]
    pub leader: Option<String>,
}

impl SampledEvent {
    fn new(pmu: &str, event: &str, op: Op, place: Place, precise: u8) -> Self {
        Self {
            pmu: pmu.to_owned(),
            event: event.to_owned(),
            op,
            place,
            precise,
            leader: None,
        }
    }
}

/// A source of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleKind {
    /// Intel: loads with a longer latency than a cache, and stores, with their addresses.
    Pebs,
    /// AMD: operations with their data source (only cache misses where the processor supports
    /// that).
    Ibs,
    /// AMD from Zen 4 on: lines from extension memory, the kernel's name for CXL memory there.
    AmdFills,
    /// Page faults of the kernel, by address. For trials without a PMU: a page has one first touch
    /// only.
    PageFaults,
}

impl SampleKind {
    pub const ALL: [Self; 4] = [Self::Pebs, Self::Ibs, Self::AmdFills, Self::PageFaults];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pebs => "pebs",
            Self::Ibs => "ibs",
            Self::AmdFills => "amd-fills",
            Self::PageFaults => "page-faults",
        }
    }

    /// The sampled events, given the machine's PMUs; `None` if a PMU is missing.
    pub fn events(self, open: impl Fn(&str) -> Option<Pmu>) -> Option<Vec<SampledEvent>> {
        let event = SampledEvent::new;
        match self {
            Self::Pebs => {
                // Hybrid processors have another name for the PMU of their large cores.
                let names = ["cpu", "cpu_core"];
                let has = |name: &&&str| open(name).is_some_and(|pmu| pmu.has("mem-loads"));
                let pmu = names.iter().find(has)?;
                let mut loads = event(pmu, "mem-loads,ldlat=64", Op::Load, Place::Address, 2);
                loads.leader = Some("mem-loads-aux".to_owned());
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
                // Intel's `cpu` has the same terms for other events.
                let amd = open("ibs_op").is_some();
                let cpu = open("cpu").filter(|pmu| amd && pmu.has("umask"));
                let text = "event=0x44,umask=0x80";
                cpu.map(|_| vec![event("cpu", text, Op::Load, Place::Event, 0)])
            }
            Self::PageFaults => {
                // Unlike `page-faults`, these are counted when the page exists and has a physical
                // address.
                let (op, place) = (Op::Load, Place::Address);
                Some(vec![event("software", "minor-faults", op, place, 0)])
            }
        }
    }

    /// Events for each sample; prime, so that no loop is in step with it. Faults are rare.
    pub fn period(self) -> u64 {
        match self {
            Self::PageFaults => 1,
            // The hardware counts in multiples of 16.
            Self::Ibs => 100_003 / 16 * 16,
            _ => 10_007,
        }
    }
}
