//! `dormouse doctor process` and what it says of this machine.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use dormouse_tests::dormouse_path;
use serde_json::Value;

const NOBODY: u32 = 65534;

/// The exit code, and each check's status and words.
fn checks(command: &mut Command) -> (Option<i32>, Value) {
    let command = command.args(["doctor", "process", "--json"]);
    let Output { status, stdout, .. } = command.output().expect("dormouse runs");
    let report: Value = serde_json::from_slice(&stdout).expect("JSON");
    (status.code(), report["parts"][0].clone())
}

fn check<'a>(part: &'a Value, id: &str) -> &'a Value {
    let checks = part["checks"].as_array().expect("checks");
    let found = checks.iter().find(|check| check["id"] == id);
    found.unwrap_or_else(|| panic!("no {id}: {part}"))
}

#[test]
fn the_doctor_tells_root_from_a_user_that_may_persist_nothing() {
    let (code, part) = checks(&mut Command::new(dormouse_path()));
    assert_eq!(
        (code, &part["ready"]),
        (Some(0), &Value::Bool(true)),
        "{part}"
    );

    // Of a user without rights the command itself may be out of reach.
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let copy = directory.path().join("dormouse");
    std::fs::copy(dormouse_path(), &copy).expect("copied");
    let mut command = Command::new(&copy);
    let store = directory.path().join("store");
    command.uid(NOBODY).gid(NOBODY).env("DORMOUSE_STORE", store);
    let (code, part) = checks(&mut command);
    assert_eq!(code, Some(3), "{part}");
    for id in ["privileges", "store"] {
        assert_eq!(check(&part, id)["status"], "missing", "{part}");
    }
    let found = check(&part, "privileges")["found"].as_str().unwrap_or("");
    assert!(found.contains("CAP_CHECKPOINT_RESTORE"), "{found}");
}
