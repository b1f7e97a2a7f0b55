//! The command as a user or a script runs it: exit codes, streams, pipes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn dormouse(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command
        .args(arguments)
        .env_remove("RUST_LOG")
        .output()
        .expect("the command can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str()
        .expect("temporary directories have plain names")
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in [
        &["no-such-verb"][..],
        &["image"],
        &["report"],
        &[],
        &["doctor", "attic"],
    ] {
        assert_eq!(dormouse(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_failure_says_where_and_what_next_on_stderr_and_nothing_on_stdout() {
    let directory = tempfile::tempdir().unwrap();
    let output = dormouse(&["report", path(directory.path())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let message = text(&output.stderr);
    assert!(message.contains(path(directory.path())), "{message}");
    assert!(message.contains("dormouse lab cycle"), "{message}");
}

#[test]
fn a_run_is_reported_with_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let events = [("begin", 1_000_000_000u64), ("end", 2_330_000_000)].map(|(kind, t_ns)| {
        format!(
            "{{\"t_ns\":{t_ns},\"clock\":\"host\",\"phase\":\"suspend\",\"name\":\"migrate\",\
             \"kind\":\"{kind}\",\"detail\":{{\"bytes\":1048576}}}}\n"
        )
    });
    fs::write(directory.path().join("events.jsonl"), events.concat()).unwrap();
    let output = dormouse(&["report", path(directory.path())]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("migrate") && shown.contains("1.33 s") && shown.contains("1.00 MiB"));
    assert!(
        !shown.contains('\u{1b}'),
        "no colour where there is no terminal"
    );
    assert!(
        fs::read_to_string(directory.path().join("report.html"))
            .unwrap()
            .contains("migrate")
    );
    let json = dormouse(&["report", path(directory.path()), "--json"]);
    assert!(text(&json.stdout).contains("\"events\":2"));
}

#[test]
fn an_image_that_would_not_be_restored_is_exit_code_4_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cxl.mem");
    fs::write(&file, vec![0; 1 << 20]).unwrap();
    let output = dormouse(&["image", "verify", "--json", path(&file)]);
    assert_eq!(output.status.code(), Some(4));
    assert!(
        text(&output.stdout).contains("\"no-image\""),
        "{}",
        text(&output.stdout)
    );
    assert!(
        dormouse(&["image", "inspect", path(&file)])
            .status
            .success()
    );
    let missing = dormouse(&["image", "inspect", "/no/such/file"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("/no/such/file"));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for arguments in [
        &["completions", "zsh"][..],
        &["--help"],
        &["doctor", "sleep", "--json"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        command
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.code().is_some_and(|code| code != 101),
            "{arguments:?}"
        );
        assert!(
            !text(&output.stderr).contains("panicked"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn doctor_says_in_json_what_is_required_and_exits_accordingly() {
    for part in ["lab", "sleep"] {
        let output = dormouse(&["doctor", part, "--json"]);
        let shown = text(&output.stdout);
        let is_ready = shown.contains("\"ready\":true");
        assert_eq!(
            output.status.code(),
            Some(if is_ready { 0 } else { 3 }),
            "{shown}"
        );
        assert_eq!(
            is_ready,
            !shown.contains("\"status\":\"missing\""),
            "{shown}"
        );
    }
}

#[test]
fn the_version_comes_with_the_commit() {
    let output = dormouse(&["--version"]);
    assert!(output.status.success());
    let said = text(&output.stdout);
    let expected = format!("dormouse {} (", env!("CARGO_PKG_VERSION"));
    let commit = said
        .trim()
        .strip_prefix(&expected)
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or_else(|| panic!("{said}"));
    let hash = commit.split(' ').next().unwrap_or_default();
    let is_hash = hash.len() >= 7 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(commit == "unknown" || is_hash, "{said}");
}
