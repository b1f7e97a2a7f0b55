//! Containers under podman: those that are persisted go on after the loss of their node, all others
//! behave as with the wrapped runtime.

use dormouse_tests::container_services::{NODE, REDIS, Service};
use dormouse_tests::containers::until;
use dormouse_tests::program::Chance;

use super::engine::{
    Engine, PERSIST, RUN, assert_started_once_and_nothing_is_left, epoch, losses, present,
    write_through_epochs, writer,
};

/// Without a warning: the newest epoch is what comes back.
fn survives_losses(wrapped: &str, service: &Service) {
    let Some(engine) = Engine::new(wrapped, service) else {
        return;
    };
    let podman = &engine.podman;
    let mut chance = Chance::new(19);
    let image = [engine.image.as_str()];
    podman.good(&[&RUN[..], &["none"], &PERSIST, &image, service.command].concat());
    let mut found = present(podman, service);
    for loss in 1..=losses() {
        let mut writer = writer(podman, service, found + 1);
        let kept = write_through_epochs(podman, &mut writer, &mut chance);
        writer.write(chance.below(500));
        podman.lose_power("cache");
        let sent = writer.sent();
        drop(writer);
        podman.good(&["start", "cache"]);
        found = present(podman, service);
        assert!(
            kept <= found && found <= sent,
            "loss {loss}: {found} numbers, {kept} were in the last epoch, {sent} were written\n{}",
            podman.log("cache")
        );
        println!("loss {loss}: {found} numbers of {sent}, {kept} of them safe before");
    }
    assert_started_once_and_nothing_is_left(podman, service);
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn redis_in_a_container_goes_on_after_each_loss_of_its_node() {
    survives_losses("runc", &REDIS);
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn a_node_program_in_a_container_goes_on_after_each_loss_of_its_node() {
    survives_losses("runc", &NODE);
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn a_container_of_crun_goes_on_after_each_loss_of_its_node() {
    survives_losses("crun", &REDIS);
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn a_new_container_with_the_same_store_goes_on_where_the_lost_one_stood() {
    let Some(engine) = Engine::new("runc", &REDIS) else {
        return;
    };
    let podman = &engine.podman;
    let image = engine.image.as_str();
    let words = [&RUN[..], &["none"], &PERSIST, &[image], REDIS.command].concat();
    podman.good(&words);
    present(podman, &REDIS);
    podman.good(&[&["exec", "cache"], REDIS.client, &["SET", "k1", "1"]].concat());
    let now = epoch(podman).expect("a tracker");
    until("an epoch", || {
        epoch(podman).filter(|epoch| *epoch > now + 1)
    });
    podman.lose_power("cache");
    podman.good(&["rm", "--force", "cache"]);
    podman.good(&words);
    assert_eq!(present(podman, &REDIS), 1);
    let log = podman.log("cache");
    assert!(!log.contains(REDIS.started), "it was started anew:\n{log}");
}

#[test]
#[ignore = "make test-containers: engines, and an image of the archive's packages, as root"]
fn containers_end_with_the_code_and_the_output_that_they_have_without_us() {
    let Some(engine) = Engine::new("runc", &REDIS) else {
        return;
    };
    let podman = &engine.podman;
    let image = engine.image.as_str();
    let run = ["run", "--rm", "--network", "none"];
    let shell = |script| [image, "sh", "-c", script];
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
    let Some(engine) = Engine::new("runc", &REDIS) else {
        return;
    };
    let podman = &engine.podman;
    let image = engine.image.as_str();
    let script = "for s in HUP INT QUIT USR1 USR2 WINCH; do trap \"echo $s\" $s; done; \
                  trap 'echo TERM; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    podman.good(&[&RUN[..], &["none"], &PERSIST, &[image, "sh", "-c", script]].concat());
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
    let Some(engine) = Engine::new("runc", &REDIS) else {
        return;
    };
    let podman = &engine.podman;
    let image = engine.image.as_str();
    let refused = |annotations: &[&str]| {
        let annotations: Vec<String> = annotations
            .iter()
            .map(|annotation| format!("--annotation=org.dormouse.{annotation}"))
            .collect();
        let annotations: Vec<&str> = annotations.iter().map(String::as_str).collect();
        let run = ["run", "--rm", "--network", "none"];
        let got = podman.said(&[&run[..], &annotations, &[image, "echo", "started"]].concat());
        assert_eq!((got.code, got.stdout.as_str()), (126, ""), "{}", got.all());
        got.stderr
    };
    assert!(refused(&["persist=../x"]).contains("org.dormouse.persist=../x"));
    assert!(refused(&["persist=x", "budgets=1"]).contains("org.dormouse.budgets"));
    assert!(refused(&["persist=x", "store=/etc"]).contains("store_roots"));
    assert!(refused(&["budget=1MiB"]).contains("without org.dormouse.persist"));
}
