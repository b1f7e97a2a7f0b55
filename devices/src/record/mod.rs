//! Suspends this machine once or more under ftrace and keeps the recording.
//!
//! ```text
//! check ─▶ graph, settings ─▶ private trace instance ─▶ switches ─▶ suspend ─▶ read the trace
//!    │                              │                      │
//!    └ lists what is missing        └──── restored in reverse order, in any case ─────────┘
//! ```
//!
//! Every refusal comes before the first change. All changes are put back when the recording ends,
//! fails or is interrupted. SIGKILL and a crash leave the switches changed; the next recording
//! removes the trace instance that is left.

mod check;
mod clock;
mod overheads;
mod trace;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dormouse_report::EventWriter;
use dormouse_system::file::FileError as AccessError;
use dormouse_system::settings::Settings;
use dormouse_system::{Root, kernel};

use crate::analyze::timeline;
use crate::model::{FileError, Recording};
use crate::read;
use crate::sysfs::{self, SysfsError};

pub use check::{Lack, lacks};
pub use overheads::measure;

use trace::Instance;

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The machine lacks something; the error lists everything.
    #[error("this machine cannot be recorded:{}", .0.iter().map(|l| format!("\n  {l}")).collect::<String>())]
    Lacking(Vec<Lack>),
    /// A file of the kernel refuses.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The device graph.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// The recording cannot be kept.
    #[error(transparent)]
    File(#[from] FileError),
    /// The kernel did not suspend.
    #[error("the machine did not suspend: {reason}; what was traced until then is in {}", kept.display())]
    NotSuspended {
        /// The reason.
        reason: String,
        /// Where the trace is kept.
        kept: PathBuf,
    },
    /// The trace holds nothing.
    #[error("nothing of the suspend is in the trace, {}", .0.display())]
    Empty(PathBuf),
    /// Ctrl-C.
    #[error("interrupted; all settings are restored")]
    Interrupted,
}

fn failed(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> RecordError {
    let access = AccessError::new(path, doing);
    move |source| access(source).into()
}

/// How to suspend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Suspend to idle.
    S2idle,
    /// Suspend to RAM.
    Deep,
}

/// How far to go (`/sys/power/pm_test`), and then back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Freeze processes.
    Freezer,
    /// Suspend devices.
    Devices,
    /// Prepare the platform.
    Platform,
    /// Take processors offline.
    Processors,
    /// Suspend the core.
    Core,
}

impl Test {
    /// The kernel's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Test::Freezer => "freezer",
            Test::Devices => "devices",
            Test::Platform => "platform",
            Test::Processors => "processors",
            Test::Core => "core",
        }
    }
}

impl State {
    /// What is written to /sys/power/state.
    pub fn word(self) -> &'static str {
        match self {
            State::S2idle => "freeze",
            State::Deep => "mem",
        }
    }

    /// The name in /sys/power/mem_sleep.
    pub fn as_str(self) -> &'static str {
        match self {
            State::S2idle => "s2idle",
            State::Deep => "deep",
        }
    }
}

/// What to record, and where to keep it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The sleep state.
    pub state: State,
    /// The level of `pm_test`, if any.
    pub test: Option<Test>,
    /// Seconds until the real-time clock wakes the machine; none: something else does.
    pub wake_after_s: Option<u64>,
    /// Rely on that clock without having tried it.
    pub trust_clock: bool,
    /// Number of suspends.
    pub cycles: u32,
    /// Seconds awake between cycles.
    pub pause: Duration,
    /// Scheduling events, too.
    pub switches: bool,
    /// Ring buffer of each CPU.
    pub buffer_kib: u32,
    /// Where the recording is kept.
    pub directory: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
}

/// Records, and keeps `recording.json`, `trace.txt` and `events.jsonl` in the directory.
///
/// # Errors
/// The machine lacks something (nothing was changed), the kernel does not suspend, or files
/// cannot be written.
pub fn record(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Recording, RecordError> {
    let missing = lacks(options);
    if !missing.is_empty() {
        return Err(RecordError::Lacking(missing));
    }
    fs::create_dir_all(&options.directory).map_err(failed(&options.directory, "made"))?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        // Only signals that cannot be caught are refused, and these can.
        let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
    }
    if let Some(alarm) = clock_to_try(options) {
        progress("trying the real-time clock's alarm");
        if let Some(lack) = clock::fails_to_wake(&options.sys, &alarm, &interrupted) {
            return Err(RecordError::Lacking(vec![lack]));
        }
    }
    progress("measuring the overhead of scheduling on this machine");
    let overheads = measure();
    let graph = sysfs::graph(&options.sys)?;
    let settings = sysfs::settings(&options.sys);
    let cpus = sysfs::online_cpus(&options.sys);

    let mut changed = Settings::default();
    let result = suspend(options, &interrupted, &mut changed, progress);
    let problems = changed.put_back();
    let (text, outcome) = result?;

    let trace_path = options.directory.join("trace.txt");
    fs::write(&trace_path, &text).map_err(failed(&trace_path, "written"))?;
    let read = read::trace::read_with_graph(&text, graph);
    let mut recording = read.recording;
    if let Some(first) = read.damages.first() {
        recording.notes.push(format!(
            "trace.txt, line {}: {} ({} such lines)",
            first.line,
            first.what,
            read.damages.len()
        ));
    }
    recording.notes.extend(problems);
    let release = kernel::release(&Root::host());
    recording.machine.kernel = (!release.is_empty()).then_some(release);
    recording.machine.cpus = cpus;
    recording.machine.source = match options.test {
        Some(test) => format!(
            "record {}, pm_test {}",
            options.state.as_str(),
            test.as_str()
        ),
        None => format!("record {}", options.state.as_str()),
    };
    recording.machine.settings = settings;
    recording.overheads = Some(overheads);
    save(&recording, &options.directory)?;
    if interrupted.load(Ordering::SeqCst) {
        return Err(RecordError::Interrupted);
    }
    if let Err(reason) = outcome {
        return Err(RecordError::NotSuspended {
            reason,
            kept: options.directory.clone(),
        });
    }
    if recording.cycles.is_empty() {
        return Err(RecordError::Empty(trace_path));
    }
    Ok(recording)
}

/// The text of the trace, and why the kernel did not suspend, if so.
type Traced = (String, Result<(), String>);

fn suspend(
    options: &Options,
    interrupted: &AtomicBool,
    settings: &mut Settings,
    progress: &mut dyn FnMut(&str),
) -> Result<Traced, RecordError> {
    let power = options.sys.join("power");
    let instance = Instance::make(options, settings)?;
    // In `pm_test` the kernel would stay so long at the turn, busy; older kernels lack the switch.
    let delay = options.sys.join("module/suspend/parameters/pm_test_delay");
    if options.test.is_some() && delay.exists() {
        settings.write(&delay, "0")?;
    }
    let mem_sleep = power.join("mem_sleep");
    if options.state == State::Deep && mem_sleep.exists() {
        settings.write(&mem_sleep, options.state.as_str())?;
    }
    if let Some(test) = options.test {
        settings.write(&power.join("pm_test"), test.as_str())?;
    }
    let mut outcome = Ok(());
    for cycle in 1..=options.cycles {
        if interrupted.load(Ordering::SeqCst) {
            return Err(RecordError::Interrupted);
        }
        if cycle > 1 {
            thread::sleep(options.pause);
        }
        if let Some(seconds) = options.wake_after_s {
            arm_clock(options, settings, seconds)?;
        }
        progress(&format!("suspend {cycle} of {}", options.cycles));
        instance.mark_on(true)?;
        let result = fs::write(power.join("state"), options.state.word());
        instance.mark_on(false)?;
        if let Err(error) = result {
            outcome = Err(explained(&power, &error));
            break;
        }
    }
    Ok((instance.text()?, outcome))
}

/// The kernel's reason, with what it keeps of the last failure.
fn explained(power: &Path, error: &io::Error) -> String {
    let last = |name: &str| {
        sysfs::read(&power.join("suspend_stats").join(name)).filter(|text| !text.is_empty())
    };
    match (last("last_failed_step"), last("last_failed_dev")) {
        (Some(step), Some(device)) => format!("{error} (last failure: {device} in {step})"),
        (Some(step), None) => format!("{error} (last failure: {step})"),
        _ => error.to_string(),
    }
}

/// The alarm that has to wake the machine from suspend to idle; from suspend to RAM firmware does.
fn clock_to_try(options: &Options) -> Option<PathBuf> {
    let relies = options.test.is_none() && options.wake_after_s.is_some() && !options.trust_clock;
    (relies && options.state == State::S2idle)
        .then(|| check::wake_alarm(&options.sys))
        .flatten()
}

/// Lets the first real-time clock that can wake the machine do so.
fn arm_clock(options: &Options, settings: &mut Settings, seconds: u64) -> Result<(), RecordError> {
    let Some(alarm) = check::wake_alarm(&options.sys) else {
        return Ok(());
    };
    // An old alarm must go before a new one is taken.
    fs::write(&alarm, "0").map_err(failed(&alarm, "written"))?;
    fs::write(&alarm, format!("+{seconds}")).map_err(failed(&alarm, "written"))?;
    settings.write_later(&alarm, "0");
    Ok(())
}

fn save(recording: &Recording, directory: &Path) -> Result<(), RecordError> {
    recording.save(&directory.join("recording.json"))?;
    let path = directory.join("events.jsonl");
    let numbers: Vec<usize> = (1..=recording.cycles.len()).collect();
    let cpus = recording.machine.cpus.unwrap_or(1) as usize;
    let mut text = Vec::new();
    let mut writer = EventWriter::new(&mut text);
    for event in timeline::events(recording, &numbers, cpus) {
        writer.write(&event).map_err(failed(&path, "written"))?;
    }
    fs::write(&path, text).map_err(failed(&path, "written"))
}
