//! Epochs that need more than their pause are postponed, but not for ever.

use dormouse_tests::alone::alone;
use dormouse_tests::program::Program;

/// Writes to each of 8,192 pages, again and again.
const WRITER: &str = r#"
import mmap
memory = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
value = 0
print('writes', flush=True)
while True:
    value = (value + 1) % 256
    for page in range(0, len(memory), 4096):
        memory[page] = value
"#;

#[test]
fn a_program_that_always_writes_more_than_a_pause_can_copy_still_gets_epochs() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = [
        "--on-power-loss",
        "none",
        "--epoch-interval",
        "100ms",
        "--pause",
        "2ms",
    ];
    let command = ["python3", "-c", WRITER];
    let mut program = Program::new(alone(), directory.path(), "writer", &options, &command);
    program.run();
    assert!(program.wait_for("writes", 1), "{}", program.said());
    program.until("postponed epochs", |program| {
        let tracker = &program.status()["tracker"];
        tracker["put_off_in_succession"].as_u64() >= Some(4)
    });
    assert!(program.status()["tracker"]["put_off_bytes"].as_u64() > Some(16 << 20));
    // Each may take longer than the one before.
    let first = program.epochs();
    program.until("two more epochs", |program| program.epochs() >= first + 2);
    let said = program.verb("status", &[]);
    assert!(said.stdout.contains("put off"), "{}", said.all());
    assert!(
        program.said().contains("the next may take longer"),
        "{}",
        program.said()
    );
}
