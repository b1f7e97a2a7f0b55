//! A program that writes faster than the store takes it: held to its budget where that is asked for.

use dormouse_tests::alone::alone;
use dormouse_tests::program::Program;

use super::postponed::WRITER;

/// Fills 256 MiB at once and leaves them alone.
const FILLER: &str = r#"
import os, time
memory = bytearray(os.urandom(1 << 20)) * 256
print('filled', flush=True)
while True:
    time.sleep(1)
"#;

fn started(directory: &tempfile::TempDir, script: &str, options: &[&str]) -> Program {
    let options = [&["--on-power-loss", "none"], options].concat();
    let command = ["python3", "-c", script];
    let mut program = Program::new(alone(), directory.path(), "writer", &options, &command);
    program.run();
    program
}

fn number(program: &Program, key: &str) -> f64 {
    program.status()["tracker"][key].as_f64().unwrap_or(0.0)
}

#[test]
fn a_program_that_writes_faster_than_the_store_is_stopped_for_its_budget_if_that_is_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = [
        "--budget",
        "1MiB",
        "--throttle",
        "50%",
        "--epoch-interval",
        "100ms",
        "--pause",
        "1ms",
    ];
    let mut program = started(&directory, WRITER, &options);
    assert!(program.wait_for("writes", 1), "{}", program.said());
    program.until("stopped for its budget, and epochs", |program| {
        number(program, "throttled_ms") > 50.0 && program.epochs() >= 3
    });
    let said = program.verb("status", &[]);
    assert!(said.stdout.contains("to keep the budget"), "{}", said.all());
    assert!(said.stdout.contains("at most 50 %"), "{}", said.all());
    program.persist_and_kill("held to its budget");
    program.run();
    program.until("goes on, and is stopped again", |program| {
        number(program, "throttled_ms") > 0.0
    });
}

#[test]
fn a_program_is_not_stopped_for_its_budget_unless_that_is_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = started(&directory, WRITER, &["--budget", "1MiB"]);
    assert!(program.wait_for("writes", 1), "{}", program.said());
    program.until("over its budget", |program| {
        number(program, "rounds_over_budget") >= 3.0
    });
    assert!(number(&program, "throttled_ms") == 0.0);
    let said = program.verb("status", &[]);
    assert!(
        !said.stdout.contains("to keep the budget"),
        "{}",
        said.all()
    );
}

/// What is new has its place in the store once it is there; only what is written anew needs another.
#[test]
fn memory_that_is_filled_once_takes_no_room_for_a_second_copy() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = started(&directory, FILLER, &["--epoch-interval", "300ms"]);
    assert!(program.wait_for("filled", 1), "{}", program.said());
    // After a restore, all of it is compared with the store.
    for life in 1..=2 {
        let rounds = number(&program, "rounds");
        program.until("an epoch and some rounds later", |program| {
            let tracker = &program.status()["tracker"];
            let epoch = tracker["last"]["epoch"].as_u64();
            epoch.is_some() && number(program, "rounds") >= rounds + 10.0
        });
        // All of it, an eighth, what the store is enlarged by at a time, and the interpreter's own; not twice as much.
        let store = number(&program, "store_bytes");
        assert!(store < f64::from(480 << 20), "life {life}: {store}");
        program.persist_and_kill("filled");
        program.run();
    }
}
