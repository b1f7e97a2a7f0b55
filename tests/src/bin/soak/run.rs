//! Runs one test alone, and reports its result and duration.

use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::suite::Test;

/// How often the end of a test is looked for.
const POLL: Duration = Duration::from_millis(20);

/// How a run ended.
pub struct Ended {
    pub ok: bool,
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// What it printed, both streams.
    pub output: Vec<u8>,
}

/// Runs a test in a process of its own.
///
/// # Errors
/// It cannot be started at all.
pub fn run(test: &Test, limit: Duration) -> Result<Ended, String> {
    let mut command = Command::new(&test.binary);
    command
        .args(["--exact", &test.name, "--test-threads", "1"])
        .args(test.ignored.then_some("--ignored"))
        .current_dir(&test.package)
        .env("CARGO_MANIFEST_DIR", &test.package);
    run_command(command, limit).map_err(|why| format!("{}: {why}", test.id))
}

fn run_command(mut command: Command, limit: Duration) -> std::io::Result<Ended> {
    let mut output = tempfile::tempfile()?;
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .process_group(0);
    // SAFETY: one system call that allocates nothing.
    unsafe { command.pre_exec(leave_ipc_namespace) };
    let begun = Instant::now();
    let (status, cpu_seconds) = wait(command.spawn()?, begun, limit)?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut text = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut text)?;
    // A name that the binary does not know is no failure to libtest: nothing ran.
    let ran = String::from_utf8_lossy(&text).contains("running 1 test");
    match status {
        Some(status) => text.extend(format!("\n--- {status}\n").into_bytes()),
        None => text.extend(format!("\n--- ended after {limit:?}\n").into_bytes()),
    }
    Ok(Ended {
        ok: ran && status.is_some_and(|status| status.success()),
        seconds,
        cpu_seconds,
        output: text,
    })
}

/// System V objects and message queues outlive the programs that made them, and tests kill programs. In a
/// namespace of the test's own they go with the last process.
fn leave_ipc_namespace() -> std::io::Result<()> {
    // SAFETY: the child between fork and exec has one thread, and shares nothing with others here.
    match unsafe { unshare_unsafe(UnshareFlags::NEWIPC) } {
        // Without the right to do so they stay, as with `cargo test`.
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The status of a child, None if it had to be ended, and the processor time of it and of all its
/// descendants that were waited for.
fn wait(
    child: Child,
    begun: Instant,
    limit: Duration,
) -> std::io::Result<(Option<ExitStatus>, f64)> {
    let pid = child.id() as i32;
    let mut ended = false;
    loop {
        let mut status = 0;
        // SAFETY: all bytes of this C structure may be zero.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both live until the call returns; the child is ours and not yet waited for.
        let got = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
        if got == pid {
            let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
            let status = (!ended).then(|| ExitStatus::from_raw(status));
            return Ok((status, cpu));
        }
        if got < 0 {
            return Err(std::io::Error::last_os_error());
        }
        if begun.elapsed() > limit && !ended {
            ended = true;
            if let Some(group) = Pid::from_raw(pid) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        std::thread::sleep(POLL);
    }
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn shell(line: &str, limit: Duration) -> Ended {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]);
        run_command(command, limit).unwrap()
    }

    #[test]
    fn a_failed_test_keeps_its_output() {
        let ended = shell("echo running 1 test; echo the reason >&2; exit 101", LONG);
        assert!(!ended.ok);
        let said = String::from_utf8_lossy(&ended.output);
        assert!(
            said.contains("the reason") && said.contains("101"),
            "{said}"
        );
    }

    #[test]
    fn a_test_that_hangs_is_ended_with_its_children_and_failed() {
        let limit = Duration::from_millis(200);
        let ended = shell("echo running 1 test; sleep 1000 & sleep 1000", limit);
        assert!(!ended.ok && ended.seconds >= 0.2);
    }

    #[test]
    fn a_test_that_is_not_there_has_not_passed() {
        assert!(!shell("echo running 0 tests", LONG).ok);
        assert!(shell("echo running 1 test", LONG).ok);
    }

    #[test]
    fn message_queues_and_the_like_of_a_test_go_with_it() {
        let namespace = std::fs::read_link("/proc/self/ns/ipc").unwrap();
        let ended = shell("echo running 1 test; readlink /proc/self/ns/ipc", LONG);
        let said = String::from_utf8_lossy(&ended.output);
        assert!(ended.ok && said.contains("ipc:["), "{said}");
        let own = rustix::thread::capabilities(None).unwrap().effective;
        if own.contains(rustix::thread::CapabilitySet::SYS_ADMIN) {
            assert!(!said.contains(&*namespace.to_string_lossy()), "{said}");
        }
    }

    #[test]
    fn the_processor_time_of_children_counts() {
        let ended = shell("i=0; (while [ $i -lt 200000 ]; do i=$((i+1)); done)", LONG);
        assert!(ended.cpu_seconds > 0.0);
    }
}
