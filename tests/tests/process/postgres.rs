//! PostgreSQL in its default configuration: it has shared memory of System V, of POSIX and of its own,
//! ten processes, and files that must fit its memory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dormouse_tests::alone::alone;
use dormouse_tests::program::{Chance, Program};
use dormouse_tests::{Said, containers::until};

const PORT: &str = "57319";

/// Where the distribution keeps the programs of its newest PostgreSQL.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("postgresql is installed");
    let mut found: Vec<PathBuf> = versions.flatten().map(|entry| entry.path()).collect();
    found.sort();
    found.last().expect("a version").join("bin")
}

/// PostgreSQL never runs as root.
fn as_postgres(words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    let rights = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
    command.args(rights).args(words).env("PGHOST", "127.0.0.1");
    command.env("PGPORT", PORT).env("PGUSER", "postgres");
    command.stdin(Stdio::null()).current_dir("/");
    command
}

fn said(words: &[&str]) -> Said {
    let output = as_postgres(words).output().expect("it can be started");
    Said {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn good(words: &[&str]) -> String {
    let said = said(words);
    assert_eq!(said.code, 0, "{words:?}: {}", said.all());
    said.stdout
}

fn query(text: &str) -> String {
    let words = [
        "psql",
        "-XAtq",
        "-v",
        "ON_ERROR_STOP=1",
        "-c",
        text,
        "postgres",
    ];
    good(&words).trim().to_owned()
}

/// A client that commits one number after the other and notes each that was acknowledged.
struct Writer {
    client: Child,
    acknowledged: PathBuf,
}

impl Writer {
    fn start(directory: &Path, round: u32) -> Self {
        let acknowledged = directory.join(format!("acknowledged-{round}"));
        let script = directory.join("writer.sql");
        let text = "INSERT INTO written SELECT coalesce(max(number), 0) + 1 FROM written RETURNING number\n\
                    \\watch 0.001\n";
        fs::write(&script, text).expect("written");
        let output = fs::File::create(&acknowledged).expect("made");
        let file = script.display().to_string();
        let client = as_postgres(&[
            "psql",
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-f",
            &file,
            "postgres",
        ])
        .stdout(output)
        .stderr(Stdio::null())
        .spawn()
        .expect("psql can be started");
        Self {
            client,
            acknowledged,
        }
    }

    fn newest(&self) -> u64 {
        let text = fs::read_to_string(&self.acknowledged).unwrap_or_default();
        // A last line without its end was not acknowledged yet.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let numbers = whole.lines().filter_map(|line| line.trim().parse().ok());
        numbers.max().unwrap_or(0)
    }

    fn end(mut self) -> u64 {
        let _ = self.client.kill();
        let _ = self.client.wait();
        self.newest()
    }
}

/// What pgbench keeps equal, and what amcheck finds.
fn check(kept: u64) {
    let sums = query(
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), \
         (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)",
    );
    let sums: Vec<&str> = sums.split('|').collect();
    assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    let (count, newest) = (
        query("SELECT count(*) FROM written"),
        query("SELECT max(number) FROM written"),
    );
    assert_eq!(count, newest, "a number is missing, or there twice");
    let newest: u64 = newest.parse().expect("a number");
    assert!(
        newest >= kept,
        "{kept} was acknowledged, {newest} is the newest"
    );
    let amcheck = programs().join("pg_amcheck").display().to_string();
    let checked = said(&[
        &amcheck,
        "--heapallindexed",
        "--install-missing",
        "-d",
        "postgres",
    ]);
    assert_eq!(checked.code, 0, "{}", checked.all());
}

/// How often power is lost.
fn rounds() -> u32 {
    std::env::var("DORMOUSE_TEST_CUTS").map_or(4, |n| n.parse().expect("a number"))
}

fn bin(name: &str) -> String {
    programs().join(name).display().to_string()
}

fn answers(_: &Program) -> bool {
    said(&["psql", "-XAtqc", "SELECT 1", "postgres"]).code == 0
}

/// A server with the tables of pgbench and of the writer, tracked with an epoch a second.
fn server(directory: &Path, options: &[&str]) -> Program {
    let mode = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory, mode).expect("its mode");
    let data = directory.join("data").display().to_string();
    good(&[&bin("initdb"), "--auth=trust", "--no-sync", "-D", &data]);
    let sockets = directory.display().to_string();
    let command = [
        "setpriv",
        "--reuid=postgres",
        "--regid=postgres",
        "--clear-groups",
        &bin("postgres"),
        "-D",
        &data,
        "-p",
        PORT,
        "-k",
        &sockets,
    ];
    let usual = ["--on-power-loss", "none", "--epoch-interval", "1s"];
    let options = [&usual[..], options].concat();
    let mut program = Program::new(alone(), directory, "it", &options, &command);
    program.run();
    program.until("an answer", answers);
    good(&[&bin("pgbench"), "-i", "-q", "postgres"]);
    query("CREATE TABLE written (number bigint PRIMARY KEY)");
    program
}

/// A load that ends with the server.
fn pgbench() -> Child {
    as_postgres(&[&bin("pgbench"), "-n", "-c", "3", "-T", "1000", "postgres"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("pgbench can be started")
}

fn end(mut client: Child) {
    let _ = client.kill();
    let _ = client.wait();
}

#[test]
fn postgresql_under_load_goes_on_after_each_persist_and_loses_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = server(directory.path(), &[]);
    let mut chance = Chance::new(19);
    let mut kept = 0;
    for round in 0..rounds() {
        let writer = Writer::start(directory.path(), round);
        let load = pgbench();
        let wanted = kept + 1 + chance.below(100);
        program.until("acknowledged", |_| writer.newest() >= wanted);
        let persisted = program.verb("persist", &["--then", "kill"]);
        assert_eq!(persisted.code, 0, "{}\n{}", persisted.all(), program.said());
        assert_eq!(program.wait(), 0, "{}", program.said());
        kept = writer.end();
        end(load);
        program.run();
        program.until("an answer", answers);
        check(kept);
    }
    assert!(
        !fs::read_to_string(program.output())
            .expect("readable")
            .contains("PANIC"),
        "{}",
        program.said()
    );
    until("the end of what its clients left", || {
        let rest =
            query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'");
        (rest == "0").then_some(())
    });
}

/// Its files are newer than the last epoch: it is never restored over them, but recovers from its own
/// log. When nothing was written since the epoch, it may go on.
#[test]
fn postgresql_killed_at_any_instant_loses_nothing_and_is_never_restored_over_newer_files() {
    let directory = tempfile::tempdir().expect("a directory");
    // On a busy machine its writes do not fit the usual pause for minutes, and each epoch is postponed.
    let options = ["--fresh-if-changed", "--pause", "2s"];
    let mut program = server(directory.path(), &options);
    let started = || query("SELECT pg_postmaster_start_time()");
    let mut chance = Chance::new(29);
    let (mut kept, mut went_on) = (0, 0);
    for round in 0..rounds() {
        let before = started();
        // Every third time without a write after the last epoch.
        let idle = round % 3 == 2;
        let load = (!idle).then(pgbench);
        let writer = Writer::start(directory.path(), round);
        let wanted = kept + 1 + chance.below(100);
        program.until("acknowledged", |_| writer.newest() >= wanted);
        if idle {
            kept = writer.end();
            let now = program.epochs();
            program.until("an epoch after the last write", |it| it.epochs() > now + 1);
            program.cut(chance.below(2) == 0);
        } else {
            program.until_epoch();
            // A random instant; what it hit is judged by what came back.
            std::thread::sleep(Duration::from_millis(chance.below(1000)));
            program.cut(chance.below(2) == 0);
            kept = writer.end();
        }
        load.into_iter().for_each(end);
        program.run();
        program.until("an answer", answers);
        check(kept);
        let same = started() == before;
        assert!(
            idle || !same,
            "it was restored over newer files: {}",
            program.said()
        );
        went_on += u32::from(same);
    }
    println!("{} kills, {went_on} restores", rounds());
    assert!(!program.said().contains("PANIC"), "{}", program.said());
}
