//! Runs every test of the suite many times, in random order, beside a load (`make test-soak`), or all of
//! them once (`make test`).
//!
//! ```text
//!  cargo test --no-run ─▶ test binaries ─▶ --list ─▶ tests
//!                                                     │ each round in another order (seed)
//!                        load: quiet, busy, CMD       ▼
//!                                  ┌── worker: binary --exact TEST ──┐
//!                                  └── worker: …                  ───┴─▶ journal, output of failures
//!                                                                          │
//!                                                  summary by test ◀───────┘
//! ```

mod load;
mod order;
mod run;
mod suite;
mod summary;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use dormouse_system::Root;
use dormouse_tests::alone::alone;
use dormouse_tests::bench::interrupt;
use dormouse_tests::bench::journal::{Entry, Journal};
use dormouse_tests::workspace;
use serde::{Deserialize, Serialize};

use load::Load;
use suite::Test;

/// Run every test many times in random order beside a load; an interrupted run goes on where it was.
#[derive(Parser)]
struct Args {
    /// How often each test runs
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// What else the machine does: quiet (nothing), busy (six busy loops), or a shell command that is restarted when it ends
    #[arg(long, default_value = "quiet")]
    load: Load,
    /// Order of tests: random; or by name, from which workers in turn take the first and the last
    #[arg(long, value_enum, default_value = "random")]
    order: Order,
    /// Decides the order of tests in each round [default: that of the interrupted run, else random]
    #[arg(long, conflicts_with = "order")]
    seed: Option<u64>,
    /// Tests that run at a time [default: one more than processors, as far as memory for a machine each lasts]
    #[arg(long)]
    jobs: Option<usize>,
    /// Only tests whose `binary::name` contains one of these words; with commas between
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only tests of this package, and build no other; may be repeated
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// Leave out tests whose `binary::name` contains one of these words
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,
    /// Also tests that `make test` leaves to `make test-full`
    #[arg(long)]
    full: bool,
    /// Only tests that `make test` leaves to `make test-full`
    #[arg(long, conflicts_with = "full")]
    ignored: bool,
    /// A test that takes longer than this many minutes is ended and counts as failed
    #[arg(long, default_value_t = 60)]
    limit_minutes: u64,
    /// Forget what ran before
    #[arg(long)]
    restart: bool,
    /// Go on with what was interrupted; a run that is complete, that has failures, or whose sources are in no commit is forgotten
    #[arg(long, conflicts_with = "restart")]
    resume: bool,
    /// Print the summary of what ran so far, and run nothing
    #[arg(long)]
    no_run: bool,
    /// Where journal, summary and the output of failures go
    #[arg(long, default_value = "out/soak")]
    out: PathBuf,
}

/// Behind the commit of sources that differ from it.
const CHANGED: &str = "-changed";
/// A test that takes so long gets a line.
const LONG_S: f64 = 1.0;
/// Memory of a test that runs an emulated machine: 2.5 GiB of the machine, and what beside it holds snapshots.
const TEST_BYTES: u64 = 4 << 30;
/// Of the output of a failed test, so many are shown.
const MAX_LINES: usize = 80;

/// How the tests of a round are ordered.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    Random,
    /// Tests that must be alone wait for each other, and lie together under one name: so only one worker has them.
    Name,
}

/// One run of one test; a line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ran {
    /// Commit and load.
    pub inputs: String,
    /// Name of the test.
    pub test: String,
    /// Number of the round.
    pub round: u32,
    /// Seed of the order.
    pub seed: u64,
    /// Whether it passed.
    pub ok: bool,
    /// Its duration.
    pub seconds: f64,
    /// Of the test and of all that it waited for, user and system.
    pub cpu_seconds: f64,
    /// Seconds since 1970.
    pub ended_unix: u64,
}

impl Entry for Ran {
    fn inputs(&self) -> &str {
        &self.inputs
    }

    fn case(&self) -> &str {
        &self.test
    }
}

fn main() -> ExitCode {
    interrupt::clean_up_if_interrupted();
    match soak(&Args::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failures) => {
            eprintln!("soak: {failures} runs failed");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("soak: {why}");
            ExitCode::FAILURE
        }
    }
}

fn soak(args: &Args) -> Result<usize, String> {
    let commit = match commit() {
        // Nothing of another commit is taken over.
        Err(_) if args.restart => "none".to_owned(),
        other => other?,
    };
    let folder = workspace().join(&args.out).join(&commit);
    std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let path = folder.join(format!("{}.jsonl", args.load.name()));
    if args.restart {
        let _ = std::fs::remove_file(&path);
    }
    let inputs = format!("{commit} {}", args.load);
    let open =
        || Journal::<Ran>::open(&path, &inputs).map_err(|why| format!("{}: {why}", path.display()));
    let mut journal = open()?;
    if !args.no_run {
        let tests = suite::tests(&args.package, args.full || args.ignored)?;
        let tests = suite::chosen(tests, &args.only, &args.skip, args.ignored);
        if tests.is_empty() {
            return Err("no test has such a name".into());
        }
        let is_changed = commit.ends_with(CHANGED);
        if args.resume && (is_changed || is_over(&journal.entries, &tests, args.rounds)) {
            std::fs::remove_file(&path).map_err(|why| format!("{}: {why}", path.display()))?;
            journal = open()?;
        }
        let begun_with = journal.entries.first().map(|ran| ran.seed);
        let seed = args.seed.or(begun_with).unwrap_or_else(some_seed);
        println!(
            "soak: commit {commit}, load {}, seed {seed}, {} runs so far; --seed {seed} repeats the order",
            args.load,
            journal.entries.len()
        );
        run_rounds(args, seed, &tests, &inputs, &mut journal, &folder)?;
    }
    let text = summary::page(&commit, &args.load, &journal.entries);
    let page = folder.join(format!("{}.md", args.load.name()));
    std::fs::write(&page, &text).map_err(|why| format!("{}: {why}", page.display()))?;
    // Of one round, each test was just said.
    let shown = match args.rounds {
        1 => text.lines().next().unwrap_or_default(),
        _ => &text,
    };
    println!("{shown}\neach test: {}", page.display());
    Ok(journal.entries.iter().filter(|ran| !ran.ok).count())
}

/// Whether nothing is left to run, or something has failed.
fn is_over(runs: &[Ran], tests: &[Test], rounds: u32) -> bool {
    let has_run = |test: &Test, round| {
        runs.iter()
            .any(|ran| ran.test == test.id && ran.round == round)
    };
    let all = (1..=rounds).all(|round| tests.iter().all(|test| has_run(test, round)));
    all || runs.iter().any(|ran| !ran.ok)
}

/// All rounds, one after the other; a test that an interrupted run has done in a round is left out.
fn run_rounds(
    args: &Args,
    seed: u64,
    tests: &[Test],
    inputs: &str,
    journal: &mut Journal<Ran>,
    folder: &Path,
) -> Result<(), String> {
    // Not orphans: a test waits until what it killed is gone, and nobody here would take the last word of it.
    let next = if args.restart {
        interrupt::BEGINS_ANEW
    } else {
        interrupt::GOES_ON
    };
    interrupt::leaves_nothing(None, next).map_err(|why| format!("signals: {why}"))?;
    let limit = Duration::from_secs(args.limit_minutes * 60);
    for round in 1..=args.rounds {
        let done = |test: &Test| {
            let mut runs = journal.of(&test.id);
            runs.any(|ran| ran.round == round)
        };
        let ordered = match args.order {
            Order::Random => order::shuffled(tests, seed, round),
            Order::Name => order::by(tests, |test| &test.id),
        };
        let queue: VecDeque<&Test> = ordered.into_iter().filter(|test| !done(test)).collect();
        let total = queue.len();
        if queue.is_empty() {
            continue;
        }
        println!("soak: round {round} of {}: {} tests", args.rounds, total);
        let _load = args.load.start()?;
        let (queue, journal) = (Mutex::new(queue), Mutex::new(&mut *journal));
        let worker = &|number: usize| -> Result<(), String> {
            let next = || match (args.order, number % 2) {
                (Order::Name, 1) => lock(&queue).pop_back(),
                _ => lock(&queue).pop_front(),
            };
            while let Some(test) = next() {
                let turn = wants_pids(&test.id).then(alone);
                let result = run::run(test, limit)?;
                drop(turn);
                let ran = Ran {
                    inputs: inputs.to_owned(),
                    test: test.id.clone(),
                    round,
                    seed,
                    ok: result.ok,
                    seconds: result.seconds,
                    cpu_seconds: result.cpu_seconds,
                    ended_unix: unix_now(),
                };
                // Of one round, only what says something.
                if args.rounds > 1 || !ran.ok || ran.seconds >= LONG_S {
                    report(&ran, &result.output, folder, args.load.name())?;
                }
                let mut journal = lock(&journal);
                journal.add(ran).map_err(|why| why.to_string())?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..args.jobs.unwrap_or_else(default_jobs).max(1))
                .map(|number| scope.spawn(move || worker(number)))
                .collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("no worker panics"))
        })?;
    }
    Ok(())
}

/// Whether a test restores programs to their PIDs, but is in a crate that cannot take the lock of these tests itself.
fn wants_pids(test: &str) -> bool {
    test.starts_with("process/") && !test.starts_with("process/dormouse_process::")
}

/// A test waits for timers and for disks for a seventh of its time: with one test more than processors, none idles.
fn default_jobs() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let free = dormouse_system::memory::read(&Root::host());
    let available = free.get("MemAvailable").copied().unwrap_or(0);
    (cpus + 1).min((available / TEST_BYTES) as usize)
}

/// One line for each run; the output of a failed one is kept.
fn report(ran: &Ran, output: &[u8], folder: &Path, load: &str) -> Result<(), String> {
    let verdict = if ran.ok { "ok    " } else { "FAILED" };
    println!("{verdict} {:7.1} s  {}", ran.seconds, ran.test);
    if ran.ok {
        return Ok(());
    }
    let name = ran.test.replace("::", "-").replace(['/', ' '], "_");
    let path = folder.join(format!("failed-{load}-{}-{name}.txt", ran.round));
    std::fs::write(&path, output).map_err(|why| format!("{}: {why}", path.display()))?;
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(MAX_LINES);
    println!(
        "       the end of its output, all of it in {}:",
        path.display()
    );
    for line in &lines[skipped..] {
        println!("       | {line}");
    }
    Ok(())
}

/// The commit of the checkout, marked where files were changed since.
fn commit() -> Result<String, String> {
    let git = |words: &[&str]| {
        let output = Command::new("git")
            .args(words)
            .current_dir(workspace())
            .output()
            .map_err(|why| format!("git: {why}"))?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(said).ok_or_else(|| {
            "this checkout has no commit; runs are kept by the commit that they tested".to_owned()
        })
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(if changed { commit + CHANGED } else { commit })
}

fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

fn some_seed() -> u64 {
    unix_now() ^ u64::from(std::process::id()) << 32
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(id: &str) -> Test {
        Test {
            id: id.to_owned(),
            binary: PathBuf::new(),
            name: id.to_owned(),
            ignored: false,
            package: PathBuf::new(),
        }
    }

    fn ran(test: &str, round: u32, ok: bool) -> Ran {
        Ran {
            inputs: String::new(),
            test: test.to_owned(),
            round,
            seed: 0,
            ok,
            seconds: 0.0,
            cpu_seconds: 0.0,
            ended_unix: 0,
        }
    }

    #[test]
    fn tests_that_restore_programs_to_their_pids_are_alone() {
        assert!(wants_pids("process/refusals::what_is_in_the_way"));
        assert!(!wants_pids("process/dormouse_process::store::index"));
        assert!(!wants_pids("tests/end_to_end::process::restore"));
    }

    #[test]
    fn a_run_is_over_when_each_test_has_run_in_each_round_or_one_has_failed() {
        let tests = [test("a"), test("b")];
        let mut runs = vec![ran("a", 1, true), ran("b", 1, true), ran("a", 2, true)];
        assert!(is_over(&runs, &tests, 1));
        assert!(!is_over(&runs, &tests, 2));
        runs.push(ran("b", 2, true));
        assert!(is_over(&runs, &tests, 2));
        assert!(!is_over(&[], &tests, 1));
        assert!(is_over(&[ran("a", 1, false)], &tests, 1));
    }
}
