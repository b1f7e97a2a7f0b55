//! Promises of the analysis and of its page, on recordings whose answers are known.

use std::collections::BTreeMap;
use std::path::Path;

use dormouse_devices::analyze::{Analysis, Options, analyze, page, text};
use dormouse_devices::model::{
    Callback, Cycle, Device, DevicePhase, Graph, Link, Machine, PhaseSpan, Recording, RuntimePm,
};
use dormouse_devices::simulate::table::{table, variants};
use dormouse_devices::simulate::{Schedule, Setting};
use dormouse_report::Kind;

const MS: u64 = 1_000_000;

fn span(name: &str, begin_ms: u64, end_ms: u64) -> PhaseSpan {
    PhaseSpan {
        name: name.to_owned(),
        value: 0,
        begin_ns: begin_ms * MS,
        end_ns: end_ms * MS,
    }
}

fn callback(device: usize, phase: DevicePhase, begin_ms: u64, end_ms: u64) -> Callback {
    Callback {
        device,
        phase,
        begin_ns: begin_ms * MS,
        end_ns: end_ms * MS,
        level: "bus".to_owned(),
        thread: 1,
        busy_ns: Some(0),
        delayed_ns: 0,
        error: 0,
    }
}

/// A bus with a disk and a camera (30 ms each down, one after the other), a sensor that depends
/// on the camera, and a quick device that is async for nothing.
fn recording() -> Recording {
    let device = |name: &str, parent, is_async| Device {
        name: name.to_owned(),
        parent,
        driver: Some(format!("{name}-driver")),
        is_async: Some(is_async),
        ..Device::default()
    };
    let mut camera = device("camera", Some(0), false);
    camera.runtime = Some(RuntimePm {
        status: "suspended".to_owned(),
        control: "auto".to_owned(),
    });
    let graph = Graph {
        devices: vec![
            device("bus", None, false),
            device("disk", Some(0), false),
            camera,
            device("sensor", Some(0), false),
            device("quick", None, true),
        ],
        links: vec![Link {
            supplier: 2,
            consumer: 3,
            ..Link::default()
        }],
    };
    let down = DevicePhase::Suspend;
    let up = DevicePhase::Resume;
    let cycle = Cycle {
        phases: vec![
            span("suspend_enter", 0, 60),
            span("sync_filesystems", 0, 40),
            span("freeze_processes", 40, 60),
            span("dpm_suspend", 60, 130),
            span("dpm_resume", 130, 160),
            span("thaw_processes", 160, 161),
        ],
        callbacks: vec![
            callback(3, down, 61, 66),
            callback(2, down, 66, 96),
            callback(1, down, 96, 126),
            callback(0, down, 126, 128),
            callback(0, up, 131, 133),
            callback(2, up, 133, 153),
        ],
        idle: vec![],
        freezing: vec![],
        complete: true,
    };
    Recording {
        machine: Machine {
            kernel: Some("6.12.1".to_owned()),
            cpus: Some(2),
            source: "test".to_owned(),
            settings: BTreeMap::new(),
        },
        graph,
        cycles: vec![cycle],
        ..Recording::default()
    }
}

fn analysis(recording: &Recording) -> Analysis {
    analyze(recording, None, &Options::default()).expect("there is a cycle")
}

#[test]
fn a_callback_names_the_callbacks_that_it_waited_for_and_no_others() {
    let events = dormouse_devices::analyze::timeline::events(&recording(), &[1], 2);
    let after = |name: &str, way: &str| {
        let begin = events.iter().find(|event| {
            (event.name.as_str(), event.phase.as_str(), event.kind) == (name, way, Kind::Begin)
        });
        let names = begin.expect("a callback").detail.get("after").cloned();
        names.map(|names| serde_json::from_value::<Vec<String>>(names).expect("names"))
    };
    let names = |list: &[&str]| Some(list.iter().map(|&name| name.to_owned()).collect());
    // The camera's consumer; all children; the parent.
    assert_eq!(after("camera", "suspend"), names(&["sensor"]));
    assert_eq!(
        after("bus", "suspend"),
        names(&["disk", "camera", "sensor"])
    );
    assert_eq!(after("camera", "resume"), names(&["bus"]));
    assert_eq!(after("sensor", "suspend"), None);
}

#[test]
fn totals_account_for_the_whole_way_down_and_up() {
    let analysis = analysis(&recording());
    assert_eq!(analysis.totals.suspend_ns, 130 * MS);
    assert_eq!(analysis.totals.resume_ns, 31 * MS);
    assert_eq!(analysis.totals.rest_suspend_ns, 0);
    let steps: Vec<_> = analysis
        .totals
        .steps
        .iter()
        .map(|step| (step.name.as_str(), step.duration_ns / MS))
        .collect();
    assert_eq!(
        steps,
        [
            ("sync_filesystems", 40),
            ("freeze_processes", 20),
            ("dpm_suspend", 70),
            ("dpm_resume", 30),
            ("thaw_processes", 1)
        ]
    );
}

#[test]
fn the_critical_path_follows_links_and_parents() {
    let analysis = analysis(&recording());
    let pass = &analysis.phases[0];
    assert_eq!(pass.phase, DevicePhase::Suspend);
    let path: Vec<_> = pass.critical_path.iter().map(|link| link.device).collect();
    assert_eq!(path, [3, 2, 0], "the sensor, its supplier, their parent");
    assert_eq!(pass.critical_path_ns, 37 * MS);
    assert_eq!(pass.sum_ns, 67 * MS);
    assert_eq!(pass.bound_ns, 37 * MS);
    assert_eq!(pass.between_ns, 3 * MS);
    assert_eq!((pass.callbacks, pass.without_callback), (4, 1));
    assert!((pass.parallelism - 1.0).abs() < 0.01);
}

#[test]
fn findings_name_improvements_and_their_gain() {
    let analysis = analysis(&recording());
    let found = |id: &str| analysis.findings.iter().find(|finding| finding.id == id);
    assert_eq!(found("sync-cost").unwrap().gain_ns, Some(40 * MS));
    assert!(found("freeze-stragglers").is_some());
    let missing = found("missing-async").unwrap();
    assert!(missing.about[0].contains("disk") || missing.about[0].contains("camera"));
    // The disk need not wait for the camera: 30 of 70 ms.
    let gain_ms = missing.gain_ns.unwrap() / MS;
    assert!((25..=35).contains(&gain_ms), "{gain_ms} ms");
    let needless = found("needless-async").unwrap();
    assert_eq!(needless.about, ["quick (quick-driver)"]);
    let unused = found("resumed-unused").unwrap();
    assert_eq!(unused.about, ["camera (camera-driver)"]);
    assert!(found("slow-device").is_some());
    assert!(found("failed").is_none());
    // The largest gain comes first.
    let gains = analysis.findings.iter().map(|finding| finding.gain_ns);
    assert!(gains.is_sorted_by_key(|gain| std::cmp::Reverse(gain.unwrap_or(0))));
}

#[test]
fn a_failed_callback_is_the_first_thing_said() {
    let mut recording = recording();
    recording.cycles[0].callbacks[2].error = -16;
    let analysis = analysis(&recording);
    assert_eq!(analysis.findings[0].id, "failed");
    assert!(
        analysis.findings[0]
            .seen
            .contains("disk (disk-driver): suspend returned -16")
    );
}

#[test]
fn a_cycle_that_is_not_there_gives_nothing() {
    let recording = recording();
    for number in [0, 2, usize::MAX] {
        assert!(analyze(&recording, Some(number), &Options::default()).is_none());
    }
    assert!(analyze(&Recording::default(), None, &Options::default()).is_none());
}

#[test]
fn an_empty_cycle_can_be_analysed() {
    let recording = Recording {
        cycles: vec![Cycle::default()],
        ..Recording::default()
    };
    let analysis = analysis(&recording);
    assert!(text::render(&analysis).contains("no improvement found"));
}

#[test]
fn names_from_outside_never_become_markup_or_escape_codes() {
    let hostile = "</script><img src=x onerror=alert(1)>\u{1b}[2J";
    let mut recording = recording();
    for device in &mut recording.graph.devices {
        device.name = hostile.to_owned();
        device.driver = Some(hostile.to_owned());
    }
    recording.cycles[0].callbacks[0].error = -5;
    recording.notes.push(hostile.to_owned());
    let analysis = analysis(&recording);
    assert!(!text::render(&analysis).contains('\u{1b}'));

    let folder = tempfile::tempdir().unwrap();
    let html = write_page(&recording, &analysis, folder.path());
    assert!(!html.contains("<img") && !html.contains('\u{1b}'));
    assert_eq!(html.matches("</script").count(), 2);
}

fn write_page(recording: &Recording, analysis: &Analysis, folder: &Path) -> String {
    let variants = variants(MS, true);
    let setting = Setting::new(Schedule::List, 2);
    let table = table(recording, &recording.cycles[0], &variants, &setting);
    let (html, trace) = (folder.join("report.html"), folder.join("trace.json"));
    page::write(recording, analysis, &table, "test", &html, &trace).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 10);
    std::fs::read_to_string(html).unwrap()
}

#[test]
fn the_page_has_findings_passes_critical_paths_and_schedules() {
    let recording = recording();
    let analysis = analysis(&recording);
    let folder = tempfile::tempdir().unwrap();
    let html = write_page(&recording, &analysis, folder.path());
    for wanted in [
        "<h2>Findings</h2>",
        "sync-cost",
        "<h2>Passes over the devices</h2>",
        "<h2>Critical paths</h2>",
        "<h2>Slowest devices</h2>",
        "<h2>Schedules</h2>",
        "leaves-first",
        "camera (camera-driver)",
        "dormouse devices analyze",
    ] {
        assert!(html.contains(wanted), "{wanted}");
    }
    assert!(!html.contains("{{"));
}

#[test]
fn schedules_are_compared_with_list_order_and_the_bound() {
    let recording = recording();
    let variants = variants(MS, true);
    let mut setting = Setting::new(Schedule::List, 2);
    setting.overheads = dormouse_devices::simulate::Overheads::NONE;
    let table = table(&recording, &recording.cycles[0], &variants, &setting);
    let down = &table.totals[0];
    assert_eq!(down.recorded_ns, Some(70 * MS));
    assert_eq!((down.sum_ns, down.bound_ns), (67 * MS, 37 * MS));
    let of = |name: &str| {
        let mut all = down.predictions.iter();
        all.find(|prediction| prediction.name == name)
            .unwrap()
            .makespan_ns
            / MS
    };
    assert_eq!(of("list"), 67);
    assert_eq!(of("graph"), 37);
    assert_eq!(of("async-all"), 37);
    assert_eq!(of("leaves-first"), 37);
    assert_eq!(of("async-as-set"), 67, "no slow device may be async");
}
