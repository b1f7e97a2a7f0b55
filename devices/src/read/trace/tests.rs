use super::*;
use proptest::prelude::*;

/// One suspend of three devices: a parent, a child, and a device without relation that is async.
const TRACE: &str = "\
# tracer: nop
# entries-in-buffer/entries-written: 37/37   #P:2
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
     rtcwake-100     [000] .....    10.000000: suspend_resume: suspend_enter[1] begin
     rtcwake-100     [000] .....    10.000010: suspend_resume: sync_filesystems[0] begin
     rtcwake-100     [000] .....    10.020010: suspend_resume: sync_filesystems[0] end
     rtcwake-100     [000] .....    10.020020: suspend_resume: freeze_processes[0] begin
     rtcwake-100     [000] .....    10.025020: suspend_resume: freeze_processes[0] end
     rtcwake-100     [000] .....    10.025030: suspend_resume: suspend_enter[1] end
     rtcwake-100     [000] .....    10.025040: suspend_resume: dpm_prepare[2] begin
     rtcwake-100     [000] .....    10.025050: device_pm_callback_start: pci bus0, parent: none, [suspend]
     rtcwake-100     [000] .....    10.025060: device_pm_callback_end: pci bus0, err=0
     rtcwake-100     [000] .....    10.025070: device_pm_callback_start: ahci disk, parent: bus0, [suspend]
     rtcwake-100     [000] .....    10.025080: device_pm_callback_end: ahci disk, err=0
     rtcwake-100     [000] .....    10.025090: device_pm_callback_start: snd card, parent: none, [suspend]
     rtcwake-100     [000] .....    10.025100: device_pm_callback_end: snd card, err=0
     rtcwake-100     [000] .....    10.025110: suspend_resume: dpm_prepare[2] end
     rtcwake-100     [000] .....    10.030000: suspend_resume: dpm_suspend[2] begin
 kworker/u4:1-7      [001] .....    10.030100: device_pm_callback_start: snd card, parent: none, driver [suspend]
     rtcwake-100     [000] .....    10.030110: device_pm_callback_start: ahci disk, parent: bus0, bus [suspend]
     rtcwake-100     [000] d....    10.031110: sched_switch: prev_comm=rtcwake prev_pid=100 prev_prio=120 prev_state=D ==> next_comm=swapper/0 next_pid=0 next_prio=120
      <idle>-0       [000] d....    10.039110: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=rtcwake next_pid=100 next_prio=120
     rtcwake-100     [000] .....    10.040110: device_pm_callback_end: ahci disk, err=0
 kworker/u4:1-7      [001] .....    10.040200: device_pm_callback_end: snd card, err=0
     rtcwake-100     [000] .....    10.040300: device_pm_callback_start: pci bus0, parent: none, bus [suspend]
     rtcwake-100     [000] .....    10.040400: device_pm_callback_end: pci bus0, err=0
     rtcwake-100     [000] .....    10.040500: suspend_resume: dpm_suspend[2] end
     rtcwake-100     [000] .....    10.050000: suspend_resume: dpm_resume[16] begin
     rtcwake-100     [000] .....    10.050100: device_pm_callback_start: pci bus0, parent: none, bus [resume]
     rtcwake-100     [000] .....    10.050200: device_pm_callback_end: pci bus0, err=0
     rtcwake-100     [000] .....    10.050300: suspend_resume: dpm_resume[16] end
     rtcwake-100     [000] .....    10.050400: suspend_resume: thaw_processes[0] begin
     rtcwake-100     [000] .....    10.050500: suspend_resume: thaw_processes[0] end
";

fn names(recording: &Recording) -> Vec<&str> {
    let devices = recording.graph.devices.iter();
    devices.map(|device| device.name.as_str()).collect()
}

fn later(seconds: u64) -> String {
    TRACE.replace(" 10.0", &format!(" {}.0", 10 + seconds))
}

fn without(needle: &str) -> String {
    let lines = TRACE.lines().filter(|line| !line.contains(needle));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_device_of_the_module_that_runs_a_phase_is_no_device_of_that_phase() {
    let conductor = "     rtcwake-100     [000] .....    10.030050: device_pm_callback_start:  \
                     dormouse-dpm-last, parent: none, type [suspend]\n     rtcwake-100     [000] \
                     .....    10.040450: device_pm_callback_end:  dormouse-dpm-last, err=0\n";
    let with = read(&format!("{TRACE}{conductor}"));
    assert!(with.damages.is_empty(), "{:?}", with.damages);
    assert_eq!(with.recording, read(TRACE).recording);
}

#[test]
fn a_trace_gives_passes_callbacks_parents_list_order_and_busy_time() {
    let Read { recording, damages } = read(TRACE);
    assert_eq!(damages, []);
    assert_eq!(names(&recording), ["bus0", "disk", "card"]);
    assert_eq!(recording.machine.cpus, Some(2));
    assert_eq!(recording.graph.devices[1].parent, Some(0));
    let places: Vec<_> = recording
        .graph
        .devices
        .iter()
        .map(|d| d.registered)
        .collect();
    assert_eq!(places, [Some(0), Some(1), Some(2)]);
    let [cycle] = recording.cycles.as_slice() else {
        panic!("one cycle")
    };
    assert!(cycle.complete);
    assert_eq!(
        cycle.phase("sync_filesystems").unwrap().duration_ns(),
        20_000_000
    );
    let suspends: Vec<_> = cycle.callbacks_of(DevicePhase::Suspend).collect();
    let seen: Vec<_> = suspends
        .iter()
        .map(|callback| (callback.device, callback.duration_ns(), callback.busy_ns))
        .collect();
    assert_eq!(
        seen,
        [
            (2, 10_100_000, Some(10_100_000)),
            (1, 10_000_000, Some(2_000_000)),
            (0, 100_000, Some(100_000))
        ]
    );
    assert_eq!(cycle.callbacks_of(DevicePhase::Prepare).count(), 3);
    let idle = cycle.idle.iter().find(|idle| idle.phase == "dpm_suspend");
    assert_eq!(idle.unwrap().idle_ns, 8_000_000);
}

#[test]
fn several_suspends_in_a_trace_are_several_cycles() {
    let text = format!("{TRACE}{}{}", later(10), later(20));
    let Read { recording, damages } = read(&text);
    assert_eq!(damages, []);
    assert_eq!(recording.cycles.len(), 3);
    assert!(recording.cycles.iter().all(|cycle| cycle.complete));
    assert_eq!(names(&recording).len(), 3);
    // Even where the begin of a later one was lost.
    let text = format!("{TRACE}{}", later(10).replace("suspend_enter", "lost"));
    let Read { recording, .. } = read(&text);
    assert_eq!(recording.cycles.len(), 2);
    assert!(!recording.cycles[1].complete);
}

#[test]
fn lines_in_any_order_give_the_same_recording() {
    let mut lines: Vec<&str> = TRACE.lines().collect();
    lines.reverse();
    assert_eq!(read(&lines.join("\n")).recording, read(TRACE).recording);
}

#[test]
fn a_lost_end_is_told_with_its_line_and_costs_nothing_else() {
    let text = without("device_pm_callback_end: snd card, err=0");
    let Read { recording, damages } = read(&text);
    assert_eq!(damages.len(), 2, "{damages:?}");
    assert!(damages.iter().all(|damage| damage.what.contains("card")));
    let line = text
        .lines()
        .position(|line| line.contains("callback_start: snd card, parent: none, driver"));
    assert!(damages.iter().any(|damage| Some(damage.line - 1) == line));
    assert_eq!(
        recording.cycles[0]
            .callbacks_of(DevicePhase::Suspend)
            .count(),
        2
    );
}

#[test]
fn a_lost_begin_of_a_pass_leaves_its_callbacks_in_their_phase() {
    let text = without("dpm_suspend[2] begin");
    let Read { recording, damages } = read(&text);
    assert_eq!(damages.len(), 1);
    assert!(damages[0].what.contains("dpm_suspend ends and never began"));
    assert_eq!(
        recording.cycles[0]
            .callbacks_of(DevicePhase::Suspend)
            .count(),
        3
    );
}

#[test]
fn a_trace_that_ends_in_the_middle_gives_what_there_is() {
    for at in 0..TRACE.rfind("thaw_processes[0] end").unwrap() {
        let Read { recording, .. } = read(&TRACE[..at]);
        for cycle in &recording.cycles {
            assert!(!cycle.complete);
            assert!(cycle.phases.iter().all(|span| span.end_ns >= span.begin_ns));
        }
    }
}

#[test]
fn lost_events_are_noted() {
    let text = TRACE.replacen(
        "     rtcwake-100     [000] .....    10.050000",
        "CPU:0 [LOST 42 EVENTS]\n     rtcwake-100     [000] .....    10.050000",
        1,
    );
    let Read { recording, damages } = read(&text);
    assert_eq!(damages, []);
    assert!(
        recording
            .notes
            .iter()
            .any(|note| note.contains("42 events"))
    );
}

#[test]
fn callbacks_of_a_hibernation_are_left_out_and_that_is_said() {
    let text = TRACE.replace("bus [suspend]", "bus [freeze]");
    let Read { recording, .. } = read(&text);
    assert_eq!(
        recording.cycles[0]
            .callbacks_of(DevicePhase::Suspend)
            .count(),
        1
    );
    assert!(
        recording
            .notes
            .iter()
            .any(|note| note.contains("hibernation"))
    );
}

proptest! {
    #[test]
    fn lines_in_any_order_any_number_of_times_and_cut_anywhere_never_panic(
        order in proptest::collection::vec((0..40usize, 0..200usize), 0..80)
    ) {
        let lines: Vec<&str> = TRACE.lines().collect();
        let text: Vec<&str> = order
            .iter()
            .map(|&(at, keep)| {
                let line = lines[at % lines.len()];
                &line[..if keep % 4 == 0 { keep.min(line.len()) } else { line.len() }]
            })
            .collect();
        let Read { recording, damages } = read(&text.join("\n"));
        prop_assert!(damages.iter().all(|damage| damage.line >= 1 && damage.line <= text.len()));
        for cycle in &recording.cycles {
            for callback in &cycle.callbacks {
                prop_assert!(callback.end_ns >= callback.begin_ns);
                prop_assert!(callback.device < recording.graph.devices.len());
                prop_assert!(callback.busy_ns.unwrap_or(0) + callback.delayed_ns <= callback.duration_ns());
            }
            prop_assert!(cycle.phases.iter().all(|span| span.end_ns >= span.begin_ns));
        }
        prop_assert!(crate::model::Edges::of(&recording.graph).refused.is_empty());
        // What was read can be written and read again.
        let json = serde_json::to_vec(&recording).unwrap();
        let again = Recording::from_json(&json, std::path::Path::new("x")).unwrap();
        prop_assert_eq!(again, recording);
    }
}
