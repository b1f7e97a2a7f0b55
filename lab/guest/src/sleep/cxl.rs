//! Runs `dormouse sleep` for the lab, passes its events on, and notices the waking itself.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::thread;

use dormouse_guest::protocol::RunResult;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use serde_json::Value;

use crate::error::{Doing, GuestError};
use crate::system::cgroups;
use crate::system::run;

/// Runs `dormouse sleep` to its end, after waking; each event goes to `on_event` as it appears.
pub fn sleep(
    arguments: &[String],
    on_event: impl Fn(Value) + Send + 'static,
) -> Result<RunResult, GuestError> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).doing("make a pipe for events")?;
    // The child gets the pipe's end under its own number, and opens it by path.
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty())
        .doing("pass the pipe to dormouse sleep")?;
    let mut command = Command::new("dormouse");
    command
        .args(["sleep", "--json", "--events"])
        .arg(format!("/proc/self/fd/{}", writer.as_raw_fd()))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = run::spawn_in(&mut command, cgroups::AGENT)?;
    drop(writer);
    let events = thread::spawn(move || pass_on(File::from(reader), &on_event));
    let stdout = run::collect(child.stdout.take());
    let stderr = run::collect(child.stderr.take());
    let status = child.wait().doing("wait for dormouse sleep")?;
    let _ = events.join();
    Ok(RunResult {
        status: run::code(status),
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    })
}

fn pass_on(reader: File, on_event: &impl Fn(Value)) {
    for line in BufReader::new(reader).lines().map_while(Result::ok) {
        if let Ok(event) = serde_json::from_str(&line) {
            on_event(event);
        }
    }
}

/// Time since boot without the time asleep.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Calls `on_wake` each time user space runs again after a suspend, for ever.
///
/// A timer on the wall clock that asks to be cancelled when that clock jumps is woken by the
/// kernel as soon as tasks run again: no polling, no delay.
pub fn watch_for_wake(on_wake: impl Fn()) -> Result<(), GuestError> {
    let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC)
        .doing("create the wake timer")?;
    let never = Itimerspec {
        it_interval: Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: Timespec {
            tv_sec: i64::from(i32::MAX) * 4,
            tv_nsec: 0,
        },
    };
    loop {
        timerfd_settime(
            &timer,
            TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET,
            &never,
        )
        .doing("set the wake timer")?;
        match rustix::io::read(&timer, &mut [0u8; 8]) {
            Err(rustix::io::Errno::CANCELED) => on_wake(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).doing("wait for the wake timer"),
        }
    }
}
