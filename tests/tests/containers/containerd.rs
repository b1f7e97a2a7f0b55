//! Containers under containerd, driven through its CRI socket as the kubelet drives it: a pod that is
//! started anew after the loss of its node goes on where it stood.

use std::fs;
use std::path::{Path, PathBuf};

use dormouse_tests::containerd::Containerd;
use dormouse_tests::containers::{Podman, image_file, until};
use serde_json::{Value, json};
use tempfile::TempDir;

const REDIS: &str = "localhost/redis:archive";
const PAUSE: &str = "localhost/pause:archive";
const PORT: &str = "7391";

/// Both images, as archives.
fn images(directory: &Path) -> Vec<PathBuf> {
    let redis = image_file("redis", &["redis-server", "redis-tools"]);
    let podman = Podman::new(&directory.join("podman"), "runc", &redis, REDIS);
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
    [(REDIS, "redis-image.tar"), (PAUSE, "pause-image.tar")]
        .into_iter()
        .map(|(tag, file)| {
            let path = directory.join(file);
            podman.good(&[
                "save",
                "--quiet",
                "--output",
                &path.display().to_string(),
                tag,
            ]);
            path
        })
        .collect()
}

/// The pod of `packaging/containers/pod.yaml`, as a kubelet asks for it. It has the node's network.
fn pod(attempt: u32) -> Value {
    let network_of_node = json!({ "network": 2 });
    json!({
        "metadata": { "name": "cache-0", "namespace": "default", "uid": "u1", "attempt": attempt },
        "annotations": {
            "org.dormouse.persist.redis": "cache",
            "org.dormouse.store": "/dormouse",
            "org.dormouse.epoch-interval": "1s",
        },
        "linux": { "security_context": { "namespace_options": network_of_node } },
    })
}

fn container(attempt: u32, volume: &Path, log: &str) -> Value {
    let network_of_node = json!({ "network": 2 });
    json!({
        "metadata": { "name": "redis", "attempt": attempt },
        "image": { "image": REDIS },
        "command": ["redis-server", "--save", "", "--bind", "127.0.0.1", "--port", PORT],
        "mounts": [{ "container_path": "/dormouse", "host_path": volume }],
        "log_path": log,
        "linux": { "security_context": { "namespace_options": network_of_node } },
    })
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn a_pod_that_is_started_anew_after_each_of_20_losses_of_its_node_goes_on() {
    let directory = TempDir::new().expect("a directory");
    let images = images(directory.path());
    let volume = directory.path().join("volume");
    fs::create_dir(&volume).expect("made");
    let stores = directory.path().join("stores");
    let place = directory.path().join("node");
    let mut engine = Containerd::new(&place, &stores, &images, PAUSE);
    let losses = std::env::var("DORMOUSE_TEST_LOSSES").map_or(20, |n| n.parse().expect("a number"));
    let start = |engine: &Containerd, attempt: u32| {
        let started = engine.pod(&pod(attempt), &container(attempt, &volume, ""));
        started.unwrap_or_else(|error| panic!("attempt {attempt}: {error}"))
    };
    let cli = |engine: &Containerd, id: &str, words: &[&str]| {
        engine.exec(id, &[&["redis-cli", "-p", PORT], words].concat())
    };
    let (mut sandbox, mut id) = start(&engine, 0);
    let process = |id: &str, engine: &Containerd| {
        until("redis", || {
            cli(engine, id, &["INFO", "server"]).map(|info| {
                let run = info.lines().find(|line| line.starts_with("run_id:"));
                run.unwrap_or_else(|| panic!("no run_id in {info}"))
                    .trim()
                    .to_owned()
            })
        })
    };
    let run = process(&id, &engine);
    for loss in 1..=losses {
        let value = format!("value {loss}");
        let set = cli(&engine, &id, &["SET", &format!("k{loss}"), &value]);
        assert_eq!(set.as_deref(), Some("OK"));
        let epoch = |engine: &Containerd| {
            let status = engine.exec(
                &id,
                &[
                    "/.dormouse/dormouse",
                    "process",
                    "persist",
                    "cache",
                    "--store",
                    "/dormouse",
                ],
            );
            status.unwrap_or_else(|| panic!("no epoch"))
        };
        epoch(&engine);
        engine.lose_power();
        engine.remove(&sandbox);
        (sandbox, id) = start(&engine, loss);
        assert_eq!(process(&id, &engine), run, "another redis was started");
        for key in 1..=loss {
            let got = cli(&engine, &id, &["GET", &format!("k{key}")]);
            assert_eq!(got, Some(format!("value {key}")), "after loss {loss}");
        }
    }
    engine.remove(&sandbox);
    drop(engine);
    let mounts = fs::read_to_string("/proc/self/mounts").expect("readable");
    let here = place.display().to_string();
    assert!(!mounts.contains(&here), "mounts are left:\n{mounts}");
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn the_kubelet_is_told_which_annotation_cannot_be_followed() {
    let directory = TempDir::new().expect("a directory");
    let images = images(directory.path());
    let place = directory.path().join("node");
    let engine = Containerd::new(&place, &directory.path().join("stores"), &images, PAUSE);
    let mut wrong = pod(0);
    wrong["annotations"]["org.dormouse.budget"] = json!("much");
    let refused = engine.pod(&wrong, &container(0, directory.path(), ""));
    let reason = refused.expect_err("refused");
    assert!(reason.contains("org.dormouse.budget=much"), "{reason}");
}
