//! The executor on a board with 128 KiB of memory, and what that board cannot do.

use dormouse_offload::machine::PROGRAMS;

use super::commands::{is_stopped_by_its_budget, run};

const BOARD: [&str; 2] = ["--board", "netduinoplus2"];

#[test]
fn every_program_gives_the_same_results_with_128_kib_of_memory() {
    for program in PROGRAMS {
        for state in [[].as_slice(), &["--t32"], &["--cache", "2048"]] {
            let words = [state, &["--program", program, "77", "1"]].concat();
            let (said, runs) = run(&[&BOARD, &words[..]].concat());
            assert_eq!(said.code, 0, "{program} {state:?}: {}", said.all());
            let (_, expected) = run(&words);
            assert_eq!(
                runs[0]["registers"][0], expected[0]["registers"][0],
                "{program} {state:?}"
            );
        }
    }
}

#[test]
fn an_endless_run_is_stopped_by_its_budget_there() {
    is_stopped_by_its_budget(&BOARD);
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
        let (said, _) = run(&[&BOARD[..], &words, &["--program", "crc32", "1", "1"]].concat());
        assert_eq!(said.code, 2, "{words:?}: {}", said.all());
        assert!(said.stderr.contains(reason), "{words:?}: {}", said.all());
    }
}
