//! Tests of the changes to a configuration.

use proptest::prelude::*;

use super::*;

fn node() -> Node {
    Node {
        command: "/usr/bin/dormouse".into(),
        store: "/var/lib/dormouse/containers".into(),
        store_roots: vec!["/var/lib/dormouse/containers".into(), "/mnt/pmem".into()],
    }
}

/// As podman writes it, shortened.
fn config() -> Value {
    json!({
        "ociVersion": "1.0.2-dev",
        "process": {
            "user": { "uid": 0, "gid": 0, "umask": 18 },
            "args": ["redis-server", "--save", ""],
            "env": ["PATH=/usr/bin"],
            "cwd": "/data",
            "capabilities": { "bounding": ["CAP_KILL", "CAP_CHOWN"], "effective": ["CAP_KILL"],
                              "permitted": ["CAP_KILL", "CAP_CHOWN"], "inheritable": [] },
            "noNewPrivileges": true
        },
        "root": { "path": "rootfs", "readonly": true },
        "mounts": [{ "destination": "/data", "type": "bind", "source": "/v", "options": ["rbind"] }],
        "annotations": { "org.dormouse.persist": "cache" },
        "linux": {
            "namespaces": [{ "type": "mount" }, { "type": "pid" }],
            "seccomp": {
                "defaultAction": "SCMP_ACT_ERRNO",
                "syscalls": [
                    { "names": ["read", "ptrace"], "action": "SCMP_ACT_ALLOW" },
                    { "names": ["userfaultfd"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1 }
                ]
            },
            "notOfThisVersion": { "kept": [1, 2.5, null] }
        }
    })
}

fn changed(config: &Value) -> Changed {
    change(&config.to_string(), &node(), |_| {
        Some("/home/redis".to_owned())
    })
    .expect("a good configuration")
    .expect("it asks for it")
}

fn refused(config: &Value) -> String {
    let refused = change(&config.to_string(), &node(), |_| None).expect_err("refused");
    refused.to_string()
}

#[test]
fn a_container_that_does_not_ask_is_left_alone() {
    let mut config = config();
    config["annotations"] = json!({ "other": "x" });
    assert!(
        change(&config.to_string(), &node(), |_| None)
            .expect("good")
            .is_none()
    );
    config
        .as_object_mut()
        .expect("an object")
        .remove("annotations");
    assert!(
        change(&config.to_string(), &node(), |_| None)
            .expect("good")
            .is_none()
    );
}

#[test]
fn a_program_that_would_share_pids_gets_a_namespace_of_its_own() {
    for namespaces in [
        json!([{ "type": "mount" }]),
        json!([{ "type": "pid", "path": "/proc/17/ns/pid" }]),
    ] {
        let mut config = config();
        config["linux"]["namespaces"] = namespaces;
        let changed = changed(&config);
        let arguments = changed.config["process"]["args"].to_string();
        assert!(arguments.contains("--isolate"), "{arguments}");
    }
}

#[test]
fn the_tracker_becomes_the_init_and_the_program_keeps_its_arguments() {
    let changed = changed(&config());
    let arguments = changed.config["process"]["args"]
        .as_array()
        .expect("arguments");
    let arguments: Vec<&str> = arguments.iter().filter_map(Value::as_str).collect();
    let drop = "CAP_SYS_PTRACE,CAP_CHECKPOINT_RESTORE,CAP_SYS_ADMIN,CAP_SYS_TIME,CAP_NET_ADMIN,CAP_SETPCAP,\
                CAP_SETUID,CAP_SETGID,CAP_DAC_OVERRIDE,CAP_DAC_READ_SEARCH,CAP_IPC_OWNER,CAP_FOWNER,CAP_SYS_NICE,CAP_NET_RAW";
    assert_eq!(
        arguments,
        [
            COMMAND,
            "process",
            "run",
            "cache",
            "--store",
            STORE,
            "--drop-capabilities",
            drop,
            "--",
            "redis-server",
            "--save",
            ""
        ]
    );
    let store = PathBuf::from("/var/lib/dormouse/containers/cache");
    let host = HostStore {
        path: store,
        owner: 0,
    };
    assert_eq!(changed.host_store, Some(host));
    let mounts = changed.config["mounts"].as_array().expect("mounts");
    assert_eq!(mounts[0]["destination"], "/data");
    assert_eq!(mounts[1]["destination"], COMMAND);
    assert_eq!(mounts[2]["destination"], STORE);
}

#[test]
fn only_what_the_tracker_needs_is_changed() {
    let before = config();
    let mut after = changed(&before).config;
    after["process"]["args"] = before["process"]["args"].clone();
    after["process"]["capabilities"] = before["process"]["capabilities"].clone();
    after["mounts"] = before["mounts"].clone();
    after["linux"]["seccomp"]["syscalls"] = before["linux"]["seccomp"]["syscalls"].clone();
    assert_eq!(after, before);
}

#[test]
fn a_profile_that_refuses_a_call_of_the_tracker_allows_it_and_nothing_else() {
    let rules = changed(&config()).config["linux"]["seccomp"]["syscalls"].clone();
    assert_eq!(
        rules[0],
        json!({ "names": ["read"], "action": "SCMP_ACT_ALLOW" })
    );
    assert_eq!(
        rules[1],
        json!({ "names": CALLS, "action": "SCMP_ACT_ALLOW" })
    );
    assert_eq!(rules.as_array().map(Vec::len), Some(2));
}

#[test]
fn a_program_of_another_user_is_started_as_that_user_by_a_tracker_that_is_root() {
    let mut config = config();
    config["process"]["user"] =
        json!({ "uid": 999, "gid": 1000, "additionalGids": [4], "umask": 18 });
    let after = changed(&config).config;
    assert_eq!(
        after["process"]["user"],
        json!({ "uid": 0, "gid": 0, "umask": 18 })
    );
    let arguments = after["process"]["args"]
        .as_array()
        .expect("arguments")
        .clone();
    let at = arguments
        .iter()
        .position(|a| a == "--user")
        .expect("a user");
    assert_eq!(arguments[at + 1], "999:1000,4");
    assert_eq!(
        after["process"]["env"],
        json!(["PATH=/usr/bin", "HOME=/home/redis"])
    );
    config["process"]["env"] = json!(["HOME=/x"]);
    assert_eq!(
        changed(&config).config["process"]["env"],
        json!(["HOME=/x"])
    );
}

#[test]
fn a_store_is_on_a_volume_or_below_a_directory_that_the_node_gives() {
    let mut config = config();
    let mut at = |store: &str| {
        config["annotations"]["org.dormouse.store"] = json!(store);
        config.clone()
    };
    let volume = changed(&at("/data/dormouse"));
    assert_eq!(volume.host_store, None);
    assert_eq!(volume.config["process"]["args"][5], "/data/dormouse");
    let given = changed(&at("/mnt/pmem/a")).host_store.expect("a directory");
    assert_eq!(given.path, PathBuf::from("/mnt/pmem/a/cache"));
    for elsewhere in ["/etc", "/mnt/pmem2", "/database"] {
        let reason = refused(&at(elsewhere));
        assert!(
            reason.contains(elsewhere) && reason.contains("store_roots"),
            "{reason}"
        );
    }
}

#[test]
fn in_a_user_namespace_the_store_belongs_to_the_containers_root() {
    let mut config = config();
    config["linux"]["uidMappings"] = json!([
        { "containerID": 1, "hostID": 5, "size": 9 },
        { "containerID": 0, "hostID": 100_000, "size": 1 }
    ]);
    assert_eq!(
        changed(&config).host_store.expect("a directory").owner,
        100_000
    );
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_with_a_reason() {
    let mut config = config();
    config["process"]["args"] = json!([]);
    assert!(refused(&config).contains("process.args"));
    config["process"]["args"] = json!("redis-server");
    assert!(refused(&config).contains("no configuration"));
    let torn = change("{\"process\":", &node(), |_| None).expect_err("refused");
    assert!(torn.to_string().contains("no configuration"));
}

/// Values that an engine would never write, in the places that are read.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!("x")),
        Just(json!(-1)),
        Just(json!([null, 1, "CAP_KILL"])),
    ]
}

proptest! {
    #[test]
    fn an_odd_configuration_is_changed_or_refused_and_never_a_panic(
        place in prop::sample::select(vec![
            "/process", "/process/args", "/process/user", "/process/env",
            "/process/capabilities", "/process/capabilities/bounding", "/mounts", "/linux",
            "/linux/seccomp", "/linux/seccomp/syscalls", "/annotations",
        ]),
        value in odd(),
    ) {
        let mut config = config();
        *config.pointer_mut(place).expect("in the sample") = value;
        let _ = change(&config.to_string(), &node(), |_| None);
    }
}
