//! The virtual executor: kernel code of a big core on an emulated Cortex-M3.

use std::process::Command;

use dormouse_offload::machine::PROGRAMS;
use dormouse_tests::{Said, dormouse, workspace};
use serde_json::Value;

/// The runs of a program, as reported.
pub fn run(words: &[&str]) -> (Said, Vec<Value>) {
    let said = dormouse(&[&["offload", "run", "--json"], words].concat());
    let runs = said.reports();
    (said, runs)
}

fn result(words: &[&str]) -> u64 {
    let (said, runs) = run(words);
    assert_eq!(said.code, 0, "{}", said.all());
    runs[0]["registers"][0].as_u64().expect("r0")
}

/// Compares with an oracle. No seed is fixed: each run has another, which is printed with a failure.
fn differential(words: &[&str]) -> String {
    let said = Command::new(workspace().join("offload/tests/run.sh"))
        .args(words)
        .output()
        .expect("offload/tests/run.sh can be started");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&said.stderr)
    );
    text
}

/// The executor and the oracle differ in nothing.
fn agrees(words: &[&str]) {
    let said = differential(words);
    assert!(said.contains(", 0 differences"), "{said}");
}

#[test]
fn every_instruction_gives_what_a_big_core_gives() {
    agrees(&["instructions", "200"]);
}

#[test]
fn random_blocks_give_what_a_big_core_gives() {
    agrees(&["blocks", "3000"]);
}

#[test]
fn every_thumb_instruction_gives_what_a_big_core_gives() {
    agrees(&["thumb-instructions", "100"]);
}

#[test]
fn random_thumb_blocks_give_what_a_big_core_gives() {
    agrees(&["thumb-blocks", "2000"]);
}

/// Pointers that are host addresses while a loop runs: flags, faults and ways out as on a big core.
#[test]
fn random_loops_over_pointers_give_what_a_big_core_gives() {
    for what in ["loops", "thumb-loops"] {
        agrees(&[what, "3000"]);
    }
}

#[test]
fn what_was_translated_before_the_code_changed_is_never_run() {
    let said = differential(&["kept", "700"]);
    assert!(said.contains("constants and hand-backs: right"), "{said}");
    assert_eq!(said.matches(", 0 differences").count(), 4, "{said}");
}

/// So many comparisons, in each of which the executor handed back and the big core went on.
fn goes_on(arguments: &[&str], comparisons: usize) {
    let said = differential(arguments);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), comparisons, "{said}");
    for line in lines {
        assert!(line.contains(", 0 differences"), "{said}");
        assert!(!line.contains(" 0 handed back"), "{said}");
    }
}

#[test]
fn the_big_core_goes_on_where_it_was_handed_back() {
    goes_on(&["hand-back", "1500"], 2);
}

#[test]
fn an_interrupt_finds_the_guest_between_two_of_its_instructions() {
    goes_on(&["interrupted", "1500"], 4);
}

/// The module's code and the kernel's under a model of the big core's caches; each step that is left out is found.
#[test]
fn a_big_core_with_caches_hands_over_and_goes_on() {
    let said = differential(&["caches", "200"]);
    assert!(!said.contains("not found"), "{said}");
    assert_eq!(said.matches(": found in hand-over").count(), 11, "{said}");
    assert_eq!(said.matches(", 0 differences").count(), 2, "{said}");
    assert!(said.contains("; 0 differences"), "{said}");
}

#[test]
fn what_random_code_has_hit_upon_once_is_as_on_a_big_core() {
    agrees(&["directed", "10"]);
}

#[test]
fn wild_stores_into_the_executors_memory_do_not_pass_unnoticed() {
    let said = differential(&["wild-stores", "5000"]);
    assert!(said.contains(", 0 not noticed"), "{said}");
}

#[test]
#[ignore = "make test-full: 100 seeds take an hour of one processor"]
fn a_hundred_random_seeds_give_what_a_big_core_gives() {
    let said = differential(&["seeds", "100"]);
    assert!(said.contains("100 seeds, 0 with differences"), "{said}");
}

#[test]
#[ignore = "make test-full: 100,000 stores"]
fn a_hundred_thousand_wild_stores_corrupt_nothing() {
    let said = differential(&["wild-stores", "100000"]);
    assert!(said.contains(", 0 not noticed"), "{said}");
}

#[test]
#[ignore = "make test-full: the quick gate runs random blocks with all optimisations"]
fn no_optimisation_is_needed_for_what_a_big_core_gives() {
    let said = differential(&["modes", "5"]);
    let differences = said.lines().filter(|line| line.contains(", 0 differences"));
    assert_eq!(differences.count(), 6 * 13, "{said}");
}

#[test]
fn every_mode_gives_the_same_results() {
    for program in PROGRAMS {
        let words = ["--program", program, "77", "1"];
        let expected = result(&words);
        // Every instruction of theirs is translated.
        for state in [[].as_slice(), &["--t32"]] {
            let (said, runs) = run(&[state, words.as_slice()].concat());
            assert_eq!(runs[0]["counters"]["interpreted"], 0, "{}", said.all());
        }
        for mode in [
            ["--t32"].as_slice(),
            ["--t32", "--cache", "2048"].as_slice(),
            ["--without", "all"].as_slice(),
            ["--t32", "--without", "all"].as_slice(),
            ["--t32", "--without", "registers,table"].as_slice(),
        ] {
            assert_eq!(
                result(&[mode, words.as_slice()].concat()),
                expected,
                "{program} {mode:?}"
            );
        }
    }
}

#[test]
fn a_cache_that_evicts_all_the_time_changes_no_result() {
    for program in ["callback", "list_sort", "string"] {
        let words = ["--program", program, "9", "1"];
        let (_, runs) = run(&[&["--cache", "1024"], words.as_slice()].concat());
        assert_eq!(
            runs[0]["registers"][0].as_u64(),
            Some(result(&words)),
            "{program}"
        );
        assert!(
            runs[0]["counters"]["flushes"].as_u64() > Some(1),
            "{program}"
        );
    }
}

/// A run that would take very long ends after the time that it may take.
pub fn is_stopped_by_its_budget(options: &[&str]) {
    let words = ["--budget", "2", "--program", "callback", "1", "1000000"];
    let (said, runs) = run(&[options, &words].concat());
    assert_eq!(said.code, 1, "{}", said.all());
    assert_eq!(runs[0]["stop"], "budget");
}

#[test]
fn an_endless_run_is_stopped_by_its_budget() {
    is_stopped_by_its_budget(&[]);
}

#[test]
fn a_bad_elf_is_refused_with_its_reason() {
    let said = dormouse(&["offload", "run", "/proc/self/exe", "main"]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(said.stderr.contains("ELF"), "{}", said.all());
}

#[test]
#[ignore = "make test-full: it builds lib/ for three instruction sets, and runs the benchmark"]
fn the_kernels_own_tests_of_lib_give_what_they_give_natively() {
    // It ends with an error where one gives something else, or where fewer than 40 can be measured.
    let out = tempfile::tempdir().expect("a folder");
    let path = out.path().to_str().expect("paths here are text");
    let said = dormouse(&["offload", "bench", "--out", path]);
    assert_eq!(said.code, 0, "{}", said.all());
    assert!(said.stdout.contains("| test_xarray |"), "{}", said.all());
}
