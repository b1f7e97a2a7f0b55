//! A kernel's own drivers of real (emulated) devices suspend and resume in the virtual executor, and work
//! afterwards. The first time it builds that kernel, which takes some minutes.

use dormouse_tests::dormouse;
use serde_json::{Value, json};

use super::kernel::{reports_of, suspends};

const REAL: [&str; 3] = ["--devices", "real", "--prune"];
const COUNTS: [&str; 3] = ["suspend_exits", "checked", "devices_worked"];

/// Every phase returned in the executor, and after each cycle every device worked.
fn come_back(words: &[&str], cycles: u64) -> Value {
    let (phases, summary) = suspends(words, cycles, &COUNTS);
    for phase in &phases {
        assert_eq!(phase["stop"], "returned", "{words:?}: {phase}");
    }
    // Each driver was there: a device that nothing accesses would work afterwards, too.
    for device in ["rtc", "uart0", "uart1", "card", "ethernet", "virtio", "gic"] {
        let count = summary["accesses"][device].as_u64();
        assert!(count >= Some(cycles), "{device}: {summary}");
    }
    summary
}

#[test]
fn real_drivers_suspend_and_resume_in_the_executor_and_their_threads_wait_there() {
    let summary = come_back(&REAL, 1);
    assert_eq!(summary["waits"], 0, "{summary}");
    assert_eq!(summary["big_core_us"], 0, "{summary}");
    // A driver of a card polls it with a timer of the kernel's.
    assert!(summary["idle_waits"].as_u64() > Some(0), "{summary}");
    assert!(summary["idle_us"].as_u64() > Some(0), "{summary}");
}

#[test]
#[ignore = "make test-full: four more suspends of real devices; the quick gate waits on the small core"]
fn threads_can_wait_on_the_big_core() {
    for set in [&[][..], &["--t32"]] {
        let words = [&REAL, &["--scheduler", "big"][..], set].concat();
        let summary = come_back(&words, 2);
        assert!(summary["waits"].as_u64() > Some(0), "{summary}");
        assert_eq!(summary["idle_waits"], 0, "{summary}");
    }
}

/// Hands back at this function in `dpm_suspend`, and all comes back.
fn goes_on_from(function: &str, words: &[&str]) {
    let words = [&REAL, &["--hand-back", function][..], words].concat();
    let phases = suspends(&words, 1, &COUNTS).0;
    let handed_back = |phase: &&Value| phase["stop"] == "fallback";
    let suspend = phases
        .iter()
        .find(|phase| phase["function"] == "dpm_suspend");
    assert!(
        suspend.is_some_and(|phase| handed_back(&phase)),
        "{function}: {phases:?}"
    );
}

#[test]
fn the_big_core_goes_on_in_an_interrupt_handler_that_the_executor_began() {
    goes_on_from("gic_handle_irq", &[]);
}

#[test]
fn the_big_core_goes_on_in_another_thread_than_the_one_that_suspends() {
    goes_on_from("process_one_work", &[]);
}

#[test]
#[ignore = "make test-full: 400 cycles; the big core finishes most of their phases"]
fn the_big_core_goes_on_at_any_instruction_of_a_phase() {
    let seed = std::time::UNIX_EPOCH
        .elapsed()
        .expect("a date")
        .as_secs()
        .to_string();
    let random = ["--hand-back-at-random", &seed];
    for set in [&[][..], &["--prune"], &["--t32"], &["--t32", "--prune"]] {
        for (devices, counts) in [(&[][..], &COUNTS[..2]), (&REAL[..2], &COUNTS)] {
            let words = [&random, devices, set].concat();
            let (phases, summary) = suspends(&words, 50, counts);
            let cut = phases.iter().filter(|phase| phase["stop"] == "budget");
            assert!(cut.count() > phases.len() / 4, "{words:?}: {summary}");
        }
    }
}

#[test]
#[ignore = "make test-full: the quick gate hands back in an interrupt handler and in a worker, in A32"]
fn the_big_core_goes_on_in_the_scheduler_and_in_t32() {
    goes_on_from("__switch_to", &[]);
    for function in ["gic_handle_irq", "process_one_work", "__switch_to"] {
        goes_on_from(function, &["--t32"]);
    }
}

#[test]
fn an_access_to_a_device_that_is_not_forwarded_is_refused_by_name_and_nothing_is_lost() {
    let (said, phases, summary) =
        reports_of(&[&REAL, &["--without-device", "rtc"][..]].concat(), 1);
    // Not every phase was the executor's.
    assert_eq!(said.code, 1, "{}", said.all());
    let refused: Vec<&Value> = phases
        .iter()
        .filter(|phase| phase["stop"] == "refused-access")
        .collect();
    assert!(!refused.is_empty(), "{}", said.all());
    for phase in refused {
        let why = phase["explanation"].as_str().expect("a reason");
        // The clock's registers, and the instruction.
        assert!(why.contains("physical address 0x10017"), "{why}");
        assert!(phase["instruction"].is_string(), "{phase}");
        assert!(phase["accesses"]["rtc"].is_null(), "{phase}");
    }
    // The big core made the access and went on.
    for name in COUNTS {
        assert_eq!(summary[name], 1, "{}", said.all());
    }
    assert_eq!(summary["complaints"], json!([]), "{}", said.all());
}

#[test]
fn a_device_that_is_not_known_cannot_be_left_out() {
    let words = ["offload", "suspend", "--without-device", "clock"];
    let said = dormouse(&[&words[..], &REAL].concat());
    assert_eq!(said.code, 2, "{}", said.all());
    assert!(
        said.stderr.contains("no device \"clock\""),
        "{}",
        said.all()
    );
}

#[test]
#[ignore = "make test-full: 80 cycles of eight phases each"]
fn twenty_suspends_of_real_devices_come_back_in_each_mode() {
    for set in [&[][..], &["--t32"]] {
        come_back(&[&REAL, set].concat(), 20);
        // Without --prune.
        come_back(&[&REAL[..2], set].concat(), 20);
    }
}

/// Whether a pair of numbers is a range.
fn is_range(pair: &Value) -> bool {
    let at = |index: usize| pair[index].as_f64().unwrap_or(f64::NAN);
    at(0) <= at(1)
}

#[test]
#[ignore = "make test-full: two more suspends of real devices, one of them counted"]
fn energy_is_a_range_of_what_was_counted_on_both_cores() {
    let (phases, summary) = suspends(&[&REAL[..], &["--energy"]].concat(), 1, &COUNTS);
    let energies = summary["energy"].as_array().expect("energies");
    assert_eq!(energies.len(), phases.len() + 1, "{summary}");
    for (energy, phase) in energies.iter().zip(&phases) {
        assert_eq!(energy["function"], phase["function"]);
        // The plugin has counted what the small core's timer says, and what it does before and behind that.
        let counted = phase["cycles"]["instructions"].as_u64();
        assert!(counted > phase["instructions"].as_u64(), "{phase}");
        assert!(
            energy["big"]["instructions"].as_u64() > Some(1000),
            "{energy}"
        );
    }
    for energy in energies {
        for name in [
            "big_uj",
            "small_uj",
            "as_run_uj",
            "cycle_ratio",
            "saving",
            "as_run_saving",
            "break_even_ms",
        ] {
            assert!(is_range(&energy[name]), "{name}: {energy}");
        }
    }
}

#[test]
fn dummies_have_no_energy() {
    let said = dormouse(&["offload", "suspend", "--energy"]);
    assert_eq!(said.code, 2, "{}", said.all());
    assert!(
        said.stderr.contains("--energy needs --devices real"),
        "{}",
        said.all()
    );
}
