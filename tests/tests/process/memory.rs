//! A program that checks the contents of each of its pages, killed at random instants.
//!
//! It maps, moves, drops, protects, forks and grows at random, small pages and huge ones, and
//! keeps a shadow copy (`process/tests/programs/memory_model.c`). Seeds are printed: a run is
//! repeated with DORMOUSE_SEED.

use std::fs;
use std::path::Path;
use std::time::Duration;

use dormouse_tests::alone::alone;
use dormouse_tests::program::{Chance, Program, compile};

/// How often each test kills it; DORMOUSE_KILLS says otherwise.
const KILLS: u64 = 10;
/// Huge pages that the program may reserve.
const RESERVED: u64 = 16;
/// Huge pages that there are. A forked child has no reservation: where it reads a page that its
/// parent never touched, it needs one that is not reserved, or dies of SIGBUS. And a fork
/// copies the pages that the tracker is just reading.
const POOL: u64 = 3 * RESERVED;
/// Of the tracker at a program that changes its mappings all the time.
const SCANS: u64 = 200;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().expect("a number"))
}

/// Huge pages of hugetlbfs, given back in the end.
struct HugePages {
    before: u64,
}

impl HugePages {
    const SETTING: &str = "/proc/sys/vm/nr_hugepages";

    fn reserve(count: u64) -> Self {
        let before = fs::read_to_string(Self::SETTING).expect("hugetlb");
        let before: u64 = before.trim().parse().expect("a number");
        let wanted = before + count;
        fs::write(Self::SETTING, wanted.to_string()).expect("root");
        let given = fs::read_to_string(Self::SETTING).expect("hugetlb");
        if given.trim().parse() != Ok(wanted) {
            // Memory is in pieces: files that are cached can be read again.
            let _ = fs::write("/proc/sys/vm/drop_caches", "1");
            let _ = fs::write("/proc/sys/vm/compact_memory", "1");
            fs::write(Self::SETTING, wanted.to_string()).expect("root");
        }
        Self { before }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(Self::SETTING, self.before.to_string());
    }
}

/// Where power fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum During {
    BackgroundSync,
    Throttling,
    Persist,
}

/// Kills the model and its tracker again and again, each time after a random time, and restores
/// what the store holds.
fn killed(seed: u64, during: During) {
    let seed = setting("DORMOUSE_SEED", seed);
    let kills = setting("DORMOUSE_KILLS", KILLS);
    println!("DORMOUSE_SEED={seed} DORMOUSE_KILLS={kills}");
    let alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let huge_pages = HugePages::reserve(POOL);
    let program = compile(directory.path(), "memory_model.c");
    let program = program.display().to_string();
    let mut options = vec!["--on-power-loss", "none", "--pause", "500ms"];
    match during {
        // Rounds and epochs without end.
        During::BackgroundSync => {
            options.extend(["--budget", "4MiB", "--epoch-interval", "50ms"]);
        }
        // Stopped again and again, so that no more than this is dirty.
        During::Throttling => {
            options.extend(["--budget", "1MiB", "--epoch-interval", "50ms"]);
            options.extend(["--throttle", "100"]);
        }
        // None but the one that is asked for.
        During::Persist => options.extend(["--epoch-interval", "60min"]),
    }
    let command = [&*program, &seed.to_string(), &RESERVED.to_string()];
    let mut program = Program::new(alone, directory.path(), "model", &options, &command);
    let mut chance = Chance::new(seed);
    let (mut restored, mut cut_short) = (0, 0);
    let mut pid = String::new();
    // The epoch that surely is in the store, and what the program had done before it was made.
    let (mut surely, mut done) = (0, 0);
    // Nanoseconds that a persist takes.
    let mut persist_ns = 100_000_000;
    // Whether an instant lies within a persist is up to the machine: it goes on until enough have.
    let enough_cut_short = |cut_short: u64| during != During::Persist || cut_short * 4 >= kills;
    let mut kill = 0;
    while kill < kills || !enough_cut_short(cut_short) && kill < 5 * kills {
        let what = format!("seed {seed}, kill {kill}");
        let verified = program.verb("verify", &["--json"]);
        let found: serde_json::Value = serde_json::from_str(&verified.stdout).unwrap_or_default();
        let epoch = found["epoch"]["epoch"].as_u64();
        let anew = verified.code == 1 && kill == 0 || verified.code == 0 && epoch.is_none();
        assert!(
            anew || verified.code == 0,
            "{what}: {}\n{}",
            verified.all(),
            program.said()
        );
        assert!(
            epoch.unwrap_or(0) >= surely,
            "{what}: epoch {surely} was there: {}",
            verified.all()
        );
        let before = program.said().len();
        program.run();
        assert!(program.wait_for("ok", 2), "{what}: {}", program.said());
        let said = program.said().split_off(before);
        assert!(!said.contains("DIFFERS"), "{what}: {said}");
        let rounds: Vec<(u64, String)> = said.lines().filter_map(round).collect();
        if anew {
            assert!(said.contains("huge pages"), "the program has none: {said}");
        } else {
            restored += 1;
            assert_eq!(rounds[0].1, pid, "{what}: another process went on: {said}");
            assert!(rounds[0].0 > done, "{what}: not the newest epoch: {said}");
        }
        pid.clone_from(&rounds[0].1);
        let newest = rounds.last().expect("some").0;
        match during {
            During::BackgroundSync | During::Throttling => {
                // An epoch, at least, that was made after this round.
                let mut had = None;
                program.until("an epoch", |program| {
                    let status = program.status();
                    // It does not answer while it ends.
                    let Some(has) = status["tracker"]["epochs"].as_u64() else {
                        return false;
                    };
                    let had = *had.get_or_insert(has);
                    // The one that was under way may be older than the round.
                    let made = has >= had + 2;
                    if made {
                        surely = status["tracker"]["last"]["epoch"]
                            .as_u64()
                            .expect("a number");
                    }
                    made
                });
                done = newest;
                std::thread::sleep(Duration::from_micros(chance.below(400_000)));
            }
            During::Persist if kill % 4 == 0 => {
                // To its end, for once.
                let said = program.verb("persist", &["--json", "--then", "kill"]);
                assert_eq!(said.code, 0, "{what}: {}", said.all());
                let report = said.report();
                surely = report["epoch"].as_u64().unwrap();
                persist_ns = report["total_ns"].as_u64().unwrap();
                done = newest;
                assert_eq!(program.wait(), 0);
            }
            During::Persist => {
                std::thread::sleep(Duration::from_micros(chance.below(100_000)));
                program.start_verb("persist");
                // The verb itself takes a few milliseconds to ask.
                let within = 5_000 + persist_ns / 1000 * 3 / 2;
                std::thread::sleep(Duration::from_micros(chance.below(within)));
                cut_short += u64::from(program.verb_runs());
            }
        }
        program.cut(chance.below(2) == 0);
        kill += 1;
    }
    println!("{restored} of {kill} restored, {cut_short} in the middle of a persist");
    let enough = kill.saturating_sub(1) * 2 / 3;
    assert!(
        restored >= enough,
        "only {restored} of {kill}: {}",
        program.said()
    );
    assert!(
        enough_cut_short(cut_short),
        "only {cut_short} of {kill} were cut short"
    );
    drop(huge_pages);
}

/// "ok ROUND PID".
fn round(line: &str) -> Option<(u64, String)> {
    let mut words = line.strip_prefix("ok ")?.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
}

#[test]
fn killed_at_any_instant_of_background_sync_the_newest_epoch_restores_and_every_page_is_right() {
    killed(7, During::BackgroundSync);
}

#[test]
fn killed_while_it_is_held_to_its_budget_the_newest_epoch_restores_and_every_page_is_right() {
    killed(9, During::Throttling);
}

#[test]
fn killed_at_any_instant_of_a_persist_the_newest_epoch_restores_and_every_page_is_right() {
    killed(8, During::Persist);
}

/// One of the test programs, alone on this machine; not started yet.
fn compiled(directory: &Path, source: &str, name: &str, options: &[&str]) -> Program {
    let alone = alone();
    let program = compile(directory, source).display().to_string();
    Program::new(alone, directory, name, options, &[&program])
}

/// Protecting a mapping whose bounds are those of a moment ago would split it.
#[test]
fn a_mapping_that_grows_and_moves_under_background_sync_stays_whole() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--on-power-loss", "none", "--epoch-interval", "20ms"];
    let mut program = compiled(directory.path(), "grow_and_move.c", "mover", &options);
    program.run();
    assert!(program.wait_for("ok", 1), "{}", program.said());
    program.until("scanned often", |program| {
        program.status()["tracker"]["rounds"].as_u64() >= Some(SCANS)
    });
    let said = program.verb("persist", &["--then", "continue"]);
    assert_eq!(said.code, 0, "{}", said.all());
    assert!(program.wait_for("ok", 2), "{}", program.said());
    assert!(!program.said().contains("FAILED"), "{}", program.said());
}

/// A program after so many lives: it says "ok" `count` times in each before it is persisted.
fn lived(lives: usize, count: usize, mut program: Program) -> Program {
    program.run();
    for life in 1..=lives {
        assert!(
            program.wait_for("ok", count),
            "life {life}: {}",
            program.said()
        );
        program.persist_and_kill(&format!("life {life}"));
        program.run();
    }
    assert!(program.wait_for("ok", count), "{}", program.said());
    program
}

/// The top of a stack is written before the program runs. Where huge pages are given without
/// asking, 511 pages of zeros would come with it and hide what the store has for them.
#[test]
fn a_huge_page_is_not_in_the_way_of_pages_that_are_still_to_come() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--on-power-loss", "none"];
    let program = compiled(directory.path(), "huge_stack.c", "stack", &options);
    let program = &mut lived(3, 2, program);
    let said = program.said();
    assert!(!said.contains("DIFFERS"), "{said}");
    let status = program.status();
    let pid = status["tracker"]["pids"][0].as_i64().expect("a number");
    let allowed = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(allowed.contains("THP_enabled:\t1"), "{allowed}");
    program.cut(false);
}

/// A persist that is to kill the program protects no page: what it has read counts as written still.
#[test]
fn what_is_written_after_a_persist_failed_that_was_to_kill_is_in_the_next_one() {
    const LIVES: usize = 3;
    let directory = tempfile::tempdir().unwrap();
    let options = ["--on-power-loss", "none", "--epoch-interval", "60min"];
    let alone = alone();
    let model = compile(directory.path(), "memory_model.c");
    let command = [&*model.display().to_string(), "9", "0"];
    let mut program = Program::new(alone, directory.path(), "model", &options, &command);
    // The memory is in the store when the rehearsal fails.
    program.start_through(&["env", "DORMOUSE_REHEARSAL_FAULT=end"]);
    program.run();
    for life in 1..=LIVES {
        for _ in 0..3 {
            assert!(program.wait_for("ok", 2), "{}", program.said());
            let said = program.verb("persist", &["--rehearse", "--then", "kill"]);
            assert_eq!(said.code, 1, "life {life}: {}", said.all());
            assert!(said.stderr.contains("rehearsal"), "{}", said.all());
        }
        assert!(program.wait_for("ok", 2), "{}", program.said());
        program.persist_and_kill(&format!("life {life}"));
        program.run();
    }
    assert!(program.wait_for("ok", 2), "{}", program.said());
    assert!(!program.said().contains("DIFFERS"), "{}", program.said());
    program.cut(false);
}

/// Of a large program, what it advises is not read from `smaps` while it is stopped, and what was read
/// before would be of the past.
#[test]
fn advice_that_a_large_program_gives_at_any_instant_is_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--on-power-loss", "none", "--epoch-interval", "60min"];
    let program = compiled(directory.path(), "advises.c", "advises", &options);
    let program = &mut lived(8, 2, program);
    let said = program.said();
    assert!(!said.contains("DIFFERS"), "{said}");
    program.cut(false);
}

/// A copy that reaches over the end of a mapping is refused whole, and one to where a mapping has
/// just been says that nothing is there: neither may lose what it carries. What is wiped for
/// children is not brought to them.
#[test]
fn memory_that_is_split_and_moved_while_its_pages_come_gets_all_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--on-power-loss", "none", "--epoch-interval", "60min"];
    let program = compiled(
        directory.path(),
        "changes_while_filled.c",
        "changes",
        &options,
    );
    let program = &mut lived(4, 1, program);
    let said = program.said();
    assert!(
        !said.contains("DIFFERS") && !said.contains("FAILED"),
        "{said}"
    );
    program.cut(false);
}

/// ASLR, huge pages of both kinds, MADV_DONTNEED (of whole huge pages, too), mremap, fork and
/// brk in loops: other sequences each time, through persist, death and restore.
#[test]
fn the_memory_model_holds_for_random_sequences_and_each_way_to_restore() {
    let seeds = setting("DORMOUSE_SEEDS", 4);
    let first = setting("DORMOUSE_SEED", 100);
    for seed in first..first + seeds {
        let way = [
            &[][..],
            &["--eager"],
            &["--verify-first"],
            &["--no-tracking"],
        ];
        let way = way[(seed % 4) as usize];
        println!("DORMOUSE_SEED={seed} DORMOUSE_SEEDS=1 {way:?}");
        let alone = alone();
        let huge_pages = HugePages::reserve(POOL);
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path(), "memory_model.c")
            .display()
            .to_string();
        let options = [&["--on-power-loss", "none", "--budget", "8MiB"], way].concat();
        let command = [&*program, &seed.to_string(), &RESERVED.to_string()];
        let mut program = Program::new(alone, directory.path(), "model", &options, &command);
        program.run();
        for life in 0..3 {
            assert!(
                program.wait_for("ok", 3),
                "seed {seed}, life {life}: {}",
                program.said()
            );
            program.persist_and_kill(&format!("seed {seed}, life {life}"));
            program.run();
        }
        assert!(program.wait_for("ok", 3), "seed {seed}: {}", program.said());
        let said = program.said();
        assert!(!said.contains("DIFFERS"), "seed {seed}: {said}");
        // Not one round is missing or was done twice, all in one process.
        let rounds: Vec<(u64, String)> = said.lines().filter_map(round).collect();
        for (at, (number, pid)) in rounds.iter().enumerate() {
            assert_eq!(
                (*number, pid),
                (at as u64 + 1, &rounds[0].1),
                "seed {seed}: {said}"
            );
        }
        program.cut(false);
        // While no other test has begun.
        drop(huge_pages);
    }
}

/// Programs that check themselves: each ends with the number of differences that it finds.
#[test]
fn private_mappings_and_other_details_are_as_they_were_after_each_life() {
    for source in ["private_of_shared.c", "details.c"] {
        let directory = tempfile::tempdir().expect("a directory");
        let binary = compile(directory.path(), source);
        let script = format!(
            "cd {} && exec {}",
            directory.path().display(),
            binary.display()
        );
        let options = ["--on-power-loss", "none", "--epoch-interval", "60min"];
        let command = ["sh", "-c", &script];
        let mut program = Program::new(alone(), directory.path(), "it", &options, &command);
        program.run();
        program.until("ready", |program| program.said().contains("ready"));
        // Twice: the second state is that of a restored program.
        for life in 0..2 {
            program.persist_and_kill(&format!("{source}, life {life}"));
            program.run();
            program.until("restored", |program| {
                program.status()["tracker"]["epochs"].is_u64()
            });
        }
        fs::write(directory.path().join("go"), "").expect("go");
        assert_eq!(program.wait(), 0, "{source}: {}", program.said());
    }
}
