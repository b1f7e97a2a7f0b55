//! Containers under podman: those that are persisted go on after the loss of their node, all others
//! behave as with the wrapped runtime.

use std::path::Path;

use dormouse_tests::containers::{Podman, Writer, image_file, until};
use dormouse_tests::program::Chance;
use tempfile::TempDir;

const REDIS: &str = "localhost/redis:archive";
const PERSIST: [&str; 4] = [
    "--annotation",
    "org.dormouse.persist=cache",
    "--annotation",
    "org.dormouse.epoch-interval=1s",
];

fn podman(directory: &Path, wrapped: &str) -> Podman {
    let image = image_file("redis", &["redis-server", "redis-tools"]);
    Podman::new(directory, wrapped, &image, REDIS)
}

fn environment(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().expect("a number"))
}

/// Number of the newest committed epoch, by the tracker in the container; none: no answer.
fn epoch(podman: &Podman) -> Option<u64> {
    let status = podman.said(&[
        "exec",
        "cache",
        "/.dormouse/dormouse",
        "process",
        "status",
        "cache",
        "--store",
        "/.dormouse/store",
        "--json",
    ]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).ok()?;
    status["tracker"].as_object()?;
    Some(status["store"]["epoch"]["number"].as_u64().unwrap_or(0))
}

/// How many keys there are, when every one of them has its own number as value.
fn keys(podman: &Podman) -> u64 {
    const CHECK: &str = "local n = redis.call('DBSIZE') for i = 1, n do \
        if redis.call('GET', 'k' .. i) ~= tostring(i) then return -i end end return n";
    let answer = until("an answer of redis", || {
        let got = podman.said(&["exec", "cache", "redis-cli", "EVAL", CHECK, "0"]);
        (got.code == 0).then_some(got.stdout)
    });
    let count: i64 = answer
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("redis: {answer}"));
    assert!(
        count >= 0,
        "key k{} is lost or wrong between others",
        -count
    );
    count as u64
}

fn survives_losses(wrapped: &str) {
    let directory = TempDir::new().expect("a directory");
    let podman = podman(directory.path(), wrapped);
    let losses = environment("DORMOUSE_TEST_LOSSES", 20);
    let mut chance = Chance::new(19);
    let run = ["run", "--detach", "--name", "cache", "--network", "none"];
    let program = [REDIS, "redis-server", "--save", ""];
    podman.good(&[&run[..], &PERSIST, &program].concat());
    let mut present = keys(&podman);
    for loss in 1..=losses {
        let client = podman.command(&["exec", "-i", "cache", "redis-cli"]);
        let mut writer = Writer::start(client, present + 1);
        // What was acknowledged before an epoch began is in it.
        let mut kept = present;
        let mut before = None;
        let mut epochs = 1 + chance.below(3);
        until("epochs", || {
            writer.write(1 + chance.below(200));
            let acknowledged = writer.acknowledged();
            let epoch = epoch(&podman)?;
            if let Some((last, acknowledged_before)) = before
                && epoch > last
            {
                kept = acknowledged_before;
                epochs -= 1;
            }
            before = Some((epoch, acknowledged));
            (epochs == 0).then_some(())
        });
        writer.write(chance.below(500));
        podman.lose_power("cache");
        let sent = writer.sent();
        drop(writer);
        podman.good(&["start", "cache"]);
        present = keys(&podman);
        assert!(
            kept <= present && present <= sent,
            "loss {loss}: {present} keys, {kept} were in the last epoch, {sent} were written\n{}",
            podman.log("cache")
        );
        println!("loss {loss}: {present} keys of {sent}, {kept} of them safe before");
    }
    let log = podman.log("cache");
    assert_eq!(
        log.matches("Server initialized").count(),
        1,
        "redis started once:\n{log}"
    );
    podman.good(&["rm", "--force", "--time", "0", "cache"]);
    assert_eq!(podman.left(), Vec::<String>::new());
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn redis_in_a_container_goes_on_after_each_of_20_losses_of_its_node() {
    survives_losses("runc");
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn a_new_container_with_the_same_store_goes_on_where_the_lost_one_stood() {
    let directory = TempDir::new().expect("a directory");
    let podman = podman(directory.path(), "runc");
    let run = ["run", "--detach", "--name", "cache", "--network", "none"];
    let program = [REDIS, "redis-server", "--save", ""];
    let words = [&run[..], &PERSIST, &program].concat();
    podman.good(&words);
    keys(&podman);
    podman.good(&["exec", "cache", "redis-cli", "SET", "k1", "1"]);
    let now = epoch(&podman).expect("a tracker");
    until("an epoch", || {
        epoch(&podman).filter(|epoch| *epoch > now + 1)
    });
    podman.lose_power("cache");
    podman.good(&["rm", "--force", "cache"]);
    podman.good(&words);
    assert_eq!(keys(&podman), 1);
    let log = podman.log("cache");
    assert!(
        !log.contains("Server initialized"),
        "it was started anew:\n{log}"
    );
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn containers_end_with_the_code_and_the_output_that_they_have_without_us() {
    let directory = TempDir::new().expect("a directory");
    let podman = podman(directory.path(), "runc");
    let run = ["run", "--rm", "--network", "none"];
    let shell = |script| [REDIS, "sh", "-c", script];
    let script = "id -u; id -G; grep ^Cap /proc/self/status; echo x > /dev/stderr; exit 7";
    let as_user = ["--user", "33:33"];
    for user in [&[][..], &as_user] {
        let got = [&[][..], &PERSIST].map(|persist| {
            let got = podman.said(&[&run[..], persist, user, &shell(script)].concat());
            assert_eq!(got.code, 7, "{}", got.all());
            assert!(got.stderr.contains("x\n"), "{}", got.all());
            got.stdout
        });
        assert_eq!(got[0], got[1], "with us it has other rights than without");
    }
    // Nothing is left to restore of a program that ended by itself.
    let store = podman.stores().join("cache/cache.store");
    assert!(!store.exists(), "{} is left", store.display());
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn signals_that_are_sent_to_a_container_reach_its_program() {
    let directory = TempDir::new().expect("a directory");
    let podman = podman(directory.path(), "runc");
    let script = "for s in HUP INT QUIT USR1 USR2 WINCH; do trap \"echo $s\" $s; done; \
                  trap 'echo TERM; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let run = ["run", "--detach", "--name", "cache", "--network", "none"];
    podman.good(&[&run[..], &PERSIST, &[REDIS, "sh", "-c", script]].concat());
    let seen = |what: &str| {
        until(what, || {
            podman
                .log("cache")
                .lines()
                .any(|line| line == what)
                .then_some(())
        });
    };
    seen("ready");
    for signal in ["HUP", "INT", "QUIT", "USR1", "USR2", "WINCH"] {
        podman.good(&["kill", "--signal", signal, "cache"]);
        seen(signal);
    }
    podman.good(&["stop", "--time", "60", "cache"]);
    seen("TERM");
    let code = podman.good(&["inspect", "--format", "{{.State.ExitCode}}", "cache"]);
    assert_eq!(code, "3");
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn an_annotation_that_cannot_be_followed_is_named_and_nothing_is_started() {
    let directory = TempDir::new().expect("a directory");
    let podman = podman(directory.path(), "runc");
    let refused = |annotations: &[&str]| {
        let annotations: Vec<String> = annotations
            .iter()
            .map(|annotation| format!("--annotation=org.dormouse.{annotation}"))
            .collect();
        let annotations: Vec<&str> = annotations.iter().map(String::as_str).collect();
        let run = ["run", "--rm", "--network", "none"];
        let got = podman.said(&[&run[..], &annotations, &[REDIS, "echo", "started"]].concat());
        assert_eq!((got.code, got.stdout.as_str()), (126, ""), "{}", got.all());
        got.stderr
    };
    assert!(refused(&["persist=../x"]).contains("org.dormouse.persist=../x"));
    assert!(refused(&["persist=x", "budgets=1"]).contains("org.dormouse.budgets"));
    assert!(refused(&["persist=x", "store=/etc"]).contains("store_roots"));
    assert!(refused(&["budget=1MiB"]).contains("without org.dormouse.persist"));
}
