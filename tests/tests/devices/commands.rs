//! Suspend and resume of devices: recorded on a stock kernel, analysed, replayed, switched.

use std::fs;
use std::path::Path;

use dormouse_tests::{Said, dormouse, guest};
use serde_json::Value;

/// A trace of a stock kernel's `pm_test devices` in a virtual machine.
const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../devices/tests/data/trace.txt"
);

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

fn json(said: &Said) -> Value {
    assert_eq!(said.code, 0, "{}", said.all());
    said.report()
}

fn sum_of(phases: &Value, key: &str) -> u64 {
    let phases = phases.as_array().expect("phases");
    phases.iter().filter_map(|phase| phase[key].as_u64()).sum()
}

#[test]
fn a_trace_of_a_stock_kernel_is_analysed_to_its_end() {
    let answer = json(&dormouse(&[
        "devices", "analyze", TRACE, "--json", "--strict",
    ]));
    let analysis = &answer["analysis"];
    assert_eq!(analysis["complete"], true);
    assert!(analysis["devices"].as_u64().unwrap() > 100, "{analysis}");
    let steps = analysis["totals"]["steps"].as_array().unwrap();
    for wanted in [
        "freeze_processes",
        "dpm_suspend",
        "dpm_resume",
        "thaw_processes",
    ] {
        assert!(steps.iter().any(|step| step["name"] == wanted), "{wanted}");
    }
    // Whatever ran was within the passes, and the bound is below what they took.
    let phases = &analysis["phases"];
    assert!(sum_of(phases, "bound_ns") <= sum_of(phases, "duration_ns"));
    assert!(sum_of(phases, "callbacks") > 100);
}

#[test]
fn the_page_of_an_analysis_has_its_trace_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let said = dormouse(&["devices", "analyze", TRACE, "-o", text(&page)]);
    assert_eq!(said.code, 0, "{}", said.all());
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("<h2>Schedules</h2>") && html.contains("dpm_suspend"));
    let events: Value =
        serde_json::from_slice(&fs::read(folder.path().join("page.trace.json")).unwrap()).unwrap();
    assert!(events["traceEvents"].as_array().unwrap().len() > 200);
}

#[test]
fn no_schedule_is_predicted_to_beat_the_bound_on_a_real_graph() {
    for cpus in ["1", "2", "8"] {
        let words = ["devices", "simulate", TRACE, "--cpus", cpus, "--json"];
        let answer = json(&dormouse(&words));
        for phase in answer["simulation"]["phases"].as_array().unwrap() {
            let path = phase["bound"]["critical_path_ns"].as_u64().unwrap();
            let work = phase["bound"]["work_per_cpu_ns"].as_u64().unwrap();
            for prediction in phase["predictions"].as_array().unwrap() {
                let ns = prediction["makespan_ns"].as_u64().unwrap();
                assert!(ns >= path.max(work), "{cpus}: {prediction}");
            }
        }
    }
}

#[test]
fn a_recording_that_was_saved_says_the_same_as_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("recording.json");
    let words = [
        "devices",
        "analyze",
        TRACE,
        "--save",
        text(&saved),
        "--json",
    ];
    let first = json(&dormouse(&words));
    let second = json(&dormouse(&["devices", "analyze", text(&saved), "--json"]));
    assert_eq!(first["analysis"], second["analysis"]);
    assert!(folder.path().join("report.html").exists());
}

#[test]
fn what_is_no_trace_is_refused_with_what_to_do_and_a_damaged_one_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x");
    fs::write(&file, "nothing of the kind\n").unwrap();
    let said = dormouse(&["devices", "analyze", text(&file)]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(
        said.stderr.contains("dormouse devices record"),
        "{}",
        said.all()
    );

    let whole = fs::read_to_string(TRACE).unwrap();
    let damaged = whole.replacen("dpm_suspend[2] begin", "dpm_suspend[2] beg", 1);
    let line = 1 + damaged
        .lines()
        .position(|line| line.ends_with("] beg"))
        .expect("it was damaged");
    fs::write(&file, damaged).unwrap();
    let said = dormouse(&["devices", "analyze", text(&file), "--strict"]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(
        said.stderr.contains(&format!("line {line}:")),
        "{}",
        said.all()
    );
    assert_eq!(dormouse(&["devices", "analyze", text(&file)]).code, 0);
}

#[test]
fn switches_are_set_and_put_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let (sys, state) = (folder.path().join("sys"), folder.path().join("state.json"));
    let switch = sys.join("power/sync_on_suspend");
    fs::create_dir_all(sys.join("devices")).unwrap();
    fs::create_dir_all(switch.parent().unwrap()).unwrap();
    fs::write(&switch, "1\n").unwrap();
    let place = ["--sys", text(&sys), "--state", text(&state)];
    let off = ["devices", "apply", "--sync-on-suspend", "off"];

    let said = dormouse(&[&off[..], &place, &["--dry-run"]].concat());
    assert_eq!(said.code, 0, "{}", said.all());
    assert!(said.stdout.contains("1 → 0"), "{}", said.all());
    assert_eq!(fs::read_to_string(&switch).unwrap(), "1\n");

    let said = dormouse(&[&off[..], &place, &["--snippet"]].concat());
    assert!(
        said.stdout
            .contains("w /sys/power/sync_on_suspend - - - - 0"),
        "{}",
        said.all()
    );
    assert_eq!(fs::read_to_string(&switch).unwrap(), "0");

    let said = dormouse(&[&["devices", "apply", "--undo"][..], &place].concat());
    assert_eq!(said.code, 0, "{}", said.all());
    assert_eq!(fs::read_to_string(&switch).unwrap(), "1");
    let said = dormouse(&[&["devices", "apply", "--pm-async", "off"][..], &place].concat());
    assert_eq!(said.code, 3, "no such switch: {}", said.all());
}

/// The cloud flavour has no pm_test, so this one takes the generic kernel.
#[test]
fn a_stock_kernels_devices_are_recorded_analysed_and_switched_and_everything_is_put_back() {
    let said = guest(
        "devices",
        &["--flavour", "generic", "--dram", "1G", "--cxl", "2G"],
        "set -e; \
         state() { cat /sys/power/pm_test /sys/power/mem_sleep /sys/power/sync_on_suspend \
             /sys/module/suspend/parameters/pm_test_delay; ls /sys/kernel/tracing | head -1; }; \
         state > /tmp/before; \
         dormouse devices record /tmp/first --test devices --cycles 2 --json; \
         state > /tmp/after; [ \"$(cat /tmp/before)\" = \"$(cat /tmp/after)\" ]; \
         dormouse devices analyze /tmp/first --json | head -c 500000; \
         dormouse devices simulate /tmp/first --json | head -c 300000; \
         dormouse devices apply --recording /tmp/first --async-threshold 1ms \
             --sync-on-suspend off --json > /tmp/applied; \
         cat /sys/power/sync_on_suspend; \
         dormouse devices record /tmp/second --test devices --json > /dev/null; \
         dormouse devices apply --undo --json > /dev/null; \
         state > /tmp/after; [ \"$(cat /tmp/before)\" = \"$(cat /tmp/after)\" ] && echo as before",
    );
    let lines: Vec<&str> = said.lines().collect();
    let [recorded, analysed, simulated, switched, last] = lines.as_slice() else {
        panic!("five lines: {said}")
    };
    let object = |line: &str| -> Value { serde_json::from_str(line).expect("one JSON object") };
    let recorded = object(recorded);
    assert_eq!(recorded["cycles"], 2);
    assert!(recorded["devices"].as_u64().unwrap() > 100, "{recorded}");
    let analysis = &object(analysed)["analysis"];
    assert_eq!(analysis["complete"], true);
    let phases = analysis["phases"].as_array().unwrap();
    let suspend = phases.iter().find(|phase| phase["phase"] == "suspend");
    let suspend = suspend.expect("devices were suspended");
    assert!(suspend["callbacks"].as_u64().unwrap() > 10, "{suspend}");
    // Scheduling events were there.
    assert!(suspend["idle_share"].is_number(), "{suspend}");
    assert!(object(simulated)["simulation"]["totals"].is_array());
    assert_eq!((*switched, *last), ("0", "as before"));
}
