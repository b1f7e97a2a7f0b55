//! Every verb takes the program's name in the same way, and scripts that give it as `--name` still
//! work.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_tests::alone::alone;
use dormouse_tests::{Said, dormouse, dormouse_path};

struct Tracker(Child);

impl Tracker {
    fn start(store: &str, words: &[&str]) -> Self {
        let child = Command::new(dormouse_path())
            .args(["process"])
            .args(words)
            .env("DORMOUSE_STORE", store)
            .env("DORMOUSE_ON_POWER_LOSS", "none")
            .stdin(Stdio::null())
            .spawn()
            .expect("dormouse can be started");
        Self(child)
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn verb(store: &str, words: &[&str]) -> Said {
    dormouse(&[&["process"], words, &["--store", store]].concat())
}

/// Waits until a persist succeeds, which also says that all pages are there.
fn persist_and_kill(store: &str, words: &[&str], mut tracker: Tracker) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let said = verb(store, &[&["persist"], words, &["--then", "kill"]].concat());
        if said.code == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{}", said.all());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(tracker.0.wait().expect("our own child").code(), Some(0));
}

#[test]
fn both_forms_of_the_name_mean_the_same_program_for_every_verb() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().to_str().expect("plain letters");
    let command = ["--", "sleep", "1000"];
    let forms: [&[&str]; 2] = [&["it"], &["--name", "it"]];
    for (form, other) in [(forms[0], forms[1]), (forms[1], forms[0])] {
        let run = [&["run"], form, &command].concat();
        persist_and_kill(store, other, Tracker::start(store, &run));
        let restored = Tracker::start(store, &[&["restore"], other].concat());
        persist_and_kill(store, form, restored);
        for words in [form, other] {
            for name in ["status", "verify"] {
                let said = verb(store, &[&[name], words].concat());
                assert_eq!(said.code, 0, "{name} {words:?}: {}", said.all());
            }
        }
        let said = verb(store, &[&["remove"], other].concat());
        assert_eq!(said.code, 0, "{}", said.all());
    }
    // Without a name, the program is called like its command.
    let unnamed = Tracker::start(store, &[&["run"], &command[..]].concat());
    persist_and_kill(store, &["sleep"], unnamed);
}

#[test]
fn attach_takes_the_name_first_and_then_the_pid_or_the_name_as_an_option() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().to_str().expect("plain letters");
    for (name, older) in [("new", false), ("old", true)] {
        let mut program = Command::new("sleep");
        let program = program.arg("1000").stdin(Stdio::null());
        let mut program = program.spawn().expect("sleep can be started");
        let pid = program.id().to_string();
        let words: &[&str] = if older {
            &["attach", "--name", name, &pid]
        } else {
            &["attach", name, &pid]
        };
        persist_and_kill(store, &[name], Tracker::start(store, words));
        program.wait().expect("it was killed");
    }
    let said = verb(store, &["attach", "--name", "it", "sleep"]);
    assert_eq!(said.code, 2, "{}", said.all());
    assert!(
        said.stderr.contains("`sleep` is not a PID"),
        "{}",
        said.all()
    );
}
