//! A program that knows what each of its pages must hold, killed at random instants.

use std::time::Duration;

use dormouse_tests::program::{Chance, Program, compile};

/// How often it is killed; DORMOUSE_KILLS says otherwise.
const KILLS: u64 = 12;

/// Maps, huge pages, MADV_DONTNEED, mremap, fork and brk in loops, ASLR on. Power fails during
/// background sync and during persist; the newest complete epoch goes on where it stood, and
/// every page is what it must be, or the store says that there is none.
#[test]
fn killed_at_any_instant_the_newest_epoch_restores_and_every_page_is_right() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "memory_model.c");
    let program = program.display().to_string();
    let options = [
        "--budget",
        "4MiB",
        "--epoch-interval",
        "200ms",
        "--pause",
        "500ms",
    ];
    let mut program = Program::new(directory.path(), "model", &options, &[&program, "7"]);
    let kills = std::env::var("DORMOUSE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut chance = Chance::new(20_240_215);
    let mut restored = 0;
    let mut pid = String::new();
    for kill in 0..kills {
        let verified = program.verb("verify", &[]);
        let anew = verified.code == 1 || verified.stdout.contains("nothing to restore");
        assert!(
            anew || verified.code == 0,
            "kill {kill}: {}\n{}",
            verified.all(),
            program.said()
        );
        program.run();
        assert!(program.wait_for("ok", 2), "kill {kill}: {}", program.said());
        let said = program.said();
        assert!(!said.contains("DIFFERS"), "kill {kill}: {said}");
        let last = said.lines().rfind(|line| line.starts_with("ok")).unwrap();
        let its_pid = last.rsplit(' ').next().unwrap().to_owned();
        if !anew {
            restored += 1;
            assert_eq!(its_pid, pid, "kill {kill}: another process went on: {said}");
        }
        pid = its_pid;
        std::thread::sleep(Duration::from_millis(chance.below(600)));
        match chance.below(4) {
            0 => {
                let said = program.verb("persist", &["--then", "kill"]);
                assert_eq!(said.code, 0, "kill {kill}: {}", said.all());
                assert_eq!(program.wait(), 0);
                program.cut(false);
            }
            1 => {
                program.start_verb("persist");
                std::thread::sleep(Duration::from_millis(chance.below(60)));
                program.cut(chance.below(2) == 0);
            }
            _ => program.cut(chance.below(2) == 0),
        }
    }
    assert!(
        restored >= kills / 2,
        "only {restored} of {kills}: {}",
        program.said()
    );
}
