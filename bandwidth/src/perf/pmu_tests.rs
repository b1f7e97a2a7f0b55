//! Tests of reading PMUs, on folders in the kernel's format.

use proptest::prelude::*;

use super::*;

/// A folder of PMUs: file names and contents.
struct Devices(tempfile::TempDir);

impl Devices {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(root)
    }

    fn open(&self, name: &str) -> Result<Pmu, PmuError> {
        Pmu::open(self.0.path(), name)
    }
}

/// The format of drivers/perf/cxl_pmu.c.
const CXL: [(&str, &str); 8] = [
    ("type", "29\n"),
    ("cpumask", "3\n"),
    ("format/vid", "config:48-63\n"),
    ("format/gid", "config:32-47\n"),
    ("format/mask", "config:0-31\n"),
    ("format/threshold", "config1:0-15\n"),
    ("events/s2m_drs_memdata", "config=0x1e98002500000001\n"),
    ("events/m2s_rwd_memwr", "config=0x1e98002100000002\n"),
];

#[test]
fn events_of_a_cxl_pmu_are_found_by_name_and_by_terms() {
    let devices = Devices::new("cxl_pmu_mem0.0", &CXL);
    let pmu = devices.open("cxl_pmu_mem0.0").unwrap();
    assert_eq!(pmu.cpus, [3]);
    let named = pmu.event("s2m_drs_memdata").unwrap();
    assert_eq!((named.kind, named.words[0]), (29, 0x1e98_0025_0000_0001));
    assert_eq!(named.bytes, None);
    let terms = pmu.event("vid=0x1e98,gid=0x21,mask=0x6").unwrap();
    assert_eq!(terms.words, [0x1e98_0021_0000_0006, 0, 0, 0]);
    let both = pmu.event("m2s_rwd_memwr,threshold=2,mask=6").unwrap();
    assert_eq!(both.words, [0x1e98_0021_0000_0006, 2, 0, 0]);
    assert!(pmu.has("s2m_drs_memdata") && pmu.has("gid") && !pmu.has("ddr_casrd"));
}

#[test]
fn what_a_pmu_does_not_have_is_named() {
    let devices = Devices::new("cxl_pmu_mem0.0", &CXL);
    let pmu = devices.open("cxl_pmu_mem0.0").unwrap();
    let said = pmu.event("ddr_casrd").unwrap_err().to_string();
    assert!(
        said.contains("ddr_casrd") && said.contains("m2s_rwd_memwr"),
        "{said}"
    );
    let said = pmu.event("../type").unwrap_err().to_string();
    assert!(said.contains("../type"), "{said}");
    for wrong in ["gid=0x10000", "gid=", "gid=x", "gid=-1", "mask=0x100000000"] {
        let refused = matches!(pmu.event(wrong), Err(PmuError::Value { .. }));
        assert!(refused, "{wrong}");
    }
    assert_eq!(
        devices.open("nobody").unwrap_err(),
        PmuError::None("nobody".into())
    );
}

#[test]
fn scales_and_units_become_bytes() {
    let devices = Devices::new(
        "uncore_imc_0",
        &[
            ("type", "17"),
            ("format/event", "config:0-7"),
            ("format/umask", "config:8-15"),
            ("events/cas_count_read", "event=0x04,umask=0x03"),
            ("events/cas_count_read.scale", "6.103515625e-5"),
            ("events/cas_count_read.unit", "MiB"),
            ("events/clockticks", "event=0xff"),
            ("events/clockticks.scale", "1e-9"),
            ("events/clockticks.unit", "Joules"),
        ],
    );
    let pmu = devices.open("uncore_imc_0").unwrap();
    let read = pmu.event("cas_count_read").unwrap();
    assert_eq!((read.words[0], read.bytes), (0x304, Some(64.0)));
    assert_eq!(pmu.event("clockticks").unwrap().bytes, None);
}

#[test]
fn a_value_that_is_left_open_has_to_be_given() {
    let files = [
        ("type", "4"),
        ("format/event", "config:0-7,32-35"),
        ("format/ldlat", "config1:0-15"),
        ("events/mem-loads", "event=0x1cd,ldlat=?"),
    ];
    let devices = Devices::new("cpu", &files);
    let pmu = devices.open("cpu").unwrap();
    let left = pmu.event("mem-loads").unwrap_err();
    assert_eq!(
        left,
        PmuError::Value {
            term: "ldlat".into()
        }
    );
    // The event's bits are in two parts.
    let event = pmu.event("mem-loads,ldlat=30").unwrap();
    assert_eq!(event.words, [0x1_0000_00cd, 30, 0, 0]);
}

#[test]
fn this_machines_software_events_have_names() {
    let pmu = Pmu::open(Path::new(DEVICES), "software").unwrap();
    assert_eq!(pmu.event("page-faults").unwrap().words, [2, 0, 0, 0]);
    assert!(pmu.event("page-vaults").is_err());
}

proptest! {
    #[test]
    fn nothing_that_sysfs_may_say_ends_the_program(
        format in "[ -~\\n]{0,40}", event in "[ -~\\n]{0,40}", cpus in "[0-9,-]{0,30}",
        asked in "[ -~]{0,40}",
    ) {
        let files = [
            ("type", "1"), ("cpumask", cpus.as_str()), ("format/x", format.as_str()),
            ("events/e", event.as_str()), ("events/e.scale", event.as_str()),
            ("events/e.unit", "MiB"),
        ];
        let devices = Devices::new("p", &files);
        let pmu = devices.open("p").unwrap();
        for text in ["e", "x", "x=0xffffffffffffffff", asked.as_str()] {
            let _ = pmu.event(text);
        }
    }

    #[test]
    fn a_value_is_found_again_in_its_bits(value in any::<u64>(), low in 0u32..60, split in 1u32..4) {
        // Two parts: `split` bits from `low` on, and the highest bit.
        let high = low + split - 1;
        let format = format!("config1:{low}-{high},63");
        let devices = Devices::new("p", &[("type", "1"), ("format/x", &format)]);
        let pmu = devices.open("p").unwrap();
        let fits = value & ((1 << (split + 1)) - 1);
        let words = pmu.event(&format!("x={fits}")).unwrap().words;
        let first = words[1] >> low & ((1 << split) - 1);
        prop_assert_eq!(first | (words[1] >> 63) << split, fits);
        prop_assert_eq!(words[1].count_ones(), fits.count_ones());
        prop_assert_eq!((words[0], words[2], words[3]), (0, 0, 0));
        let too_large = format!("x={:#x}", 1u64 << (split + 1));
        prop_assert!(pmu.event(&too_large).is_err());
    }
}
