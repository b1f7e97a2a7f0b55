//! Tests of the annotations.

use super::*;

fn of(pairs: &[(&str, &str)]) -> Result<Option<Wanted>, AnnotationError> {
    let pairs = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    wanted(&pairs.collect())
}

#[test]
fn a_container_without_annotations_is_none_of_ours() {
    assert_eq!(of(&[]), Ok(None));
    assert_eq!(
        of(&[("io.kubernetes.cri.container-type", "container")]),
        Ok(None)
    );
    assert_eq!(of(&[("org.dormouses.persist", "x")]), Ok(None));
}

#[test]
fn options_are_handed_on() {
    let found = of(&[
        ("org.dormouse.persist", "cache"),
        ("org.dormouse.store", "/data/dormouse"),
        ("org.dormouse.epoch-interval", "500ms"),
        ("org.dormouse.budget", "64MiB"),
        ("org.dormouse.throttle", "25%"),
        ("org.dormouse.pause", "50ms"),
    ]);
    let found = found.expect("good annotations").expect("asked for");
    assert_eq!(found.name, "cache");
    assert_eq!(found.store, Some("/data/dormouse".into()));
    let options = [
        ["--budget", "64MiB"],
        ["--epoch-interval", "500ms"],
        ["--pause", "50ms"],
        ["--throttle", "25%"],
    ];
    assert_eq!(found.options, options.concat());
}

#[test]
fn what_is_wrong_is_named() {
    let wrong = |pairs: &[(&str, &str)]| of(pairs).expect_err("wrong").to_string();
    let named = wrong(&[("org.dormouse.persist", "../etc")]);
    assert!(named.contains("org.dormouse.persist=../etc"), "{named}");
    let named = wrong(&[("org.dormouse.persist", "a"), ("org.dormouse.budgets", "1")]);
    assert!(named.contains("org.dormouse.budgets"), "{named}");
    let named = wrong(&[
        ("org.dormouse.persist", "a"),
        ("org.dormouse.deadline", "soon"),
    ]);
    assert!(named.contains("org.dormouse.deadline=soon"), "{named}");
    let named = wrong(&[
        ("org.dormouse.persist", "a"),
        ("org.dormouse.throttle", "101"),
    ]);
    assert!(named.contains("0 to 100"), "{named}");
    let named = wrong(&[
        ("org.dormouse.persist", "a"),
        ("org.dormouse.throttle", "50"),
    ]);
    assert!(named.contains("budget or a deadline"), "{named}");
    for store in ["relative", "/a/../../etc", ""] {
        let named = wrong(&[("org.dormouse.persist", "a"), ("org.dormouse.store", store)]);
        assert!(named.contains("absolute"), "{named}");
    }
    let named = wrong(&[("org.dormouse.budget", "1MiB")]);
    assert!(named.contains("without org.dormouse.persist"), "{named}");
}

#[test]
fn of_a_pod_the_named_container_is_persisted_and_never_the_one_that_holds_its_namespaces() {
    let pod = [
        ("org.dormouse.persist.redis", "cache"),
        ("org.dormouse.epoch-interval", "1s"),
    ];
    let container = |name, kind| {
        let mut pairs = pod.to_vec();
        pairs.push(("io.kubernetes.cri.container-name", name));
        pairs.push(("io.kubernetes.cri.container-type", kind));
        of(&pairs)
    };
    assert_eq!(container("sidecar", "container"), Ok(None));
    assert_eq!(container("redis", "sandbox"), Ok(None));
    let found = container("redis", "container")
        .expect("good")
        .expect("asked for");
    assert_eq!(found.name, "cache");
    // Outside of a pod there is no container name that it could mean.
    assert!(of(&pod).is_err());
}

#[test]
fn files_of_a_database_belong_to_its_state_and_say_what_happens_when_they_have_changed() {
    let options = |changed| {
        let pairs = [
            ("org.dormouse.persist", "a"),
            ("org.dormouse.data", "/var/lib/db"),
            ("org.dormouse.changed-files", changed),
        ];
        of(&pairs).map(|wanted| wanted.expect("asked for").options)
    };
    let data = ["--data", "/var/lib/db"];
    assert_eq!(options("refuse").expect("good"), data);
    let fresh = options("fresh").expect("good");
    assert!(
        fresh.contains(&"--fresh-if-changed".to_owned()),
        "{fresh:?}"
    );
    let accept = options("accept").expect("good");
    assert!(
        accept.contains(&"--accept-changed-files".to_owned()),
        "{accept:?}"
    );
    let named = options("ignore").expect_err("wrong").to_string();
    assert!(
        named.contains("org.dormouse.changed-files=ignore"),
        "{named}"
    );
}
