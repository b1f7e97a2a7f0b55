//! The executor on a board with 128 KiB of memory, and what that board cannot do.

use dormouse_offload::machine::PROGRAMS;
use dormouse_tests::{Said, dormouse};
use serde_json::Value;

const SMALL: [&str; 5] = ["offload", "run", "--json", "--board", "netduinoplus2"];

/// The runs of a program there.
fn runs_of(words: &[&str]) -> (Said, Vec<Value>) {
    let said = dormouse(&[&SMALL, words].concat());
    let runs = said
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
        .collect();
    (said, runs)
}

#[test]
fn every_program_gives_the_same_results_with_128_kib_of_memory() {
    for program in PROGRAMS {
        for state in [[].as_slice(), &["--t32"], &["--cache", "2048"]] {
            let words = [state, &["--program", program, "77", "1"]].concat();
            let (said, runs) = runs_of(&words);
            assert_eq!(said.code, 0, "{program} {state:?}: {}", said.all());
            let large = dormouse(&[&["offload", "run", "--json"], &words[..]].concat());
            let expected: Value = serde_json::from_str(large.stdout.trim()).expect("a run");
            assert_eq!(
                runs[0]["registers"][0], expected["registers"][0],
                "{program} {state:?}"
            );
        }
    }
}

#[test]
fn an_endless_run_is_stopped_by_its_budget_there() {
    let (said, runs) = runs_of(&["--budget", "2", "--program", "callback", "1", "1000000"]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert_eq!(runs[0]["stop"], "budget");
}

#[test]
fn what_the_board_lacks_is_refused_with_the_reason() {
    for (words, reason) in [
        (["--without", "stack"], "needs the optimisation stack"),
        (["--cache", "262144"], "24576 bytes of code cache"),
        (
            ["--map", "0xf0000000:0x48000000:4096"],
            "no memory for page tables",
        ),
    ] {
        let said = dormouse(&[&SMALL[..], &words, &["--program", "crc32", "1", "1"]].concat());
        assert_eq!(said.code, 2, "{words:?}: {}", said.all());
        assert!(said.stderr.contains(reason), "{words:?}: {}", said.all());
    }
}
