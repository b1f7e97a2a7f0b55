//! A machine that does one job, which lies in its initrd, and answers on its second serial line:
//! a kernel, our init, no disk. It is woken as soon as it sleeps.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use dormouse_guest::protocol::frame::Decoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::build::initrd_with;
use crate::child;
use crate::emulator::accelerator::TCG_PROCESSOR;
use crate::emulator::console::Tail;
use crate::emulator::monitor::{Exchanges, Monitor};
use crate::emulator::qemu::{PROGRAM, escaped};
use crate::emulator::stall::{self, Keyboard};
use crate::error::{Doing, LabError};
use crate::interrupt;

/// No step takes longer, a hanging device's time-out included; booting neither.
const STEP_TIMEOUT: Duration = Duration::from_secs(180);
/// How often a wait looks for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(200);

/// How the machine starts.
#[derive(Debug)]
pub struct Boot<'a> {
    pub kernel: &'a Path,
    /// Of the machine without a job.
    pub initrd: &'a Path,
    /// Where init looks for its job.
    pub job: &'a str,
    pub cpus: u32,
    /// A host thread for each processor; one for all otherwise.
    pub threads: bool,
    /// What the emulator calls the board, with its options.
    pub board: &'a str,
    /// As the emulator has it: `256M`.
    pub memory: &'a str,
    /// Further arguments of the emulator.
    pub more: Vec<String>,
    /// What happens to its devices while it sleeps.
    pub exchanges: Exchanges,
    /// The kernel's command line.
    pub cmdline: String,
}

/// The machine while it is on; `A`: what it answers.
pub struct JobMachine<A> {
    child: Child,
    answers: Receiver<A>,
    console: PathBuf,
    keyboard: Keyboard,
    monitor: Monitor,
    stall_log: PathBuf,
}

impl<A: DeserializeOwned + Send + 'static> JobMachine<A> {
    /// Switches it on with these steps to do; its console is logged in the folder.
    ///
    /// # Errors
    /// The folder cannot be written, or the emulator does not start.
    pub fn start(
        boot: &Boot<'_>,
        folder: &Path,
        steps: &[impl Serialize],
    ) -> Result<Self, LabError> {
        fs::create_dir_all(folder).doing(format!("create {}", folder.display()))?;
        let steps = serde_json::to_vec(steps).expect("steps are plain data");
        let initrd = folder.join("initrd.cpio");
        let bytes = initrd_with(boot.initrd, boot.job, &steps)?;
        fs::write(&initrd, bytes).doing(format!("write {}", initrd.display()))?;
        let console = folder.join("console.log");
        let log = folder.join("emulator.log");
        let log = File::create(&log).doing(format!("create {}", log.display()))?;
        let pair = || UnixStream::pair().doing("make a line to the machine");
        let (keyboard, keyboard_end) = pair()?;
        let (monitor, monitor_end) = pair()?;
        let ends: [OwnedFd; 2] = [keyboard_end.into(), monitor_end.into()];
        let numbers = ends.each_ref().map(|end| end.as_raw_fd());
        let mut console_line = OsString::from(format!(
            "socket,id={},fd={},logfile=",
            stall::CONSOLE,
            numbers[0]
        ));
        console_line.push(escaped(&console));
        let threads = if boot.threads { "multi" } else { "single" };
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
            .args(&boot.more)
            .args(["-cpu", TCG_PROCESSOR])
            .args(["-M", boot.board, "-m", boot.memory])
            // A package for each: the firmware's table of processors has one of each package.
            .args([
                "-smp",
                &format!("{0},sockets={0},cores=1,threads=1", boot.cpus),
            ])
            .args(["-chardev", "stdio,id=answers,signal=off"])
            .arg("-chardev")
            .arg(console_line)
            .args(["-chardev", &format!("socket,id=monitor,fd={}", numbers[1])])
            .args(["-mon", "chardev=monitor,mode=control"])
            .args(["-serial", &format!("chardev:{}", stall::CONSOLE)])
            .args(["-serial", "chardev:answers"])
            .arg("-kernel")
            .arg(boot.kernel)
            .arg("-initrd")
            .arg(&initrd)
            // A machine that stands still is asked by the system request key, which distributions
            // allow in part.
            .arg("-append")
            .arg(format!("{} sysrq_always_enabled", boot.cmdline))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        child::keep_open(&mut command, ends);
        let mut child = child::spawn(&mut command)?;
        let answers = listen(child.stdout.take());
        Ok(Self {
            child,
            answers,
            console,
            keyboard: Keyboard::new(keyboard)?,
            monitor: Monitor::attend(monitor, boot.exchanges.clone()),
            stall_log: folder.join("stall.log"),
        })
    }

    /// The next answer.
    ///
    /// # Errors
    /// The machine stopped, or says nothing for minutes.
    pub fn next(&mut self) -> Result<A, LabError> {
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
        // The tail of what was said before the kernel is asked to print its tasks.
        let console = self.tail();
        self.keyboard.examine(&self.monitor, &self.stall_log);
        Err(LabError::Timeout {
            what: "the next answer".into(),
            timeout: STEP_TIMEOUT,
            console: format!(
                "{console}\nwhat its processors do is in {}, what its tasks wait for at the end of the console",
                self.stall_log.display()
            ),
        })
    }

    /// How often it has slept to RAM.
    pub fn sleeps(&self) -> usize {
        self.monitor.sleeps()
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

impl<A> Drop for JobMachine<A> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen<A: DeserializeOwned + Send + 'static>(output: Option<ChildStdout>) -> Receiver<A> {
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || {
        let Some(mut output) = output else { return };
        let mut decoder = Decoder::default();
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            for answer in decoder.push::<A>(&bytes[..count]) {
                // There is no receiver once the machine was dropped.
                let _ = sender.send(answer);
            }
        }
    });
    answers
}
