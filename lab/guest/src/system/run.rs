//! Runs a program to its end and returns its output.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dormouse_guest::protocol::{RunPlan, RunResult};

use crate::error::{Doing, GuestError};
use crate::system::cgroups;

const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// Starts a program in a control group, so early that none of its memory is charged elsewhere.
pub fn spawn_in(command: &mut Command, group: &str) -> Result<Child, GuestError> {
    let procs = cgroups::path_of(group)?.join("cgroup.procs");
    let program = command.get_program().to_string_lossy().into_owned();
    // SAFETY: between fork and exec only open, write and close happen; the path was made before.
    unsafe {
        command.pre_exec(move || {
            // "0" means the writing process itself.
            let file = rustix::fs::open(
                &procs,
                rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            )?;
            rustix::io::write(&file, b"0")?;
            Ok(())
        });
    }
    command.spawn().doing(format!("start {program}"))
}

/// Runs the plan to its end or its timeout.
pub fn run(plan: &RunPlan) -> Result<RunResult, GuestError> {
    let [program, arguments @ ..] = plan.argv.as_slice() else {
        return Err(GuestError::Other("there is no program to run".into()));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let group = plan.cgroup.as_deref().unwrap_or(cgroups::AGENT);
    let mut child = spawn_in(&mut command, group)?;
    if let Some(mut stdin) = child.stdin.take() {
        let text = plan.stdin.clone();
        // A program that does not read must not stop the agent.
        thread::spawn(move || stdin.write_all(text.as_bytes()));
    }
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let status = wait(&mut child, Duration::from_secs(plan.timeout_s))?;
    Ok(RunResult {
        status: code(status),
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    })
}

/// Reads a stream to its end in a thread; keeps the first part of it.
pub fn collect(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let Some(mut stream) = stream else {
            return String::new();
        };
        let mut kept = Vec::new();
        let _ = stream
            .by_ref()
            .take(MAX_OUTPUT_BYTES)
            .read_to_end(&mut kept);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        String::from_utf8_lossy(&kept).into_owned()
    })
}

/// Exit status as shells give it.
pub fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn wait(child: &mut Child, timeout: Duration) -> Result<ExitStatus, GuestError> {
    if timeout.is_zero() {
        return child.wait().doing("wait for the program");
    }
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().doing("wait for the program")? {
            return Ok(status);
        }
        if started.elapsed() > timeout {
            let _ = child.kill();
            return child.wait().doing("wait for the killed program");
        }
        thread::sleep(Duration::from_millis(10));
    }
}
