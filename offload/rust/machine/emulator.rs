//! Runs QEMU with exact and repeatable instruction counts (`-icount shift=6`), and ends it.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::OffloadError;

const QEMU: &str = "qemu-system-arm";
/// Limits on one run of the emulator. A guest's budget is counted in instructions; these only end
/// an emulator that hangs. Wall time is longer because the machine may be busy.
pub const MAX_CPU_TIME: Duration = Duration::from_secs(900);
const MAX_WALL_TIME: Duration = Duration::from_secs(4 * 3600);

/// Ends the emulator when it is dropped.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// User's and system's time of a process so far; none if that cannot be read.
fn processor_time(pid: u32) -> Duration {
    // `man 5 proc`: fields 14 and 15 of stat, the second of which, in parentheses, may have spaces.
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks: u64 = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// Runs an emulated machine in a folder until it ends; the answer is what it printed.
///
/// # Errors
/// The emulator is missing, or does not end in its limit of CPU time.
pub fn run(folder: &Path, words: &[String]) -> Result<String, OffloadError> {
    run_within(folder, words, MAX_CPU_TIME)
}

/// What is done while an emulated machine runs, for so long at most, before it is looked at again.
pub type Meanwhile<'a> = &'a mut dyn FnMut(Duration) -> Result<(), OffloadError>;

/// The same, with a limit of CPU time for a program that may hang.
///
/// # Errors
/// As [`run`].
pub fn run_within(
    folder: &Path,
    words: &[String],
    limit: Duration,
) -> Result<String, OffloadError> {
    run_beside(folder, words, limit, &mut |pause| {
        std::thread::sleep(pause);
        Ok(())
    })
}

/// The same, beside something else.
///
/// # Errors
/// As [`run`], and those of what is done meanwhile.
pub fn run_beside(
    folder: &Path,
    words: &[String],
    limit: Duration,
    meanwhile: Meanwhile<'_>,
) -> Result<String, OffloadError> {
    let mut emulator = Command::new(QEMU)
        // While the core waits the machine's time goes by the host's: with `sleep=off` QEMU 7.2 makes each wait
        // of a Cortex-M3 twice as long.
        .args(["-icount", "shift=6", "-semihosting", "-display", "none"])
        .args(["-monitor", "none", "-serial", "null"])
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        // Semihosting writes to standard error or output, by version.
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(Emulator)
        .map_err(|source| OffloadError::MissingTool {
            program: QEMU.into(),
            source,
        })?;
    let collect = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // A stream that breaks is a report that is missing; that is noticed there.
            let _ = stream.map(|mut stream| stream.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let output = collect(emulator.0.stdout.take().map(|s| Box::new(s) as _));
    let errors = collect(emulator.0.stderr.take().map(|s| Box::new(s) as _));
    let start = Instant::now();
    loop {
        // Short pauses at first: most runs end soon.
        let pause = (start.elapsed() / 16).clamp(Duration::from_millis(2), Duration::from_secs(1));
        match emulator.0.try_wait() {
            Ok(Some(_)) => break,
            Ok(None)
                if start.elapsed() > MAX_WALL_TIME || processor_time(emulator.0.id()) > limit =>
            {
                return Err(OffloadError::Machine(format!(
                    "did not end in {} s of processor time",
                    limit.as_secs()
                )));
            }
            Ok(None) => meanwhile(pause)?,
            Err(error) => return Err(OffloadError::Machine(format!("cannot be watched: {error}"))),
        }
    }
    drop(emulator);
    let mut text = output.join().unwrap_or_default();
    text.push_str(&errors.join().unwrap_or_default());
    Ok(text)
}
