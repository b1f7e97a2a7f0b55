//! One power-on: a QEMU process from start to exit, with all of its output in one queue.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse_guest::protocol::frame::encode;
use dormouse_guest::protocol::{Call, FromGuest, Hello, Request};
use dormouse_report::event::{Clock, Event, Kind};
use serde_json::Value;

use crate::emulator::accelerator::Accelerator;
use crate::emulator::console::{self, Tail, Taps};
use crate::emulator::limit::Limit;
use crate::emulator::qemu::{self, Firmware, Launch, Parts};
use crate::emulator::qmp::{EXAMINATION, Qmp, StopCause};
use crate::emulator::record::{HostClock, Recorder};
use crate::emulator::signals::Speaker;
pub use crate::emulator::signals::{Signal, What, reply_to};
use crate::error::{Doing, LabError};
use crate::interrupt;
use crate::machine::Machine;
use crate::machine::sealing::{self, PROMPT, SoftwareTpm};

/// How often a wait looks for Ctrl-C.
const POLL: Duration = Duration::from_millis(100);
/// A killed or finished emulator is gone within this time.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Linux has written everything back and switches the machine off now.
const POWER_DOWN: &str = "reboot: Power down";
const POWER_DOWN_TIMEOUT: Duration = Duration::from_secs(3);

const MONITOR_TIMEOUT: Duration = Duration::from_secs(5);

/// The last line of a Linux panic's report.
const PANIC_END: &str = "---[ end Kernel panic";

/// Request numbers are never used twice: the answer to a sleep comes in the next power-on.
static NEXT_REQUEST: AtomicU64 = AtomicU64::new(1);

/// Everything that stays the same from power-on to power-on.
pub struct Setting {
    /// Firmware, kernel and disks.
    pub parts: Parts,
    /// The firmware that starts the machine.
    pub firmware: Firmware,
    /// How the machine is executed.
    pub accelerator: Accelerator,
    /// The host's clock.
    pub clock: HostClock,
    /// The timeline.
    pub recorder: Arc<Mutex<Recorder>>,
    /// Further arguments of the emulator: devices.
    pub more: Vec<String>,
}

impl Setting {
    /// Records something that the host did; returns when.
    pub fn mark(&self, phase: &str, name: &str, kind: Kind) -> u64 {
        self.recorder
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .host(phase, name, kind)
    }

    /// Records an event of the host with details.
    pub fn record(&self, event: &Event) {
        self.recorder
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(event);
    }

    /// An event of the host, now.
    pub fn event(&self, phase: &str, name: &str, kind: Kind) -> Event {
        Event::new(self.clock.now_ns(), Clock::Host, phase, name, kind)
    }
}

/// A running machine; dropping it takes its power away.
pub struct PowerOn {
    child: Child,
    number: u32,
    /// Host time at which the emulator was started.
    pub started_ns: u64,
    control: UnixStream,
    console: UnixStream,
    qmp: Qmp,
    signals: Receiver<Signal>,
    taps: Taps,
    tail: Tail,
    log: std::path::PathBuf,
    emulator_log: std::path::PathBuf,
    stopped: bool,
    stop_cause: Arc<Mutex<Option<StopCause>>>,
    recorder: Arc<Mutex<Recorder>>,
    types: Option<String>,
    keeps_awake: bool,
    _tpm: Option<SoftwareTpm>,
    _files: tempfile::TempDir,
}

impl PowerOn {
    /// Switches the machine on.
    ///
    /// # Errors
    /// The emulator cannot be started.
    pub fn start(
        machine: &mut Machine,
        setting: &Setting,
        fault: Option<&str>,
    ) -> Result<PowerOn, LabError> {
        interrupt::check()?;
        // QEMU waits for ever in a busy loop if this is a link to nowhere.
        if !machine.cxl_file().exists() {
            return Err(LabError::Unexpected(format!(
                "{} is gone: somebody removed what the CXL memory holds; make the machine anew",
                machine.cxl_file().display()
            )));
        }
        let number = machine.next_power_on();
        let files = tempfile::tempdir().doing("make a temporary folder")?;
        let device_file = files.path().join("device");
        std::fs::write(&device_file, machine.config.device_description())
            .doing("write the device's description")?;
        let wake_initrd = machine.wake_initrd();
        let socket = files.path().join("tpm.sock");
        let tpm = if machine.tpm_folder().is_dir() && !machine.sealing.tpm_is_out {
            let log = machine.folder().join(format!("tpm-{number:03}.log"));
            let memory = machine.tpm_folder();
            Some(SoftwareTpm::start(&memory, &socket, &log)?)
        } else {
            None
        };
        let swap_disk = machine.swap_disk();
        let scratch_disk = machine.scratch_disk();
        let launch = Launch {
            parts: &setting.parts,
            config: &machine.config,
            firmware: setting.firmware,
            accelerator: setting.accelerator,
            cxl_file: &machine.cxl_file(),
            head_file: &machine.head_file(),
            labels_file: &machine.labels_file(),
            variables_file: &machine.variables_file(),
            disk: &machine.disk(),
            swap_disk: swap_disk.exists().then_some(swap_disk.as_path()),
            scratch_disk: scratch_disk.exists().then_some(scratch_disk.as_path()),
            device_file: &device_file,
            fault,
            wake_initrd: wake_initrd.exists().then_some(wake_initrd.as_path()),
            tpm_socket: tpm.as_ref().map(|_| socket.as_path()),
            more: &setting.more,
        };
        let log = machine.console_log(number);
        let log_file = File::create(&log).doing(format!("create {}", log.display()))?;
        let emulator_log = machine.emulator_log(number);
        let (mut child, lines) = qemu::spawn(&launch, &emulator_log)?;
        let (mut qmp, listener) = match Qmp::greet(lines.qmp) {
            Ok(both) => both,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                let said = std::fs::read_to_string(&emulator_log).unwrap_or_default();
                return Err(LabError::Unexpected(format!("{error}\n{}", said.trim())));
            }
        };

        let (sender, signals) = channel();
        let taps = Taps::default();
        let speaker = Speaker::new(sender, setting.clock);
        let console = lines.console.try_clone().doing("share the console")?;
        let control = lines
            .control
            .try_clone()
            .doing("share the control channel")?;
        let stop_cause = Arc::new(Mutex::new(None));
        let emulator = speaker.follow_emulator(listener, Arc::clone(&stop_cause));
        speaker.follow_control(lines.control);
        speaker.follow_console(lines.console, log_file, taps.clone(), emulator);
        let started_ns = setting.mark("machine", "power-on", Kind::Mark);
        let begun = qmp.execute(&qapi::qmp::cont {});
        let power_on = PowerOn {
            child,
            number,
            started_ns,
            control,
            console,
            qmp,
            signals,
            taps,
            tail: Tail::default(),
            log,
            emulator_log,
            stopped: false,
            stop_cause,
            recorder: Arc::clone(&setting.recorder),
            types: machine.sealing.types.clone(),
            keeps_awake: false,
            _tpm: tpm,
            _files: files,
        };
        // If that failed, dropping ends the emulator.
        begun.map(|()| power_on)
    }

    /// Waits until `pick` takes something from what the machine says.
    ///
    /// # Errors
    /// Timeout or a stop, with the last lines of the console; interruption.
    pub fn wait<T>(
        &mut self,
        what: &str,
        limit: impl Into<Limit>,
        mut pick: impl FnMut(&Signal) -> Option<T>,
    ) -> Result<T, LabError> {
        let limit = limit.into();
        let begun = Instant::now();
        let mut last_sign = begun;
        loop {
            interrupt::check()?;
            let left = limit.left(begun, last_sign);
            match self.signals.recv_timeout(left.min(POLL)) {
                Ok(signal) => {
                    last_sign = Instant::now();
                    self.observe(&signal);
                    if let Some(picked) = pick(&signal) {
                        return Ok(picked);
                    }
                    if matches!(signal.what, What::Stopped) {
                        return Err(self.stopped_error(what));
                    }
                    // A kernel that panicked does nothing more: fail now instead of at the timeout.
                    if matches!(&signal.what, What::Console(line) if line.contains(PANIC_END)) {
                        return Err(LabError::Stopped {
                            what: what.to_owned(),
                            how: "its kernel panicked".to_owned(),
                            console: self.tail.describe(&self.log),
                        });
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.stopped_error(what)),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    let (what, console) = (what.to_owned(), self.tail.describe(&self.log));
                    return Err(LabError::Timeout {
                        what,
                        timeout: begun.elapsed(),
                        console,
                    });
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Sends a request; returns its number.
    ///
    /// # Errors
    /// The machine is gone.
    pub fn send(&mut self, call: Call) -> Result<u64, LabError> {
        let id = NEXT_REQUEST.fetch_add(1, Ordering::Relaxed);
        let bytes = encode(&Request { id, call });
        self.control
            .write_all(&bytes)
            .doing("send a request to the agent in the machine")?;
        Ok(id)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The agent's error, a timeout, a stop.
    pub fn call(&mut self, call: Call, timeout: Duration) -> Result<Value, LabError> {
        let what = describe(&call);
        let id = self.send(call)?;
        self.wait(&what, timeout, |signal| reply_to(signal, id))?
            .map_err(LabError::Guest)
    }

    /// As [`PowerOn::call`], with the answer in its type.
    ///
    /// # Errors
    /// As there, and an answer of another form.
    pub fn query<T: for<'de> serde::Deserialize<'de>>(
        &mut self,
        call: Call,
        timeout: Duration,
    ) -> Result<T, LabError> {
        let what = describe(&call);
        let value = self.call(call, timeout)?;
        serde_json::from_value(value)
            .map_err(|error| LabError::Unexpected(format!("{what}: the answer: {error}")))
    }

    /// Waits until the agent of a freshly booted system is ready, while the machine says something
    /// at least every `silence`.
    ///
    /// # Errors
    /// A timeout or a stop.
    pub fn wait_ready(&mut self, silence: Duration) -> Result<Hello, LabError> {
        let limit = Limit::of_silence(silence);
        let ready = self.wait("the boot", limit, |signal| match &signal.what {
            What::Agent(FromGuest::Ready(hello)) => Some(hello.clone()),
            _ => None,
        });
        if matches!(ready, Err(LabError::Timeout { .. })) {
            self.examine();
        }
        ready
    }

    /// For a machine that stands still: writes what its processors and interrupt controllers are
    /// doing into the emulator's log.
    pub fn examine(&mut self) {
        let mut text = String::new();
        for command_line in EXAMINATION {
            let command = qapi::qmp::human_monitor_command {
                command_line: command_line.into(),
                cpu_index: None,
            };
            let answer = self.qmp.execute(&command).and_then(|()| {
                self.wait(command_line, MONITOR_TIMEOUT, |signal| match &signal.what {
                    What::Monitor(text) => Some(text.clone()),
                    _ => None,
                })
            });
            let answer = answer.unwrap_or_else(|error| error.to_string());
            text += &format!("(qemu) {command_line}\n{}\n", answer.trim_end());
        }
        // The caller reports that the machine stands still; this only adds to it.
        let _ = File::options()
            .append(true)
            .open(&self.emulator_log)
            .and_then(|mut file| file.write_all(text.as_bytes()));
    }

    /// Takes the power away at once.
    pub fn cut_power(&mut self) {
        self.cut_power_and_drain(|_| ());
    }

    /// The same; `receive` gets everything that the machine had sent until then.
    pub fn cut_power_and_drain(&mut self, receive: impl FnMut(&Signal)) {
        let _ = self.child.kill();
        self.finish(receive);
    }

    /// Asks the system to switch itself off and waits until it reports that it does; takes the
    /// power away if it is not gone then. (QEMU under SeaBIOS stays on after an S3.)
    ///
    /// # Errors
    /// The system does not come to the point of switching itself off.
    pub fn power_off(&mut self, timeout: Duration) -> Result<(), LabError> {
        if !self.stopped {
            self.send(Call::PowerOff)?;
            let result = self.wait("power off", timeout, |signal| match &signal.what {
                What::Stopped => Some(()),
                What::Console(line) if line.contains(POWER_DOWN) => Some(()),
                _ => None,
            });
            if result.is_ok() && !self.stopped {
                let stopped = |signal: &Signal| matches!(signal.what, What::Stopped).then_some(());
                let _ = self.wait("power off", POWER_DOWN_TIMEOUT, stopped);
            }
            self.cut_power();
            return result;
        }
        Ok(())
    }

    /// Wakes a machine from ACPI S3.
    ///
    /// # Errors
    /// The emulator is gone.
    pub fn wake_from_s3(&mut self) -> Result<(), LabError> {
        self.qmp.execute(&qapi::qmp::system_wakeup {})
    }

    /// From now on wakes the machine as soon as it sleeps to RAM. An alarm of its clock might come
    /// before it sleeps, and QEMU can lose such an alarm.
    pub fn keep_awake(&mut self) {
        self.keeps_awake = true;
    }

    /// Lets others attach to the console.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn serve_console(&self, path: &std::path::Path) -> Result<(), LabError> {
        console::serve(path, &self.taps, &self.console)
    }

    /// How the machine stopped, once it has.
    pub fn stop_cause(&mut self) -> Option<StopCause> {
        self.finish(|_| ());
        *self
            .stop_cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of this power-on in the machine's life.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The emulator's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Hears the machine out and collects the emulator.
    fn finish(&mut self, mut receive: impl FnMut(&Signal)) {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while !self.stopped {
            match self
                .signals
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(signal) => {
                    self.observe(&signal);
                    receive(&signal);
                }
                Err(_) => {
                    let _ = self.child.kill();
                    self.stopped = true;
                }
            }
        }
        let _ = self.child.wait();
    }

    fn observe(&mut self, signal: &Signal) {
        match &signal.what {
            What::Console(line) => {
                self.tail.push(line);
                if let Some(text) = &self.types
                    && line.contains(PROMPT)
                {
                    sealing::type_line(&self.console, text);
                }
            }
            What::ConsoleEvent(event) => self.record(event.clone(), signal.at_ns),
            What::Agent(FromGuest::Event { event }) => {
                if let Ok(event) = serde_json::from_value::<Event>(event.clone()) {
                    self.record(event, signal.at_ns);
                }
            }
            What::Agent(FromGuest::Awake { monotonic_ns, .. }) => {
                let event = Event::new(*monotonic_ns, Clock::Guest, "resume", "awake", Kind::Mark);
                self.record(event, signal.at_ns);
            }
            What::Agent(FromGuest::Ready(hello)) => {
                let event = Event::new(hello.uptime_ns, Clock::Guest, "boot", "ready", Kind::Mark);
                self.record(event, signal.at_ns);
            }
            What::Stopped => {
                self.stopped = true;
                let event = Event::new(
                    signal.at_ns,
                    Clock::Host,
                    "machine",
                    "power-off",
                    Kind::Mark,
                );
                self.record(event, signal.at_ns);
            }
            What::Suspended if self.keeps_awake => {
                // An emulator that has ended is noticed by the next wait.
                let _ = self.wake_from_s3();
            }
            What::Agent(FromGuest::Reply { .. }) | What::Suspended | What::Monitor(_) => {}
        }
    }

    fn record(&self, event: Event, at_ns: u64) {
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        recorder.record(event, at_ns, self.number);
    }

    fn stopped_error(&mut self, what: &str) -> LabError {
        let how = match self.stop_cause() {
            Some(StopCause::PoweredOff) => "it switched itself off",
            Some(StopCause::Reset) => "it reset itself, as after a crash",
            Some(StopCause::Host) => "the host ended it",
            None => "the emulator ended",
        };
        LabError::Stopped {
            what: what.to_owned(),
            how: how.to_owned(),
            console: self.tail.describe(&self.log),
        }
    }
}

impl Drop for PowerOn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a request is about, for error messages.
fn describe(call: &Call) -> String {
    match call {
        Call::Hello => "the agent's greeting".into(),
        Call::StartWorkload(_) => "filling memory".into(),
        Call::Verify => "comparing memory".into(),
        Call::Refill { .. } => "filling memory anew".into(),
        Call::Run(plan) => format!("the end of `{}`", plan.argv.join(" ")),
        Call::Sleep { .. } => "the end of `dormouse sleep`".into(),
        Call::Device { .. } => "the next answer about devices".into(),
        Call::PrepareHibernation(_) => "getting ready to hibernate".into(),
        Call::Hibernate => "the end of hibernation".into(),
        Call::Stress(call) => call.describe().into(),
        Call::Placement => "reading where pages are".into(),
        Call::PutFile(part) => format!("writing {}", part.path),
        Call::Shell => "the start of a shell".into(),
        Call::StartHardToMove { .. } => "hard-to-move memory to be set up".into(),
        Call::VerifyHardToMove => "hard-to-move memory to be compared".into(),
        Call::PowerOff => "power off".into(),
    }
}
