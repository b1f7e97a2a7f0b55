//! Containers under containerd, driven through its CRI socket as the kubelet drives it: a pod that is
//! started anew after the loss of its node goes on where it stood.

use std::fs;
use std::path::{Path, PathBuf};

use dormouse_tests::alone::alone;
use dormouse_tests::container_services::{NODE, POSTGRES, REDIS, Service, initdb};
use dormouse_tests::containerd::Containerd;
use dormouse_tests::containers::{Podman, image_file, lacks, until};
use dormouse_tests::dormouse;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

const PAUSE: &str = "localhost/pause:archive";

/// Images of a service and of a pod's pause container, as archives; `prepare` has an engine with the
/// first one.
fn images(directory: &Path, service: &Service, prepare: impl FnOnce(&Podman)) -> Vec<PathBuf> {
    let file = image_file(service.name, service.packages);
    let podman = Podman::new(&directory.join("podman"), "runc", &file, &service.tag());
    prepare(&podman);
    // The pause container of a pod: a static program that waits.
    let root = directory.join("pause/bin");
    fs::create_dir_all(&root).expect("made");
    fs::copy("/bin/busybox", root.join("busybox")).expect("busybox-static is installed");
    let tar = directory.join("pause.tar");
    let made = std::process::Command::new("tar")
        .args(["-C", &directory.join("pause").display().to_string(), "-cf"])
        .arg(&tar)
        .arg(".")
        .status();
    assert!(made.expect("tar can be started").success());
    let change = "CMD [\"/bin/busybox\", \"sleep\", \"1000000\"]";
    let tar = tar.display().to_string();
    podman.good(&["import", "--quiet", "--change", change, &tar, PAUSE]);
    [
        (service.tag().as_str(), "service.tar"),
        (PAUSE, "pause-image.tar"),
    ]
    .into_iter()
    .map(|(tag, file)| {
        let path = directory.join(file);
        let output = path.display().to_string();
        podman.good(&["save", "--quiet", "--output", &output, tag]);
        path
    })
    .collect()
}

/// The pod of `packaging/containers/pod.yaml`, as a kubelet asks for it. It has the node's network.
fn pod(attempt: u64, pids: u32) -> Value {
    let namespaces = json!({ "network": 2, "pid": pids });
    json!({
        "metadata": { "name": "cache-0", "namespace": "default", "uid": "u1", "attempt": attempt },
        "annotations": {
            "org.dormouse.persist.redis": "cache",
            "org.dormouse.store": "/dormouse",
            "org.dormouse.epoch-interval": "1s",
        },
        "linux": { "security_context": { "namespace_options": namespaces } },
    })
}

/// Its container, with the store on a volume and more volumes.
fn container(
    attempt: u64,
    service: &Service,
    store: &Path,
    data: Option<&Path>,
    pids: u32,
) -> Value {
    let mut security = json!({ "namespace_options": { "network": 2, "pid": pids } });
    let mut mounts = vec![json!({ "container_path": "/dormouse", "host_path": store })];
    if let Some(data) = data {
        security["run_as_username"] = json!("postgres");
        mounts.push(json!({ "container_path": "/data", "host_path": data }));
    }
    json!({
        "metadata": { "name": "redis", "attempt": attempt },
        "image": { "image": service.tag() },
        "command": service.command,
        "mounts": mounts,
        "log_path": "",
        "linux": { "security_context": security },
    })
}

/// How many numbers there are, when all of them are right.
fn present(engine: &Containerd, id: &str, service: &Service) -> i64 {
    until("an answer of the program", || {
        engine.exec(id, service.check)?.parse().ok()
    })
}

/// Number and cause of the newest epoch in a store, as the node sees it.
fn epoch(volume: &Path) -> Option<(u64, String)> {
    let place = volume.display().to_string();
    let said = dormouse(&["process", "list", "--store", &place, "--json"]);
    let stores: Value = serde_json::from_str(&said.stdout).ok()?;
    let epoch = &stores["stores"][0]["epoch"];
    Some((
        epoch["number"].as_u64()?,
        epoch["cause"].as_str()?.to_owned(),
    ))
}

/// PID namespaces, in the numbers of the interface.
const OF_POD: u32 = 0;
const OF_CONTAINER: u32 = 1;

/// A pod that is lost after a persist, again and again, and started anew with the same volumes.
fn survives_losses(service: &Service, pids: u32) {
    if lacks(&["podman", "containerd", "runc", "go"]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().expect("a directory");
    let mut data = None;
    let images = images(directory.path(), service, |podman| {
        if service.name == POSTGRES.name {
            data = Some(initdb(podman, &service.tag(), directory.path()));
        }
    });
    let volume = directory.path().join("volume");
    fs::create_dir(&volume).expect("made");
    let stores = directory.path().join("stores");
    let place = directory.path().join("node");
    let mut engine = Containerd::new(&place, &stores, &images, PAUSE);
    let losses = std::env::var("DORMOUSE_TEST_LOSSES").map_or(20, |n| n.parse().expect("a number"));
    let start = |engine: &Containerd, attempt: u64| {
        let container = container(attempt, service, &volume, data.as_deref(), pids);
        let started = engine.pod(&pod(attempt, pids), &container);
        started.unwrap_or_else(|error| panic!("attempt {attempt}: {error}"))
    };
    let (mut sandbox, mut id) = start(&engine, 0);
    if data.is_some() {
        until("PostgreSQL", || {
            let table = ["-c", "CREATE TABLE written (number bigint PRIMARY KEY)"];
            engine.exec(&id, &[service.client, &table].concat())
        });
    }
    assert_eq!(present(&engine, &id, service), 0);
    let life = engine.exec(&id, service.life).expect("its life");
    for loss in 1..=losses {
        let request = (service.write)(loss);
        let write = "echo \"$1\" | { shift; \"$@\"; }";
        let words = [&["sh", "-c", write, "sh", &request], service.client].concat();
        let written = engine.exec(&id, &words);
        assert_eq!(written.as_deref(), Some("OK"), "loss {loss}");
        let before = epoch(&volume);
        engine.signal(&id, Signal::POWER);
        until("the epoch of the power loss", || {
            let (number, cause) = epoch(&volume)?;
            (Some(number) > before.as_ref().map(|epoch| epoch.0) && cause == "persist")
                .then_some(())
        });
        engine.lose_power();
        engine.remove(&sandbox);
        (sandbox, id) = start(&engine, loss);
        assert_eq!(
            present(&engine, &id, service),
            loss as i64,
            "after loss {loss}"
        );
        let now = engine.exec(&id, service.life);
        assert_eq!(
            now.as_ref(),
            Some(&life),
            "loss {loss}: it was started anew"
        );
        println!("loss {loss}: {loss} numbers");
    }
    engine.remove(&sandbox);
    drop(engine);
    let mounts = fs::read_to_string("/proc/self/mounts").expect("readable");
    let here = place.display().to_string();
    assert!(!mounts.contains(&here), "mounts are left:\n{mounts}");
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn redis_in_a_pod_that_is_started_anew_after_each_loss_of_its_node_goes_on() {
    survives_losses(&REDIS, OF_CONTAINER);
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn a_node_program_in_a_pod_with_shared_pids_goes_on_after_each_loss_of_its_node() {
    survives_losses(&NODE, OF_POD);
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn postgresql_in_a_pod_that_is_started_anew_after_each_loss_of_its_node_goes_on() {
    survives_losses(&POSTGRES, OF_CONTAINER);
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn the_kubelet_is_told_which_annotation_cannot_be_followed() {
    if lacks(&["podman", "containerd", "runc", "go"]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().expect("a directory");
    let images = images(directory.path(), &REDIS, |_| ());
    let place = directory.path().join("node");
    let engine = Containerd::new(&place, &directory.path().join("stores"), &images, PAUSE);
    let mut wrong = pod(0, OF_CONTAINER);
    wrong["annotations"]["org.dormouse.budget"] = json!("much");
    let refused = engine.pod(
        &wrong,
        &container(0, &REDIS, directory.path(), None, OF_CONTAINER),
    );
    let reason = refused.expect_err("refused");
    assert!(reason.contains("org.dormouse.budget=much"), "{reason}");
}
