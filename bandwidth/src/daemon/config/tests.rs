//! Tests of the configuration.

use super::*;
use crate::curve::GIB;

const MINIMAL: &str = "nodes = [1]\ncgroups = [\"a.slice\"]\nthreshold_gib_s = 4.0\n\
    [counter]\nkind = \"assumed\"\ngib_per_cpu_second = 3.0\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("x.toml"), text)
}

#[test]
fn a_minimal_configuration_is_enough() {
    let config = parse(MINIMAL).unwrap();
    assert_eq!(config.devices[0].threshold().unwrap(), 4.0 * GIB);
    assert_eq!(config.interval_ms, 50);
    assert_eq!(
        (config.enforce, config.idle),
        (Enforcement::Quota, IdleCpus::Hold)
    );
    let ext = MINIMAL.replace(
        "[counter]",
        "enforce = \"sched-ext\"\nidle = \"use\"\n[counter]",
    );
    let ext = parse(&ext).unwrap();
    assert_eq!(
        (ext.enforce, ext.idle),
        (Enforcement::SchedExt, IdleCpus::Use)
    );
    let curve = MINIMAL.replace("threshold_gib_s = 4.0", "curve = \"linear-knee\"");
    assert!((parse(&curve).unwrap().devices[0].threshold().unwrap() / GIB - 12.8).abs() < 1e-9);
}

#[test]
fn a_latency_does_for_a_threshold_and_a_threshold_bounds_it() {
    let latency = MINIMAL.replace("threshold_gib_s = 4.0", "max_latency_ns = 600");
    let config = parse(&latency).unwrap();
    assert_eq!(config.devices[0].max_latency_ns, Some(600.0));
    assert_eq!(
        config.devices[0].threshold().unwrap(),
        config.devices[0].max_gib_s * GIB
    );
    assert!(!config.devices[0].has_threshold());
    let both = MINIMAL.replace("[counter]", "max_latency_ns = 600\n[counter]");
    let both = parse(&both).unwrap();
    assert_eq!(both.devices[0].threshold().unwrap(), 4.0 * GIB);
    assert!(both.devices[0].has_threshold());
}

#[test]
fn old_names_of_settings_are_accepted() {
    let aliases = "most_latency_ns = 600\nmost_gib_s = 9.0\n[counter]";
    let config = parse(&MINIMAL.replace("[counter]", aliases)).unwrap();
    assert_eq!(config.devices[0].max_latency_ns, Some(600.0));
    assert_eq!(config.devices[0].max_gib_s, 9.0);
}

#[test]
fn several_counters_and_samples_can_be_named() {
    let more = "[samples]\nperiod = 5\n\
        events = [{ pmu = \"cpu\", event = \"event=0x1\", op = \"store\", precise = 2 }]\n\
        [[fallback]]\nkind = \"perf\"\npmus = [[\"cxl_pmu_mem0.0\", \"cxl_pmu_mem1.0\"]]\n\
        [counter]";
    let config = parse(&MINIMAL.replace("[counter]", more)).unwrap();
    assert_eq!(config.devices[0].counter.kind(), "assumed");
    assert_eq!(config.devices[0].fallback[0].kind(), "perf");
    let samples = config.samples.unwrap();
    assert_eq!(samples.kind, None);
    assert_eq!(samples.events[0].op, crate::perf::presets::Op::Store);
}

#[test]
fn a_device_may_sample_itself() {
    let device = |more: &str| {
        let table = format!("[samples]\nkind = \"device\"\n{more}\n[counter]");
        parse(&MINIMAL.replace("[counter]", &table)).map_err(|error| error.to_string())
    };
    let samples = device("path = \"/x\"").unwrap().samples.unwrap();
    assert_eq!(samples.kind.and_then(SamplesKind::perf), None);
    for (more, why) in [
        ("", "needs a path"),
        ("path = \"/x\"\nperiod = 7", "no period"),
        ("path = \"/x\"\noffset = 7", "multiple of 8"),
    ] {
        let said = device(more).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    let other = "[samples]\nkind = \"ibs\"\npath = \"/x\"\n[counter]";
    let said = parse(&MINIMAL.replace("[counter]", other)).unwrap_err();
    assert!(said.to_string().contains("belong to kind"), "{said}");
}

#[test]
fn the_example_that_comes_with_the_unit_is_one() {
    let text = include_str!("../../../systemd/bandwidth.toml");
    let config = parse(text).unwrap();
    assert!(matches!(
        config.devices[0].counter,
        CounterConfig::Text { .. }
    ));
}

#[test]
fn an_invalid_setting_is_named() {
    let refused = |from: &str, to: &str, why: &str| {
        let said = parse(&MINIMAL.replace(from, to)).unwrap_err().to_string();
        assert!(said.contains("x.toml") && said.contains(why), "{said}");
    };
    refused("[1]", "[]", "nodes");
    refused("a.slice", "/a", "relative");
    refused("a.slice", "a/../..", "relative");
    refused("= 4.0", "= -4.0", "threshold");
    refused("threshold_gib_s = 4.0", "", "max_latency_ns is needed");
    refused(
        "threshold_gib_s = 4.0",
        "max_latency_ns = 0",
        "max_latency_ns",
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
        "kind = \"resctrl\"\ndomains = [\"/a\", \"/b\"]\n",
        "one for each",
    );
    refused("[counter]", "interval_ms = 1\n[counter]", "interval_ms");
    let perf = |more: &str| format!("kind = \"perf\"\n{more}\n");
    refused(assumed, &perf("pmus = []"), "for each node");
    refused(assumed, &perf("pmus = [[\"../x\"]]"), "without /");
    refused(
        assumed,
        &perf("pmus = [[\"x\"]]\nwrites = [\"w\"]"),
        "need reads",
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
        "[[fallback]]\nkind = \"resctrl\"\ndomains = [\"/a\", \"/b\"]\n[counter]",
        "one for each",
    );
}

const DEVICES: &str = "cgroups = [\"a\"]\n\
    [[device]]\nname = \"near\"\nnodes = [2, 3]\nthreshold_gib_s = 4.0\n\
    counter = { kind = \"text\", path = \"/near\" }\n\
    [[device]]\nnodes = [3]\nthreshold_gib_s = 2.0\n\
    counter = { kind = \"text\", path = \"/far\" }\n\
    [[device]]\nname = \"far socket\"\nnodes = [3]\ncpus = [4, 5]\nthreshold_gib_s = 1.0\n\
    counter = { kind = \"text\", path = \"/path\" }\n";

#[test]
fn several_devices_have_thresholds_and_legs_of_their_own() {
    let config = parse(DEVICES).unwrap();
    assert_eq!(config.nodes, [2, 3]);
    assert_eq!(config.thresholds().unwrap(), [4.0 * GIB, 2.0 * GIB, GIB]);
    assert_eq!(config.devices[1].name, "device1");
    let legs = config.legs();
    let legs: Vec<_> = legs
        .iter()
        .map(|leg| (leg.device, leg.node, leg.node_at, leg.in_total))
        .collect();
    // Node 3 is interleaved; the path's traffic is part of that of the devices.
    let expected = [
        (0, 2, 0, true),
        (0, 3, 1, true),
        (1, 3, 1, true),
        (2, 3, 1, false),
    ];
    assert_eq!(legs, expected);
    let paths = DEVICES
        .replace("nodes = [2, 3]\n", "nodes = [2]\n")
        .replace("nodes = [3]\nthr", "nodes = [4]\nthr");
    let path = &parse(&paths).unwrap().legs()[2];
    assert!(path.in_total, "no device counts all of node 3");
}

#[test]
fn an_invalid_device_class_or_unit_is_named() {
    let refused = |text: &str, why: &str| {
        let said = parse(text).unwrap_err().to_string();
        assert!(said.contains("x.toml") && said.contains(why), "{said}");
    };
    refused(&format!("nodes = [1]\n{DEVICES}"), "belong into each");
    refused(&DEVICES.replace("\"far socket\"", "\"near\""), "same name");
    refused(
        &DEVICES.replace("threshold_gib_s = 2.0\n", ""),
        "max_latency_ns is needed",
    );
    refused(
        &DEVICES.replace("kind = \"text\", path = \"/far\"", "kind = \"resctrl\""),
        "of all devices together",
    );
    let ring = "[samples]\nkind = \"device\"\npath = \"/x\"\n[[device]]\nname = \"near\"";
    refused(
        &DEVICES.replace("[[device]]\nname = \"near\"", ring),
        "of one device",
    );
    let with = |more: &str| MINIMAL.replace("[counter]", &format!("{more}\n[counter]"));
    refused(&with("users = \"unit\"\nenforce = \"sched-ext\""), "quota");
    refused(
        &with("users = \"unit\"\n[samples]\nkind = \"device\"\npath = \"/x\""),
        "ring",
    );
    refused(&with("[kubernetes]"), "needs users");
    refused(
        &with("[[class]]\nname = \"\"\nmax_latency_ns = 1.0"),
        "name the class",
    );
    refused(
        &with("[[class]]\nname = \"gold\"\nmax_latency_ns = 0.0"),
        "above 0",
    );
    refused(
        &with("[[class]]\nname = \"gold\"\nmax_latency_ns = 1.0\ncgroups = [\"/a\"]"),
        "relative",
    );
    refused(&with("[tiering]\nweight = 0.0"), "weight");
    let pods = with(
        "users = \"unit\"\n[kubernetes]\n[tiering]\n[[class]]\nname = \"gold\"\nmax_latency_ns = 450.0",
    );
    let config = parse(&pods).unwrap();
    assert!(
        config
            .kubernetes
            .unwrap()
            .annotations
            .to_string_lossy()
            .contains("{uid}")
    );
    assert!(config.tiering.unwrap().limit);
}
