//! Init of the machine for bandwidth control: does the job from the initrd and resets the machine,
//! which ends the emulator; and the programs that it starts as load.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_guest::protocol::bandwidth_job::{Answer, JOB, Step};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Doing, GuestError};
use crate::jobs::job;
use crate::jobs::traffic::Meters;

const CGROUPS: &str = "/sys/fs/cgroup";

/// Whether this boot is for that.
pub fn is_asked() -> bool {
    Path::new(JOB).exists()
}

/// Does the job; never returns.
pub fn run() -> ! {
    job::run("bandwidth", serve)
}

fn serve() -> Result<(), GuestError> {
    let more = [("cgroup2", CGROUPS, "cgroup2"), ("tmpfs", "/run", "tmpfs")];
    let (mut voice, steps) = job::begin::<Step>(JOB, &more)?;
    let mut programs = Programs::default();
    for (number, step) in steps.iter().enumerate() {
        let mut answer = programs.act(step).unwrap_or_else(|error| Answer {
            error: Some(error.to_string()),
            ..Answer::default()
        });
        answer.step = number;
        job::say(&mut voice, &answer)?;
        if answer.error.is_some() {
            return Ok(());
        }
    }
    let step = steps.len();
    job::say(
        &mut voice,
        &Answer {
            step,
            ..Answer::default()
        },
    )
}

#[derive(Default)]
struct Programs {
    started: HashMap<String, Child>,
}

fn command(words: &[String]) -> Result<Command, GuestError> {
    let (program, words) = words
        .split_first()
        .ok_or_else(|| GuestError::Other("a program without a name".into()))?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    Ok(command)
}

fn output_of(name: &str) -> PathBuf {
    Path::new("/run").join(format!("{name}.log"))
}

impl Programs {
    fn act(&mut self, step: &Step) -> Result<Answer, GuestError> {
        let mut answer = Answer::default();
        match step {
            Step::Group { path } => make_group(path)?,
            Step::Start { name, group, words } => self.start(name, group.as_deref(), words)?,
            Step::Run { words } => {
                let output = command(words)?
                    .output()
                    .doing(format!("run {}", words.join(" ")))?;
                answer.text = String::from_utf8_lossy(&output.stdout).into_owned();
                answer.text += &String::from_utf8_lossy(&output.stderr);
                if !output.status.success() {
                    let what = format!("{}: {}: {}", words.join(" "), output.status, answer.text);
                    return Err(GuestError::Other(what));
                }
            }
            Step::Signal { name, signal } => self.signal(name, *signal)?,
            Step::Said { name } => {
                let path = output_of(name);
                let said = fs::read(&path).doing(format!("read {}", path.display()))?;
                answer.text = String::from_utf8_lossy(&said).into_owned();
            }
            Step::Write { path, text } => {
                fs::write(path, text).doing(format!("write {path}"))?;
            }
            Step::Read { path } => {
                answer.text = fs::read_to_string(path).doing(format!("read {path}"))?;
            }
            Step::Await {
                path,
                text,
                seconds,
                program,
            } => {
                let began = Instant::now();
                while !fs::read_to_string(path).is_ok_and(|now| now.starts_with(text.as_str())) {
                    if began.elapsed() > Duration::from_secs(*seconds) {
                        let said = fs::read_to_string(output_of(program)).unwrap_or_default();
                        let what = format!("{path} is not {text:?}; {program} said: {said}");
                        return Err(GuestError::Other(what));
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            Step::Measure {
                ms,
                groups,
                programs,
                nodes,
                status,
            } => {
                let meters = Meters::open(programs, *nodes, status.as_deref())?;
                measure(*ms, groups, &meters, &mut answer)?;
            }
        }
        Ok(answer)
    }

    fn start(
        &mut self,
        name: &str,
        group: Option<&str>,
        words: &[String],
    ) -> Result<(), GuestError> {
        let path = output_of(name);
        let output = File::create(&path).doing(format!("create {}", path.display()))?;
        let errors = output.try_clone().doing("share an output")?;
        let mut command = command(words)?;
        command.stdout(output).stderr(errors);
        if let Some(group) = group {
            let file = Path::new(CGROUPS).join(group).join("cgroup.procs");
            let doing = format!("open {}", file.display());
            let procs = OpenOptions::new().write(true).open(file).doing(doing)?;
            // Before the program begins: memory stays charged to the cgroup that it was got in.
            // SAFETY: between fork and exec one system call happens, on memory that is there.
            unsafe { command.pre_exec(move || (&procs).write_all(b"0")) };
        }
        let child = command
            .spawn()
            .doing(format!("start {}", words.join(" ")))?;
        self.started.insert(name.to_owned(), child);
        Ok(())
    }

    fn signal(&mut self, name: &str, signal: i32) -> Result<(), GuestError> {
        let unknown = || GuestError::Other(format!("no program {name}, or no signal {signal}"));
        let child = self.started.get_mut(name).ok_or_else(unknown)?;
        let signal = Signal::from_named_raw(signal).ok_or_else(unknown)?;
        kill_process(Pid::from_child(child), signal).doing(format!("signal {name}"))?;
        if matches!(signal, Signal::KILL | Signal::TERM) {
            child.wait().doing(format!("wait for {name}"))?;
        }
        Ok(())
    }
}

fn make_group(path: &str) -> Result<(), GuestError> {
    let mut folder = PathBuf::from(CGROUPS);
    for part in Path::new(path) {
        let control = folder.join("cgroup.subtree_control");
        fs::write(&control, "+cpu +memory").doing(format!("write {}", control.display()))?;
        folder.push(part);
        fs::create_dir_all(&folder).doing(format!("create {}", folder.display()))?;
    }
    Ok(())
}

fn measure(
    ms: u64,
    groups: &[String],
    meters: &Meters,
    answer: &mut Answer,
) -> Result<(), GuestError> {
    let used = |group: &String| -> Result<f64, GuestError> {
        let file = Path::new(CGROUPS).join(group).join("cpu.stat");
        let text = fs::read_to_string(&file).doing(format!("read {}", file.display()))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        let usec = line.and_then(|value| value.parse::<f64>().ok());
        usec.ok_or_else(|| GuestError::Other(format!("{}: {text}", file.display())))
    };
    let all = || groups.iter().map(used).collect::<Result<Vec<f64>, _>>();
    let (first, before) = (meters.read()?, all()?);
    std::thread::sleep(Duration::from_millis(ms));
    let (last, after) = (meters.read()?, all()?);
    let passed_us = last.seconds_since(&first) * 1e6;
    for (group, (before, after)) in groups.iter().zip(before.iter().zip(after)) {
        answer
            .cpus
            .insert(group.clone(), (after - before) / passed_us);
    }
    answer.traffic = last.traffic(&first);
    answer.device = last.device(&first);
    answer.charged = last.charged(&first);
    answer.held_back = last.held_back(&first);
    answer.passes = [first.passes(), last.passes()];
    answer.apart_ns = [first.apart_ns(), last.apart_ns()];
    Ok(())
}

/// Uses a part of a CPU: computes for so long, sleeps for so long, without end.
pub fn compute(busy_ms: &str, sleep_ms: &str) -> Result<(), GuestError> {
    let ms = |text: &str| {
        let ms = text.parse().map(Duration::from_millis);
        ms.map_err(|_| GuestError::Other(format!("{text:?} is no number of milliseconds")))
    };
    let (busy, sleep) = (ms(busy_ms)?, ms(sleep_ms)?);
    loop {
        let began = Instant::now();
        while began.elapsed() < busy {
            std::hint::spin_loop();
        }
        std::thread::sleep(sleep);
    }
}
