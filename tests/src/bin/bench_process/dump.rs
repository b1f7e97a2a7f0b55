//! Persisting and restoring a load: by us, and by CRIU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_tests::program::Program;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;

use crate::criu::Criu;
use crate::desk::{Desk, now_ns};
use crate::plan::{BUDGET, Case, Party};
use crate::visit::{Context, Values, milliseconds, ms};

const NAME: &str = "load";
/// Pages that are written to where 1 % are dirty.
const DIRTY_PART: u64 = 100;
/// MiB a second that a program under a budget writes.
const CHURN_MIB: u64 = 256;
/// The store gets its room in the background; a program that has just filled its memory in one go
/// waits for it.
const SETTLE: Duration = Duration::from_secs(60);

/// Measures persist and restore of one case.
pub fn measure(case: Case, party: Party, context: &Context) -> Result<Values, String> {
    let directory = context.fresh_directory()?;
    let desk = Desk::new()?;
    match party {
        Party::Criu | Party::CriuTracking => {
            let criu = context.criu.as_ref().map_err(Clone::clone)?;
            theirs(
                case,
                party == Party::CriuTracking,
                context,
                criu,
                &desk,
                &directory,
            )
        }
        _ => {
            let mut program = started(case, context, &desk, &directory);
            let result = ours(case, &mut program, &desk);
            program.cut(false);
            result
        }
    }
}

fn load_words(case: Case, context: &Context, desk: &Desk) -> Vec<String> {
    let load = context.load.display().to_string();
    let desk = desk.path().display().to_string();
    let (mode, mib, rate) = match case {
        Case::Budget { mib } => ("churn", mib, Some(CHURN_MIB)),
        Case::Cycle { mib } | Case::Dirty { mib } => ("hold", mib, None),
        _ => unreachable!("{case:?} persists nothing"),
    };
    let mut words = vec![load, mode.to_owned(), desk, mib.to_string()];
    words.extend(rate.map(|rate| rate.to_string()));
    words
}

fn started(case: Case, context: &Context, desk: &Desk, directory: &Path) -> Program {
    let words = load_words(case, context, desk);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut options = vec!["--on-power-loss", "none"];
    match case {
        Case::Budget { .. } => options.extend(["--budget", BUDGET]),
        // Nothing is synced but when this benchmark asks for it.
        _ => options.extend(["--epoch-interval", "60min"]),
    }
    Program::new(None, directory, NAME, &options, &words)
}

fn status(program: &Program) -> Result<Value, String> {
    let said = program.verb("status", &["--json"]);
    serde_json::from_str(&said.stdout).map_err(|error| format!("{error}: {}", said.all()))
}

/// Waits until the tracker stands as `ready` says.
fn settle(program: &Program, ready: impl Fn(&Value) -> bool) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let now = status(program)?;
        if ready(&now) {
            return Ok(());
        }
        if started.elapsed() > SETTLE {
            let tracker = &now["tracker"];
            return Err(format!(
                "the tracker is not ready after {} s: {} epochs, {} put off, at most {} bytes dirty",
                SETTLE.as_secs(),
                tracker["epochs"],
                tracker["epochs_put_off"],
                tracker["max_dirty_bytes"]
            ));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn ours(case: Case, program: &mut Program, desk: &Desk) -> Result<Values, String> {
    program.run();
    wait_for_beat(desk, 0, program)?;
    match case {
        Case::Cycle { mib } => {
            settle(program, |now| {
                now["tracker"]["store_bytes"].as_u64().unwrap_or(0) >= mib << 20
            })?;
        }
        Case::Dirty { mib } => {
            settle(program, |now| {
                now["tracker"]["store_bytes"].as_u64().unwrap_or(0) >= mib << 20
            })?;
            asked(program, "continue")?;
            desk.write_pages((mib << 8) / DIRTY_PART)?;
        }
        Case::Budget { .. } => {
            // What it has was brought to the store once, and then for a while what it writes.
            settle(program, |now| {
                let tracker = &now["tracker"];
                let number = |name: &str| tracker[name].as_u64().unwrap_or(0);
                number("epochs") >= 1 && number("rounds") >= 20
            })?;
            std::thread::sleep(Duration::from_secs(2));
        }
        _ => {}
    }
    let mut values = asked(program, "kill")?;
    program.wait();
    if matches!(case, Case::Cycle { .. }) {
        let from = now_ns();
        program.run();
        let beat = wait_for_beat(desk, from, program)?;
        values.insert("restore_ms".into(), milliseconds(beat - from));
        desk.compare()?;
        values.insert("compared_ms".into(), milliseconds(now_ns() - from));
    }
    Ok(values)
}

fn wait_for_beat(desk: &Desk, from: u64, program: &mut Program) -> Result<u64, String> {
    desk.beat_after(from, || match program.has_ended() {
        true => Err(program.said()),
        false => Ok(()),
    })
}

/// Persists as a user does; the time of the command, and the values of its report.
fn asked(program: &Program, then: &str) -> Result<Values, String> {
    let started = Instant::now();
    let said = program.verb("persist", &["--then", then, "--json"]);
    let command = started.elapsed();
    if said.code != 0 {
        return Err(said.all());
    }
    let report: Value = serde_json::from_str(&said.stdout).map_err(|e| e.to_string())?;
    let mut values = Values::new();
    values.insert("persist_ms".into(), ms(command));
    for (name, of) in [
        ("request_ms", "total_ns"),
        ("freeze_ms", "freeze_ns"),
        ("capture_ms", "capture_ns"),
        ("scan_ms", "scan_ns"),
        ("copy_ms", "copy_ns"),
        ("files_ms", "files_ns"),
        ("commit_ms", "commit_ns"),
    ] {
        let nanoseconds = report[of].as_u64().ok_or_else(|| said.all())?;
        values.insert(name.into(), milliseconds(nanoseconds));
    }
    let stored = report["stored_bytes"].as_u64().ok_or_else(|| said.all())?;
    values.insert("stored_bytes".into(), stored as f64);
    Ok(values)
}

/// A load under CRIU.
struct Theirs<'a> {
    criu: &'a Criu,
    images: PathBuf,
    child: Child,
}

impl Theirs<'_> {
    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// How long one verb takes, from start to end.
    fn run(&self, words: &[&str], images: &str) -> Result<f64, String> {
        let folder = self.images.join(images);
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let started = Instant::now();
        let output = Command::new(&self.criu.program)
            .args(words)
            .arg("--images-dir")
            .arg(&folder)
            .args(["--log-file", "log"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let took = ms(started.elapsed());
        if output.status.success() {
            return Ok(took);
        }
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        let error = log
            .lines()
            .find(|line| line.contains("Error"))
            .unwrap_or("");
        Err(format!("criu {}: {} {error}", words[0], output.status))
    }
}

impl Drop for Theirs<'_> {
    fn drop(&mut self) {
        // What was restored has the number, and is our child by adoption.
        let Some(pid) = Pid::from_raw(self.child.id() as i32) else {
            return;
        };
        let _ = kill_process(pid, Signal::KILL);
        let _ = self.child.wait();
        while let Ok(None) = waitpid(Some(pid), WaitOptions::NOHANG) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn theirs(
    case: Case,
    tracking: bool,
    context: &Context,
    criu: &Criu,
    desk: &Desk,
    directory: &Path,
) -> Result<Values, String> {
    let words = load_words(case, context, desk);
    // A session of its own, as a service has: CRIU refuses half of one.
    let child = Command::new("setsid")
        .args(&words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("setsid: {error}"))?;
    let mut load = Theirs {
        criu,
        images: directory.to_owned(),
        child,
    };
    let pid = load.pid();
    desk.beat_after(0, || match load.child.try_wait() {
        Ok(Some(status)) => Err(format!("the load ended: {status}")),
        _ => Ok(()),
    })?;
    if tracking {
        load.run(&["pre-dump", "--tree", &pid, "--track-mem"], "before")?;
    }
    if let Case::Dirty { mib } = case {
        desk.write_pages((mib << 8) / DIRTY_PART)?;
    }
    let mut values = Values::new();
    let dump = ["dump", "--tree", &pid];
    let more = ["--track-mem", "--prev-images-dir", "../before"];
    let words = match tracking {
        true => [&dump[..], &more].concat(),
        false => dump.to_vec(),
    };
    values.insert("persist_ms".into(), load.run(&words, "images")?);
    let _ = load.child.wait();
    if matches!(case, Case::Cycle { .. }) {
        let from = now_ns();
        load.run(&["restore", "--restore-detached"], "images")?;
        let beat = desk.beat_after(from, || Ok(()))?;
        values.insert("restore_ms".into(), milliseconds(beat - from));
        desk.compare()?;
        values.insert("compared_ms".into(), milliseconds(now_ns() - from));
    }
    Ok(values)
}
