//! PostgreSQL in a container under podman: memory and files that must fit.

use std::process::{Child, Stdio};

use dormouse_tests::container_services::{POSTGRES, Writer, initdb};
use dormouse_tests::containers::{Podman, until};
use dormouse_tests::program::Chance;

use super::engine::{
    Engine, PERSIST, RUN, assert_started_once_and_nothing_is_left, epoch, losses, present, status,
    write_through_epochs, writer,
};

/// A server's directory on a volume, with its first contents; the options of its container.
fn database(engine: &Engine) -> Vec<String> {
    let volume = initdb(&engine.podman, &engine.image, engine.directory.path());
    let volume = format!("{}:/data", volume.display());
    ["--volume", &volume, "--user", "postgres"]
        .map(str::to_owned)
        .to_vec()
}

fn query(podman: &Podman, words: &[&str]) -> String {
    podman.good(&[&["exec", "cache"], POSTGRES.client, words].concat())
}

fn ready(podman: &Podman) {
    until("an answer of PostgreSQL", || {
        let words = [&["exec", "cache"], POSTGRES.client, &["-c", "SELECT 1"]].concat();
        (podman.said(&words).code == 0).then_some(())
    });
}

/// What pgbench keeps equal, and what amcheck finds.
fn check_database(podman: &Podman) {
    let sums = query(
        podman,
        &[
            "-c",
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers) \
             AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history) \
             AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches)",
        ],
    );
    assert_eq!(sums, "t", "the sums of pgbench differ");
    let options = ["--heapallindexed", "--install-missing", "-d", "postgres"];
    podman.good(&tool(PG_AMCHECK, &options));
}

const PG_AMCHECK: &str = "/usr/lib/postgresql/15/bin/pg_amcheck";
const PGBENCH: &str = "/usr/lib/postgresql/15/bin/pgbench";

/// Words that run one of the server's programs in the container.
fn tool<'a>(program: &'static str, options: &[&'a str]) -> Vec<&'a str> {
    let server = ["-h", "127.0.0.1", "-p", "7393", "-U", "postgres"];
    [&["exec", "cache", program], &server[..], options].concat()
}

const DATA: [&str; 4] = [
    "--annotation",
    "org.dormouse.data=/data",
    "--annotation",
    "org.dormouse.changed-files=fresh",
];

/// A tracked server with tables.
fn start_database(engine: &Engine, annotations: &[&str]) {
    let podman = &engine.podman;
    let options = database(engine);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let program = [&[engine.image.as_str()], POSTGRES.command].concat();
    podman.good(
        &[
            &RUN[..],
            &["none"],
            &PERSIST,
            annotations,
            &options,
            &program,
        ]
        .concat(),
    );
    ready(podman);
    let table = "CREATE TABLE written (number bigint PRIMARY KEY)";
    query(podman, &["-c", table]);
    podman.good(&tool(PGBENCH, &["-i", "-q", "postgres"]));
}

/// A load that ends with the node.
fn pgbench(podman: &Podman) -> Child {
    let load = ["-n", "-c", "3", "-T", "1000", "postgres"];
    podman
        .command(&tool(PGBENCH, &load))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("pgbench can be started")
}

/// The node loses power; the last number that was acknowledged before, and the last that was written.
fn lose_power(podman: &Podman, writer: Writer, load: Option<Child>) -> (u64, u64) {
    let kept = writer.acknowledged();
    podman.lose_power("cache");
    let sent = writer.sent();
    drop(writer);
    if let Some(mut load) = load {
        let _ = load.kill();
        let _ = load.wait();
    }
    (kept, sent)
}

/// How many numbers there are after a loss: nothing that was acknowledged is missing, and the
/// database is whole.
fn started_again(podman: &Podman, loss: u64, (kept, sent): (u64, u64)) -> u64 {
    podman.good(&["start", "cache"]);
    let found = present(podman, &POSTGRES);
    assert!(
        kept <= found && found <= sent,
        "loss {loss}: {found} numbers, {kept} were acknowledged, {sent} were written\n{}",
        podman.log("cache")
    );
    check_database(podman);
    found
}

/// With a warning, as a power supply gives it: the program goes on, with everything that was
/// acknowledged.
#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn postgresql_in_a_container_goes_on_after_each_loss_of_power_with_a_warning() {
    let Some(engine) = Engine::new("runc", &POSTGRES) else {
        return;
    };
    let podman = &engine.podman;
    start_database(&engine, &DATA);
    let mut chance = Chance::new(19);
    let mut found = 0;
    for loss in 1..=losses() {
        let load = pgbench(podman);
        let mut writer = writer(podman, &POSTGRES, found + 1);
        write_through_epochs(podman, &mut writer, &mut chance);
        podman.good(&["kill", "--signal", "PWR", "cache"]);
        until("the epoch of the power loss", || {
            (status(podman)?["store"]["epoch"]["cause"] == "persist").then_some(())
        });
        let (kept, sent) = lose_power(podman, writer, Some(load));
        found = started_again(podman, loss, (kept, sent));
        println!("loss {loss}: {found} numbers of {sent}, {kept} of them acknowledged");
    }
    assert!(
        !podman.log("cache").contains("PANIC"),
        "{}",
        podman.log("cache")
    );
    assert_started_once_and_nothing_is_left(podman, &POSTGRES);
}

/// Without a warning its files are newer than the last epoch. It is never restored over them: it
/// recovers from its own log, and nothing that was acknowledged is lost. When nothing was written
/// since the epoch, it goes on.
#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn postgresql_in_a_container_is_never_restored_over_files_that_are_newer_than_its_epoch() {
    let Some(engine) = Engine::new("runc", &POSTGRES) else {
        return;
    };
    let podman = &engine.podman;
    start_database(&engine, &DATA);
    let mut chance = Chance::new(23);
    let mut found = 0;
    let starts = |log: &str| log.matches(POSTGRES.started).count();
    for loss in 1..=losses() {
        let before = starts(&podman.log("cache"));
        // Every third one without a write after the last epoch.
        let idle = loss % 3 == 0;
        let load = (!idle).then(|| pgbench(podman));
        let mut writer = writer(podman, &POSTGRES, found + 1);
        write_through_epochs(podman, &mut writer, &mut chance);
        if idle {
            until("the answers", || {
                (writer.acknowledged() == writer.sent()).then_some(())
            });
            let now = epoch(podman).expect("a tracker");
            until("an epoch", || {
                epoch(podman).filter(|epoch| *epoch > now + 1)
            });
        }
        let (kept, sent) = lose_power(podman, writer, load);
        found = started_again(podman, loss, (kept, sent));
        let log = podman.log("cache");
        let anew = starts(&log) - before;
        assert!(
            idle || anew == 1,
            "it was restored over newer files:\n{log}"
        );
        println!(
            "loss {loss}: {found} numbers of {sent}, {kept} acknowledged, {anew} started anew"
        );
    }
    let log = podman.log("cache");
    assert!(!log.contains("PANIC"), "{log}");
    let refusals = log.matches("as --fresh-if-changed says").count();
    assert_eq!(
        starts(&log),
        1 + refusals,
        "each start has a reason:\n{log}"
    );
    podman.good(&["rm", "--force", "--time", "0", "cache"]);
    assert_eq!(podman.left(), Vec::<String>::new());
}
