//! A tracked program and its end: started through `dormouse process`, killed as power would.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_system::{Root, proc};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, waitpid};

use crate::alone::{Alone, alone};
use crate::processes::{tracker_of, with_descendants};
use crate::{Said, dormouse, dormouse_path, workspace};

/// Longer than anything here takes on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Numbers that differ from run to run of a loop, and not from run to run of the test.
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Compiles one of the process crate's test programs.
pub fn compile(directory: &Path, name: &str) -> PathBuf {
    let source = workspace().join("process/tests/programs").join(name);
    let program = directory.join(source.file_stem().expect("a file name"));
    let status = Command::new("gcc")
        .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .status()
        .expect("gcc can be started");
    assert!(status.success(), "{} does not compile", source.display());
    program
}

/// One program and its store. While it lives, other tests that must be alone wait.
pub struct Program {
    directory: PathBuf,
    output: PathBuf,
    name: String,
    options: Vec<String>,
    command: Vec<String>,
    /// A command that executes the tracker.
    through: Vec<String>,
    mark: String,
    tracker: Option<Child>,
    /// Verbs that are still running; [`Program::cut`] waits for them.
    verbs: Vec<Child>,
    _alone: Option<Alone>,
}

impl Program {
    /// Nothing is started yet. A benchmark, which has no others beside it, need not be alone. What
    /// the program leaves behind becomes this test's child.
    pub fn new(
        alone: impl Into<Option<Alone>>,
        directory: &Path,
        name: &str,
        options: &[&str],
        command: &[&str],
    ) -> Self {
        set_child_subreaper(Some(rustix::process::getpid())).expect("a subreaper");
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            directory: directory.to_owned(),
            output: directory.join("output"),
            name: name.to_owned(),
            options: owned(options),
            command: owned(command),
            through: Vec::new(),
            // Its next life may be another value's, of the same store.
            mark: directory.join(name).display().to_string(),
            tracker: None,
            verbs: Vec::new(),
            _alone: alone.into(),
        }
    }

    /// A Python script, alone on this machine; with epochs at this interval, and none at a loss of
    /// power. Nothing is started yet.
    pub fn script(directory: &Path, interval: &str, script: &str, arguments: &[&str]) -> Self {
        let options = ["--on-power-loss", "none", "--epoch-interval", interval];
        let command = [&["python3", "-c", script], arguments].concat();
        Self::new(alone(), directory, "it", &options, &command)
    }

    /// Other options of `run` from now on.
    pub fn set_options(&mut self, options: &[&str]) {
        self.options = options.iter().map(|&option| option.to_owned()).collect();
    }

    /// The tracker is started through this command from now on, which ends in it: `env NAME=VALUE`.
    pub fn start_through(&mut self, command: &[&str]) {
        self.through = command.iter().map(|&word| word.to_owned()).collect();
    }

    /// Where the program and the tracker write to.
    pub fn output(&self) -> PathBuf {
        self.output.clone()
    }

    /// They write there from now on, and not beside the store.
    pub fn set_output(&mut self, path: &Path) {
        path.clone_into(&mut self.output);
    }

    fn open_output(&self) -> File {
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true);
        options
            .open(self.output())
            .expect("the output can be written")
    }

    /// What was written so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.output()).unwrap_or_default()
    }

    /// A verb about this program.
    pub fn verb(&self, verb: &str, options: &[&str]) -> Said {
        let store = self.directory.display().to_string();
        let words = ["process", verb, &self.name, "--store", &store];
        dormouse(&[&words[..], options].concat())
    }

    /// `process status --json`: `store` and `tracker`.
    pub fn status(&self) -> serde_json::Value {
        let said = self.verb("status", &["--json"]);
        assert_eq!(said.code, 0, "{}\n{}", said.all(), self.said());
        said.report()
    }

    /// How many epochs this life has.
    pub fn epochs(&self) -> u64 {
        self.status()["tracker"]["epochs"].as_u64().unwrap_or(0)
    }

    /// Waits for an epoch that began in this life: the first one may have begun before.
    pub fn until_epoch(&mut self) {
        self.until("an epoch of this life", |program| program.epochs() > 1);
    }

    /// Runs the same command with further options, and expects it to end by itself. What it
    /// wrote is in `stderr`.
    pub fn refused(&self, options: &[&str]) -> Said {
        let words: Vec<&str> = options.iter().copied().chain(["--"]).collect();
        self.refused_by(Command::new(dormouse_path()), &words)
    }

    /// The same, through another command that ends in `dormouse`. `options` end with `--`.
    pub fn refused_by(&self, mut command: Command, options: &[&str]) -> Said {
        // The store may lie where nothing can be written.
        let file = tempfile::NamedTempFile::new().expect("the output can be written");
        let output = file.reopen().expect("the output can be written");
        let mut child = command
            .env(MARK, &self.mark)
            .args(["process", "run", &self.name, "--store"])
            .arg(&self.directory)
            .args(&self.options)
            .args(options)
            .args(&self.command)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a copy"))
            .stderr(output)
            .spawn()
            .expect("it can be started");
        let deadline = Instant::now() + WAIT_MAX;
        let status = loop {
            if let Some(status) = child.try_wait().expect("our own child") {
                break status;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                panic!("it was not refused: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Said {
            code: status.code().unwrap_or(-1),
            stdout: String::new(),
            stderr: std::fs::read_to_string(file.path()).unwrap_or_default(),
        }
    }

    /// Waits until something holds; the tracker must not end meanwhile.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        while !holds(self) {
            let tracker = self.tracker.as_mut().expect("it was started");
            let ended = tracker.try_wait().expect("our own child");
            assert!(
                ended.is_none(),
                "the tracker ended ({ended:?}) before {what}: {}",
                self.said()
            );
            assert!(Instant::now() < deadline, "never {what}: {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Number of the tracker. Where it could not go on as what was started, it is its child.
    pub fn tracker(&self) -> i32 {
        tracker_of(self.started())
    }

    /// Number of the process that was started as the tracker.
    pub fn started(&self) -> i32 {
        self.tracker.as_ref().expect("it was started").id() as i32
    }

    /// Starts a verb about this program, and leaves it to [`Program::cut`].
    pub fn start_verb(&mut self, verb: &str) {
        let child = Command::new(dormouse_path())
            .env(MARK, &self.mark)
            .args(["process", verb, &self.name, "--store"])
            .arg(&self.directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("dormouse can be started");
        self.verbs.push(child);
    }

    /// Whether one of those still waits for its answer.
    pub fn verb_runs(&mut self) -> bool {
        let runs = |verb: &mut Child| verb.try_wait().expect("our own child").is_none();
        self.verbs.iter_mut().any(runs)
    }

    /// Starts or restores it.
    pub fn run(&mut self) {
        let dormouse = dormouse_path();
        let mut command = match self.through.split_first() {
            None => Command::new(dormouse),
            Some((first, others)) => {
                let mut command = Command::new(first);
                command.args(others).arg(dormouse);
                command
            }
        };
        let tracker = command
            .env(MARK, &self.mark)
            // With it Python writes a line in pieces, and the tracker writes to the same file.
            .env_remove("PYTHONUNBUFFERED")
            .args(["process", "run", &self.name, "--store"])
            .arg(&self.directory)
            .args(&self.options)
            .arg("--")
            .args(&self.command)
            .stdin(Stdio::null())
            .stdout(self.open_output())
            .stderr(self.open_output())
            .spawn()
            .expect("dormouse can be started");
        self.tracker = Some(tracker);
    }

    /// Waits until the program has written `count` more lines that begin with `word`; false if
    /// the tracker ended before.
    pub fn wait_for(&mut self, word: &str, count: usize) -> bool {
        let lines = |text: &str| text.lines().filter(|l| l.starts_with(word)).count();
        let before = lines(&self.said());
        let deadline = Instant::now() + WAIT_MAX;
        while lines(&self.said()) < before + count {
            let tracker = self.tracker.as_mut().expect("it was started");
            if let Some(status) = tracker.try_wait().expect("our own child") {
                eprintln!("the tracker ended before \"{word}\": {status}");
                return false;
            }
            assert!(
                Instant::now() < deadline,
                "nothing more from it: {}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Whether the tracker has ended.
    pub fn has_ended(&mut self) -> bool {
        let tracker = self.tracker.as_mut().expect("it was started");
        tracker.try_wait().expect("our own child").is_some()
    }

    /// Waits for the end of the tracker; its exit code.
    pub fn wait(&mut self) -> i32 {
        let mut tracker = self.tracker.take().expect("it was started");
        tracker.wait().expect("our own child").code().unwrap_or(-1)
    }

    /// Persisted and killed by `process persist --then kill`; `when` is for the message.
    ///
    /// # Panics
    /// It was not persisted, or its tracker ended with an error.
    #[track_caller]
    pub fn persist_and_kill(&mut self, when: &str) {
        let said = self.verb("persist", &["--then", "kill"]);
        assert_eq!(said.code, 0, "{when}: {}", said.all());
        assert_eq!(self.wait(), 0, "{when}: {}", self.said());
    }

    /// Everything of this program ends at this instant, as when power fails: tracker and program, in
    /// this order or the other, and its verbs. Other children of the test are left alone.
    pub fn cut(&mut self, program_first: bool) {
        let tracker = self.tracker.take().map(|child| child.id() as i32);
        let verbs = self.verbs.drain(..).map(|verb| verb.id() as i32);
        // What has ended already has no environment any more, but still a parent.
        let tree = with_descendants(tracker.into_iter().collect());
        let mut own: BTreeMap<i32, u64> = verbs
            .chain(tree)
            .filter_map(|pid| Some((pid, started(pid)?)))
            .collect();
        let end = |pid: i32| {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        };
        if !program_first {
            tracker.into_iter().for_each(end);
        }
        loop {
            let all = with_descendants(vec![std::process::id() as i32]);
            for &pid in all.iter().skip(1) {
                // A restore that failed leaves processes that end, or have ended: their tracker has
                // been waited for.
                if (has_mark(pid, &self.mark) || ends_as(pid, &self.command))
                    && let Some(started) = started(pid)
                {
                    own.entry(pid).or_insert(started);
                }
            }
            // Not by whether it is among the descendants: one whose parent ends while they are listed
            // may be missing from the list, and would stay as a zombie.
            own.retain(|pid, then| started(*pid) == Some(*then));
            if own.is_empty() {
                break;
            }
            // Children first.
            let listed = all.iter().rev().filter(|pid| own.contains_key(pid));
            let others = own.keys().filter(|pid| !all.contains(pid));
            for &pid in listed.chain(others) {
                end(pid);
                let _ = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.tracker.is_some() {
            self.cut(false);
        }
    }
}

/// In the environment of a tracker, its verbs and its program; a restored one has it in its memory.
const MARK: &str = "DORMOUSE_TEST_PROGRAM";

/// Whether a process has this mark; none of a zombie is known.
fn has_mark(pid: i32, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|variable| variable == wanted.as_bytes())
}

/// Whether a process has the name of a command, and no memory any more: it is a zombie, or about to
/// be one.
fn ends_as(pid: i32, command: &[String]) -> bool {
    const MAX_NAME_BYTES: usize = 15;
    let Some(name) = command.first().and_then(|path| Path::new(path).file_name()) else {
        return false;
    };
    let name = &name.as_encoded_bytes()[..name.len().min(MAX_NAME_BYTES)];
    let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}"));
    let is_named = read("comm").is_ok_and(|comm| comm.strip_suffix(b"\n") == Some(name));
    is_named && read("cmdline").is_ok_and(|line| line.is_empty())
}

/// When a process was started, in ticks since the boot: with its number, it is this one and not a later
/// one.
fn started(pid: i32) -> Option<u64> {
    let stat = proc::stat(&Root::host(), pid).ok()?;
    Some(stat.start_ticks)
}
