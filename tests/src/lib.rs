//! Runs the `dormouse` command as a user would and reads what it prints.
//!
//! The tests are in `tests/tests/`, one folder for each room and one file for each kind of promise.
//! Each emulated machine takes one processor and 2 GiB of memory, so two run at a time
//! (`make test-end-to-end`).

pub mod alone;
pub mod bandwidth_lab;
pub mod bench;
pub mod container_services;
pub mod containerd;
pub mod containers;
pub mod occupied;
pub mod processes;
pub mod program;
pub mod tutorial;
pub mod wake;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dormouse_lab::machine::Machine;
use dormouse_lab::{CycleLine, Outcome};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The built command: in the folder of the test's own binary, or above it.
pub fn dormouse_path() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("dormouse"))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("there is no dormouse near {}: make build", test.display()))
}

/// The result of one call of `dormouse`.
#[derive(Debug)]
pub struct Said {
    /// The exit code; -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Said {
    /// Both streams, for the message of a failed assertion.
    pub fn all(&self) -> String {
        format!(
            "exit code {}\n--- stdout\n{}\n--- stderr\n{}",
            self.code, self.stdout, self.stderr
        )
    }

    /// The report of a command with `--json`.
    pub fn report(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no report: {error}\n{}", self.all()))
    }

    /// The reports of a command that prints one in each line.
    pub fn reports<T: DeserializeOwned>(&self) -> Vec<T> {
        self.stdout
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| {
                    panic!("{line:?} is no report: {error}\n{}", self.all())
                })
            })
            .collect()
    }

    /// The cycles of `lab cycle --json`.
    pub fn cycles(&self) -> Vec<CycleLine> {
        self.reports()
    }

    /// The only cycle.
    pub fn cycle(&self) -> CycleLine {
        let mut cycles = self.cycles();
        assert_eq!(cycles.len(), 1, "{}", self.all());
        cycles.remove(0)
    }
}

/// Runs `dormouse` with these arguments.
pub fn dormouse(words: &[&str]) -> Said {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(dormouse_path())
        .args(words)
        .output()
        .expect("dormouse can be started");
    Said {
        code: status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// The names that `lab cycle OPTION list` prints.
pub fn listed(option: &str) -> Vec<String> {
    listed_of(option, &[])
}

/// The same, with further arguments.
pub fn listed_of(option: &str, words: &[&str]) -> Vec<String> {
    let said = dormouse(&[&["lab", "cycle", option, "list"], words].concat());
    assert_eq!(said.code, 0, "{}", said.all());
    let names = said
        .stdout
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// The top folder of this checkout.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
}

/// The timeline events of a machine that the lab ran in `folder`.
///
/// # Panics
/// There are none.
pub fn events(folder: &Path) -> Vec<serde_json::Value> {
    let path = folder.join("events.jsonl");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Where a test's machine lies: `out/test/<name>`, so that a failed test's logs can be read.
pub fn test_folder(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    root.join("out/test").join(name)
}

/// The same, emptied of what an earlier run left. When the test's thread ends, the machine's memory
/// and disks go; its logs stay.
pub fn machine_folder(name: &str) -> PathBuf {
    let folder = test_folder(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.parent().expect("out/test")).expect("out/test can be made");
    MACHINES.with_borrow_mut(|machines| machines.0.push(folder.clone()));
    folder
}

thread_local! {
    static MACHINES: RefCell<Machines> = const { RefCell::new(Machines(Vec::new())) };
}

/// The machines of one test. Their contents take gigabytes, which the next tests' machines need:
/// a run that kept them all had its emulators starved.
struct Machines(Vec<PathBuf>);

impl Drop for Machines {
    fn drop(&mut self) {
        for folder in &self.0 {
            if let Ok(Some(machine)) = Machine::open(folder) {
                machine.discard();
            }
        }
    }
}

/// `lab cycle` in a new machine of its own folder, with `--json`.
pub fn lab_cycle(name: &str, words: &[&str]) -> Said {
    let folder = machine_folder(name);
    let mut all = vec!["lab", "cycle", "--json", "--machine"];
    all.push(folder.to_str().expect("a UTF-8 path"));
    all.extend_from_slice(words);
    dormouse(&all)
}

/// What a line of shell prints inside a new machine of its own folder; it must succeed.
pub fn guest(name: &str, words: &[&str], line: &str) -> String {
    let folder = machine_folder(name);
    let mut all = vec!["lab", "boot", "--json", "--command", line, "--machine"];
    all.push(folder.to_str().expect("a UTF-8 path"));
    all.extend_from_slice(words);
    let said = dormouse(&all);
    assert_eq!(said.code, 0, "{}", said.all());
    let answer: serde_json::Value = serde_json::from_str(&said.stdout)
        .unwrap_or_else(|error| panic!("no JSON object: {error}\n{}", said.all()));
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    eprint!("{}", text("stderr"));
    text("stdout")
}

/// A line of arguments as a user types them, without quotes.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The machine booted afresh, as it had to, for one of these reasons.
pub fn assert_cold_boot(said: &Said, reasons: &[&str]) {
    let cycle = said.cycle();
    assert!(cycle.ok, "{}", said.all());
    assert_outcome(said, Outcome::ColdBoot, reasons);
}

/// The only cycle, which ended so for one of these reasons.
pub fn assert_outcome(said: &Said, outcome: Outcome, reasons: &[&str]) -> CycleLine {
    let cycle = said.cycle();
    assert_eq!(cycle.outcome, outcome, "{}", said.all());
    assert!(
        reasons.iter().any(|reason| cycle.reason.contains(reason)),
        "one of {reasons:?}, not {:?}\n{}",
        cycle.reason,
        said.all()
    );
    cycle
}

/// A resumed cycle whose every page was compared.
pub fn assert_resumed(cycle: &CycleLine, said: &Said) {
    assert!(
        cycle.ok && cycle.verified && cycle.outcome == Outcome::Resumed,
        "cycle {} should have resumed and been verified: {} ({})\n{}",
        cycle.cycle,
        cycle.outcome,
        cycle.reason,
        said.all()
    );
}

/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;
