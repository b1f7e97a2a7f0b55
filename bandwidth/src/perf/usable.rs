//! Which kinds of counters this machine supports, and why it does not support the others.

use std::fs;
use std::path::Path;

use super::pmu::{DEVICES, Pmu};
use super::presets::{Cpu, SampleKind, default_events};
use super::ring::Rings;

/// One kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usable {
    /// Its name in the configuration.
    pub kind: String,
    /// What was found, or why it is unusable.
    pub found: Result<String, String>,
}

/// PMUs of this machine whose default events count the traffic of CXL devices.
pub fn device_pmus(devices: &Path, cpu: &Cpu) -> Vec<String> {
    let names = fs::read_dir(devices).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let counts =
        |name: &String| Pmu::open(devices, name).is_ok_and(|pmu| default_events(&pmu, cpu).is_ok());
    let mut names: Vec<String> = names.filter(counts).collect();
    names.sort();
    names
}

/// All kinds that use perf.
pub fn kinds() -> Vec<Usable> {
    let devices = Path::new(DEVICES);
    let pmus = device_pmus(devices, &Cpu::here());
    let (cxl, ports): (Vec<String>, Vec<String>) = pmus
        .into_iter()
        .partition(|name| name.starts_with("cxl_pmu"));
    let found = |names: Vec<String>, none: &str| match names.is_empty() {
        true => Err(format!("{none}{}", why())),
        false => Ok(names.join(", ")),
    };
    let none = "no CXL device here shows a performance counter (Linux 6.6, CONFIG_CXL_PMU)";
    let mut kinds = vec![
        Usable {
            kind: "perf, of CXL devices".to_owned(),
            found: found(cxl, none),
        },
        Usable {
            kind: "perf, of CXL ports".to_owned(),
            found: found(
                ports,
                "no PMU here counts the traffic of a processor's CXL ports (Intel from Sapphire \
                 Rapids on, Linux 6.11)",
            ),
        },
    ];
    kinds.extend(SampleKind::ALL.map(|kind| Usable {
        kind: format!("samples: {}", kind.name()),
        found: sampled(devices, kind),
    }));
    kinds
}

/// Opens the events of a kind for a moment.
fn sampled(devices: &Path, kind: SampleKind) -> Result<String, String> {
    let Some(events) = kind.events(|name| Pmu::open(devices, name).ok()) else {
        return Err(format!("no PMU for it{}", why()));
    };
    for event in &events {
        Rings::open(devices, event, kind.period(), 4096)
            .map_err(|error| format!("{}/{}/: {error}{}", event.pmu, event.event, refused()))?;
    }
    let names = events
        .iter()
        .map(|event| format!("{}/{}/", event.pmu, event.event));
    Ok(names.collect::<Vec<_>>().join(", "))
}

/// Why a machine may have no PMU.
fn why() -> &'static str {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags"));
    let virtual_machine =
        flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    if virtual_machine {
        "; this is a virtual machine, and its host passes none on"
    } else {
        ""
    }
}

/// Another possible reason.
fn refused() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    match text.trim().parse::<i32>() {
        Ok(level) if level > 0 && !rustix::process::geteuid().is_root() => {
            format!(" (perf_event_paranoid is {level}: CAP_PERFMON is needed)")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_listed_with_a_result_or_a_reason() {
        let kinds = kinds();
        assert_eq!(kinds.len(), 2 + SampleKind::ALL.len());
        for kind in kinds {
            let said = kind.found.unwrap_or_else(|why| why);
            assert!(!said.is_empty(), "{}", kind.kind);
        }
    }

    #[test]
    fn pmus_are_found_by_what_they_count() {
        let root = tempfile::tempdir().unwrap();
        let pmus = [
            ("cxl_pmu_mem0.0", "s2m_drs_memdata"),
            ("cxl_pmu_mem1.0", "ddr_act"),
            ("uncore_imc_3", "cas_count_read"),
            ("uncore_cxlcm_0", "none"),
            ("uncore_cxldp_1", "none"),
            ("cpu", "cycles"),
        ];
        for (name, event) in pmus {
            let folder = root.path().join(name).join("events");
            fs::create_dir_all(&folder).unwrap();
            fs::write(root.path().join(name).join("type"), "9").unwrap();
            fs::write(folder.join(event), "config=1").unwrap();
        }
        let cpu = |model| Cpu {
            vendor: "GenuineIntel".to_owned(),
            family: 6,
            model,
        };
        // A memory controller counts DRAM.
        let expected = ["cxl_pmu_mem0.0", "uncore_cxlcm_0", "uncore_cxldp_1"];
        assert_eq!(device_pmus(root.path(), &cpu(0x8f)), expected);
        assert_eq!(device_pmus(root.path(), &cpu(0x6a)), ["cxl_pmu_mem0.0"]);
        assert!(device_pmus(Path::new("/nowhere"), &cpu(0x8f)).is_empty());
    }
}
