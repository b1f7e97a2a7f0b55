//! An engine with a tracked container in it, and what all tests look at.

use dormouse_tests::alone::{Alone, alone};
use dormouse_tests::container_services::{Service, Writer};
use dormouse_tests::containers::{Podman, image_file, lacks, until};
use dormouse_tests::program::Chance;
use tempfile::TempDir;

pub const PERSIST: [&str; 4] = [
    "--annotation",
    "org.dormouse.persist=cache",
    "--annotation",
    "org.dormouse.epoch-interval=1s",
];
pub const RUN: [&str; 5] = ["run", "--detach", "--name", "cache", "--network"];

/// An engine with a service's image. One at a time: what is left on this machine is looked at.
pub struct Engine {
    pub podman: Podman,
    pub directory: TempDir,
    pub image: String,
    _alone: Alone,
}

impl Engine {
    /// With an image of that service; containers are run over `wrapped`. None, with a message, where
    /// this machine lacks an engine.
    pub fn new(wrapped: &str, service: &Service) -> Option<Self> {
        if lacks(&["podman", wrapped]) {
            return None;
        }
        let alone = alone();
        let directory = TempDir::new().expect("a directory");
        let file = image_file(service.name, service.packages);
        let image = service.tag();
        let podman = Podman::new(directory.path(), wrapped, &file, &image);
        Some(Self {
            podman,
            directory,
            image,
            _alone: alone,
        })
    }
}

/// How many times a node is lost.
pub fn losses() -> u64 {
    let given = std::env::var("DORMOUSE_TEST_LOSSES").ok();
    given.map_or(20, |text| text.parse().expect("a number"))
}

/// What the tracker in the container says; none: no answer.
pub fn status(podman: &Podman) -> Option<serde_json::Value> {
    let status = podman.said(&[
        "exec",
        "--user",
        "0",
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
    Some(status)
}

/// Number of the newest committed epoch.
pub fn epoch(podman: &Podman) -> Option<u64> {
    Some(
        status(podman)?["store"]["epoch"]["number"]
            .as_u64()
            .unwrap_or(0),
    )
}

/// How many numbers there are, when all of them are right.
pub fn present(podman: &Podman, service: &Service) -> u64 {
    let answer = until("an answer of the program", || {
        let got = podman.said(&[&["exec", "cache"], service.check].concat());
        let count = got.stdout.trim().parse::<i64>();
        count.ok().filter(|_| got.code == 0)
    });
    assert!(answer >= 0, "{} is lost or wrong between others", -answer);
    answer as u64
}

pub fn writer(podman: &Podman, service: &Service, first: u64) -> Writer {
    let client = podman.command(&[&["exec", "-i", "cache"], service.client].concat());
    Writer::start(client, service.write, first)
}

/// Writes until some epochs are over; what was acknowledged before the last one began is in it.
pub fn write_through_epochs(podman: &Podman, writer: &mut Writer, chance: &mut Chance) -> u64 {
    let mut kept = writer.acknowledged();
    let mut before = None;
    let mut epochs = 1 + chance.below(3);
    until("epochs", || {
        writer.write(1 + chance.below(200));
        let acknowledged = writer.acknowledged();
        let epoch = epoch(podman)?;
        if let Some((last, acknowledged_before)) = before
            && epoch > last
        {
            kept = acknowledged_before;
            epochs -= 1;
        }
        before = Some((epoch, acknowledged));
        (epochs == 0).then_some(())
    });
    kept
}

pub fn assert_started_once_and_nothing_is_left(podman: &Podman, service: &Service) {
    let log = podman.log("cache");
    let started = log.matches(service.started).count();
    assert_eq!(started, 1, "{} started once:\n{log}", service.name);
    podman.good(&["rm", "--force", "--time", "0", "cache"]);
    assert_eq!(podman.left(), Vec::<String>::new());
}
