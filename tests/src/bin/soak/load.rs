//! The load of the machine while the tests run.

use std::convert::Infallible;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// Busy loops of the load `busy`: three for each of two processors.
const LOOPS: usize = 6;
/// How often a command that has ended is started again.
const POLL: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    Quiet,
    Busy,
    Command(String),
}

impl FromStr for Load {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Load, Infallible> {
        Ok(match text {
            "" | "quiet" => Load::Quiet,
            "busy" => Load::Busy,
            command => Load::Command(command.to_owned()),
        })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Command(command) => write!(out, "`{command}`"),
            known => out.write_str(known.name()),
        }
    }
}

impl Load {
    /// For names of files.
    pub fn name(&self) -> &'static str {
        match self {
            Load::Quiet => "quiet",
            Load::Busy => "busy",
            Load::Command(_) => "command",
        }
    }

    /// Goes on until what it returns is dropped.
    pub fn start(&self) -> Result<Running, String> {
        let end = Arc::new(AtomicBool::new(false));
        let threads = match self {
            Load::Quiet => Vec::new(),
            Load::Busy => (0..LOOPS).map(|_| spin(Arc::clone(&end))).collect(),
            Load::Command(command) => {
                // The first start says whether there is such a thing at all.
                let child = started(command)?;
                vec![repeat(command.clone(), child, Arc::clone(&end))]
            }
        };
        Ok(Running { end, threads })
    }
}

/// A load; dropping it ends it.
pub struct Running {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn spin(end: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while !end.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    })
}

fn started(command: &str) -> Result<Child, String> {
    Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|why| format!("the load `{command}`: {why}"))
}

fn repeat(command: String, mut child: Child, end: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while !end.load(Ordering::Relaxed) {
            std::thread::sleep(POLL);
            if matches!(child.try_wait(), Ok(Some(_))) {
                match started(&command) {
                    Ok(next) => child = next,
                    Err(why) => return eprintln!("soak: {why}"),
                }
            }
        }
        if let Some(group) = Pid::from_raw(child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_started_again_and_ends_with_the_load() {
        let folder = tempfile::tempdir().unwrap();
        let (count, alive) = (folder.path().join("count"), folder.path().join("alive"));
        let command = format!("echo x >> {}; sleep 0.01", count.display());
        let running = Load::from_str(&command).unwrap().start().unwrap();
        while std::fs::read_to_string(&count).unwrap_or_default().len() < 6 {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(running);
        let command = format!("echo $$ > {}; exec sleep 1000", alive.display());
        let running = Load::from_str(&command).unwrap().start().unwrap();
        let pid = loop {
            let text = std::fs::read_to_string(&alive).unwrap_or_default();
            if text.ends_with('\n') {
                break text;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        drop(running);
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
    }

    #[test]
    fn the_two_named_loads_are_no_commands() {
        assert_eq!(Load::from_str("quiet"), Ok(Load::Quiet));
        assert_eq!(Load::from_str("busy"), Ok(Load::Busy));
        let command = Load::from_str("stress-ng --vm 1").unwrap();
        assert_eq!(command.to_string(), "`stress-ng --vm 1`");
    }
}
