//! Epochs that need more than their pause are postponed, but not for ever.

use dormouse_tests::alone::alone;
use dormouse_tests::program::Program;

/// Writes to each of 4,096 pages, again and again.
pub const WRITER: &str = r#"
import mmap
memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
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
        "1ms",
    ];
    let command = ["python3", "-c", WRITER];
    let mut program = Program::new(alone(), directory.path(), "writer", &options, &command);
    program.run();
    assert!(program.wait_for("writes", 1), "{}", program.said());
    program.until("a postponed epoch", |program| {
        let said = program.verb("status", &[]);
        said.stdout
            .contains("epochs postponed since the last one: ")
    });
    let count = |program: &Program, key: &str| program.status()["tracker"][key].as_u64();
    let (epochs, postponed) = (program.epochs(), count(&program, "epochs_put_off"));
    assert!(count(&program, "put_off_bytes") > Some(1 << 20));
    program.until("two more epochs, and a postponed one", |program| {
        program.epochs() >= epochs + 2 && count(program, "epochs_put_off") > postponed
    });
}
