//! A program is not restored over files that are newer than its memory, unless that is accepted; also
//! files that it does not keep open, as many databases do not.

use std::fs;
use std::time::{Duration, Instant};

use dormouse_tests::alone::alone;
use dormouse_tests::program::{Program, compile};

/// Counts in memory and in a file, which is open for an instant only, on request.
const SCRIPT: &str = "
import os, sys, time
os.chdir(sys.argv[1])
count = 0
while True:
    # Without opening it: an epoch may come at any instant.
    if count < os.stat('wanted').st_size:
        count += 1
        with open('count', 'w') as file:
            file.write(str(count))
        print('counted', count, flush=True)
    time.sleep(0.01)
";

/// Waits until it has counted to this number so many times.
fn counted(program: &mut Program, number: u32, times: usize) {
    let line = format!("counted {number}");
    program.until(&line, |program| {
        program.said().matches(&line).count() == times
    });
}

#[test]
fn a_program_is_not_restored_over_a_newer_file_that_it_had_closed() {
    // Files in memory are no part of this.
    let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let place = directory.path().display().to_string();
    let wanted = directory.path().join("wanted");
    let tell = |count: usize| fs::write(&wanted, "x".repeat(count)).expect("told");
    tell(1);
    let options = ["--on-power-loss", "none", "--epoch-interval", "1h"];
    let command = ["python3", "-c", SCRIPT, &place];
    let mut program = Program::new(alone(), directory.path(), "it", &options, &command);
    program.run();
    counted(&mut program, 1, 1);
    let said = program.verb("persist", &[]);
    assert_eq!(said.code, 0, "{}", said.all());
    // Nothing has changed: it goes on.
    program.cut(false);
    program.run();
    tell(2);
    counted(&mut program, 2, 1);
    let said = program.verb("persist", &[]);
    assert_eq!(said.code, 0, "{}", said.all());
    tell(3);
    counted(&mut program, 3, 1);
    program.cut(false);
    // Its memory says 2, its file 3.
    let said = program.refused(&[]);
    assert_eq!(said.code, 1, "{}", said.all());
    let path = directory.path().join("count").display().to_string();
    let words = format!("{path} has changed since the program was persisted");
    assert!(said.stderr.contains(&words), "{}", said.all());
    assert_eq!(fs::read_to_string(&path).expect("there"), "3");
    let accepted = [&options[..], &["--accept-changed-files"]].concat();
    program.set_options(&accepted);
    program.run();
    counted(&mut program, 3, 2);
}

#[test]
fn a_program_is_not_restored_over_what_it_stored_into_a_mapped_file_after_the_epoch() {
    // The kernel may write files out before the epoch, or so slowly that the next epoch comes: then
    // memory and file are of the same age, and the program goes on.
    const ATTEMPTS: usize = 10;
    for _ in 0..ATTEMPTS {
        if is_refused_after_it_stored_into_a_mapped_file() {
            return;
        }
    }
    panic!("in none of {ATTEMPTS} attempts it stored between the epoch and the sync of its files");
}

/// Whether it was; otherwise it was as new as its file.
fn is_refused_after_it_stored_into_a_mapped_file() -> bool {
    let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let command = compile(directory.path(), "mapped.c").display().to_string();
    let place = directory.path().display().to_string();
    // No later epoch holds what it stores.
    let options = [
        "--on-power-loss",
        "none",
        "--epoch-interval",
        "3s",
        "--pause",
        "2s",
    ];
    let mut program = Program::new(
        alone(),
        directory.path(),
        "it",
        &options,
        &[&command, &place],
    );
    program.run();
    // The store may not be there yet.
    let epochs = |program: &Program| {
        let said = program.verb("status", &["--json"]);
        let status: serde_json::Value = serde_json::from_str(&said.stdout).unwrap_or_default();
        status["tracker"]["epochs"].as_u64().unwrap_or(0)
    };
    program.until("an epoch", |program| epochs(program) > 0);
    program.until("it has stored", |program| program.said().contains("stored"));
    program.cut(false);
    program.run();
    let limit = Instant::now() + Duration::from_secs(120);
    while !program.has_ended() {
        if program.said().contains("goes on") {
            return false;
        }
        assert!(Instant::now() < limit, "neither: {}", program.said());
        std::thread::sleep(Duration::from_millis(10));
    }
    // Its memory is that of the epoch, its file is newer.
    let code = program.wait();
    assert_eq!(code, 1, "{}", program.said());
    let path = directory.path().join("small").display().to_string();
    let words = format!("{path} has changed since the program was persisted");
    assert!(program.said().contains(&words), "{}", program.said());
    true
}
