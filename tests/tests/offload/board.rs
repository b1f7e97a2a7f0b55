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
fn indirect_branches_without_a_target_table_do_not_call_the_executor() {
    // Of this program's instructions most are returns and calls of its comparison.
    let words = ["--program", "list_sort", "5", "10", "--runs", "3"];
    let instructions = |words: &[&str]| {
        let (said, runs) = run(words);
        assert_eq!(said.code, 0, "{words:?}: {}", said.all());
        let warm = runs.last().unwrap();
        let count = warm["instructions"].as_u64().unwrap();
        (count, warm["registers"][0].clone())
    };
    let (through_table, expected) = instructions(&words);
    let (found, same) = instructions(&[&BOARD[..], &words].concat());
    let (served, also) = instructions(&[&BOARD[..], &["--scratch", "7"], &words].concat());
    assert_eq!((&same, &also), (&expected, &expected));
    assert!(found < 3 * through_table, "{found} and {through_table}");
    // The hash table is read only where the branch's target is in r11; the executor finds it otherwise.
    assert!(served > 5 * through_table, "{served} and {through_table}");
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
