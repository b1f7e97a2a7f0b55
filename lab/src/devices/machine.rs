//! The machine whose devices suspend and resume: one boot for one job.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use dormouse_guest::device_job::{Answer, JOB, Step};
use dormouse_guest::frame::Decoder;

use crate::build::{DevicesArtefacts, initrd_with};
use crate::console::Tail;
use crate::error::{Doing, LabError};
use crate::interrupt;
use crate::qemu::PROGRAM;

/// No step takes longer, a hanging device's time-out included; booting neither.
const STEP_TIMEOUT: Duration = Duration::from_secs(180);
/// Which processors Linux has.
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// How often a wait looks for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(200);

/// How the machine is to be.
#[derive(Debug, Clone)]
pub struct Shape {
    pub cpus: u32,
    /// A host thread for each processor; one for all otherwise.
    pub threads: bool,
    pub clock: Clock,
    /// Run the kernel's own tests when it boots.
    pub kunit: bool,
}

/// What the machine's time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The host's.
    Host,
    /// Each instruction of any processor takes so many nanoseconds, a power of two up to 128, and
    /// where all processors sleep, time goes on at once to what they wait for. Whatever else the
    /// host does is no part of it. Needs one host thread.
    Instructions { ns: u32 },
}

impl Clock {
    fn arguments(self) -> Vec<String> {
        match self {
            Clock::Host => Vec::new(),
            Clock::Instructions { ns } => {
                let shift = ns.max(1).ilog2();
                vec!["-icount".into(), format!("shift={shift},sleep=off")]
            }
        }
    }
}

/// Runs the steps in a fresh machine; `each` hears every answer as it comes, and a last one that
/// tells that the job is done.
///
/// # Errors
/// The machine does not start, a step fails, or nothing is heard for long: the end of its console
/// is shown.
pub fn run(
    artefacts: &DevicesArtefacts,
    shape: &Shape,
    folder: &Path,
    steps: &[Step],
    mut each: impl FnMut(&Answer) -> Result<(), LabError>,
) -> Result<(), LabError> {
    fs::create_dir_all(folder).doing(format!("create {}", folder.display()))?;
    let online = Step::Read {
        path: ONLINE.into(),
    };
    let job: Vec<&Step> = std::iter::once(&online).chain(steps).collect();
    let job = serde_json::to_vec(&job).expect("steps are plain data");
    let initrd = folder.join("initrd.cpio");
    let bytes = initrd_with(&artefacts.initrd, JOB, &job)?;
    fs::write(&initrd, bytes).doing(format!("write {}", initrd.display()))?;
    let mut machine = Machine::start(artefacts, shape, folder, &initrd)?;
    // What the kernel reported while it booted goes with the first step.
    let mut reports = Vec::new();
    loop {
        let mut answer = machine.next()?;
        if let Some(error) = answer.error {
            return Err(LabError::Guest(error));
        }
        let Some(step) = answer.step.checked_sub(1) else {
            all_online(shape.cpus, answer.text.trim())?;
            reports = answer.reports;
            continue;
        };
        answer.step = step;
        answer.reports.splice(..0, reports.drain(..));
        each(&answer)?;
        if answer.step == steps.len() {
            return Ok(());
        }
    }
}

/// With fewer processors than asked for, every result would be about another machine.
fn all_online(cpus: u32, online: &str) -> Result<(), LabError> {
    let wanted = match cpus {
        0 | 1 => "0".to_owned(),
        _ => format!("0-{}", cpus - 1),
    };
    if online == wanted {
        return Ok(());
    }
    Err(LabError::Unexpected(format!(
        "the machine has processors {online}, not {wanted}"
    )))
}

struct Machine {
    child: Child,
    answers: Receiver<Answer>,
    console: PathBuf,
}

impl Machine {
    fn start(
        artefacts: &DevicesArtefacts,
        shape: &Shape,
        folder: &Path,
        initrd: &Path,
    ) -> Result<Machine, LabError> {
        let console = folder.join("console.log");
        let log = folder.join("emulator.log");
        let log = File::create(&log).doing(format!("create {}", log.display()))?;
        let threads = if shape.threads { "multi" } else { "single" };
        let mut command = Command::new(PROGRAM);
        command
            .args([
                "-no-user-config",
                "-nodefaults",
                "-display",
                "none",
                "-no-reboot",
            ])
            .args(["-accel", &format!("tcg,thread={threads}")])
            .args(shape.clock.arguments())
            .args([
                "-cpu",
                "max,-erms,-fsrm",
                "-M",
                "q35,acpi=off",
                "-m",
                "256M",
            ])
            // A package for each: the firmware's table of processors has one of each package.
            .args([
                "-smp",
                &format!("{0},sockets={0},cores=1,threads=1", shape.cpus),
            ])
            .args(["-chardev", "stdio,id=answers,signal=off"])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(["-serial", "chardev:answers"])
            .arg("-kernel")
            .arg(&artefacts.kernel)
            .arg("-initrd")
            .arg(initrd)
            // The console is slow, and what the kernel says there would count as its own time. On a
            // busy host the timer may be late for the kernel's check of it, which is a panic.
            .arg("-append")
            .arg(format!(
                "console=ttyS0 loglevel=4 panic=-1 no_console_suspend suspend.pm_test_delay=0 \
                 tsc=reliable no_timer_check kunit.enable={}",
                u8::from(shape.kunit)
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0);
        // SAFETY: between fork and exec one system call happens, which takes numbers.
        unsafe {
            command.pre_exec(
                || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                },
            );
        }
        let mut child = command.spawn().map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => LabError::MissingTool {
                program: PROGRAM.into(),
            },
            _ => LabError::Io {
                what: format!("start {PROGRAM}"),
                source,
            },
        })?;
        let answers = listen(child.stdout.take());
        Ok(Machine {
            child,
            answers,
            console,
        })
    }

    fn next(&mut self) -> Result<Answer, LabError> {
        let mut waited = Duration::ZERO;
        while waited < STEP_TIMEOUT {
            interrupt::check()?;
            match self.answers.recv_timeout(GLANCE) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => waited += GLANCE,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(LabError::Stopped {
                        what: "the next answer".into(),
                        how: "it reset itself, as after a crash".into(),
                        console: self.tail(),
                    });
                }
            }
        }
        Err(LabError::Timeout {
            what: "the next answer".into(),
            timeout: STEP_TIMEOUT,
            console: self.tail(),
        })
    }

    fn tail(&self) -> String {
        let mut tail = Tail::default();
        let text = fs::read(&self.console).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            tail.push(line);
        }
        tail.describe(&self.console)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(output: Option<ChildStdout>) -> Receiver<Answer> {
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || {
        let Some(mut output) = output else { return };
        let mut decoder = Decoder::default();
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            for answer in decoder.push::<Answer>(&bytes[..count]) {
                // Nobody listens any more once the machine was dropped.
                let _ = sender.send(answer);
            }
        }
    });
    answers
}
