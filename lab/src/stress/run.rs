//! A run of many cycles: the journal, machines side by side, progress, and the summary.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::driver::Driver;
use super::evidence::{self, Traces};
use super::inject::Injection;
use super::journal::{Journal, RunIdentity};
use super::line::StressLine;
use super::plan::CyclePlan;
use super::span::Estimate;
use super::summary::Summary;
use crate::emulator::lab::Lab;
use crate::emulator::qemu::{Firmware, Parts};
use crate::error::{Doing, LabError};
use crate::machine::MachineConfig;

const SCRATCH_BYTES: u64 = 256 << 20;

/// What to run.
#[derive(Clone, Debug)]
pub struct StressOptions {
    pub folder: PathBuf,
    pub identity: RunIdentity,
    pub firmware: Firmware,
    pub cycles: u64,
    pub jobs: usize,
    pub restart: bool,
    /// This cycle alone, without a journal.
    pub only: Option<u64>,
    /// Seconds after the request to sleep; instead of what the plan says.
    pub cut_at_s: Option<f64>,
    /// Failed cycles after which the run ends.
    pub max_failures: u64,
    /// Faults that are put in on purpose, one a cycle in turn.
    pub inject: Vec<Injection>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub done: u64,
    pub failed: u64,
    pub cycles: u64,
    /// Cycles a minute, of this call.
    pub per_minute: f64,
    pub remaining: Option<Duration>,
}

impl Progress {
    /// For people.
    pub fn describe(&self) -> String {
        let remaining = self.remaining.map_or_else(String::new, |left| {
            let minutes = left.as_secs().div_ceil(60);
            format!(", {} h {:02} min left", minutes / 60, minutes % 60)
        });
        format!(
            "{} of {} cycles, {} failed, {:.1} a minute{remaining}",
            self.done, self.cycles, self.failed, self.per_minute
        )
    }
}

/// Gives out what happens.
pub trait Listener {
    fn said(&mut self, text: &str);
    fn cycle(&mut self, line: &StressLine, progress: &Progress);
}

/// What all machines share.
struct Shared {
    options: StressOptions,
    parts: Parts,
    queue: Mutex<VecDeque<u64>>,
    estimate: Mutex<Estimate>,
    failures: Mutex<usize>,
}

enum Message {
    Said(String),
    Cycle(Box<StressLine>),
    Ended(Result<(), LabError>),
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs all cycles that the journal does not have yet.
///
/// # Errors
/// Interruption (the journal has what was done), another run's journal, no emulator.
pub fn run(
    options: &StressOptions,
    config: &MachineConfig,
    parts: Parts,
    listener: &mut dyn Listener,
) -> Result<Summary, LabError> {
    std::fs::create_dir_all(&options.folder)
        .doing(format!("create {}", options.folder.display()))?;
    let mut journal = match options.only {
        Some(_) => None,
        None => {
            let path = options.folder.join("stress.jsonl");
            Some(Journal::open(&path, &options.identity, options.restart)?)
        }
    };
    let earlier = journal.as_ref().map_or(&[][..], Journal::lines).to_vec();
    let queue: VecDeque<u64> = match (options.only, &journal) {
        (Some(cycle), _) => [cycle].into(),
        (None, Some(journal)) => journal.missing(options.cycles).into(),
        (None, None) => VecDeque::new(),
    };
    if !earlier.is_empty() && !queue.is_empty() {
        listener.said(&format!(
            "{} cycles are in the journal; going on",
            earlier.len()
        ));
    }
    let mut estimate = Estimate::default();
    for line in &earlier {
        estimate.learn(line.fill_bytes, &line.span_s);
    }
    let jobs = options.jobs.clamp(1, queue.len().max(1));
    let shared = Arc::new(Shared {
        options: options.clone(),
        parts,
        queue: Mutex::new(queue),
        estimate: Mutex::new(estimate),
        failures: Mutex::new(earlier.iter().filter(|line| !line.ok).count()),
    });

    let (sender, messages) = channel();
    let threads: Vec<_> = (1..=jobs)
        .map(|job| {
            let (shared, config, sender) = (Arc::clone(&shared), config.clone(), sender.clone());
            thread::spawn(move || {
                let result = work(&shared, job, &config, &sender);
                // There is no receiver only if the run has failed already.
                let _ = sender.send(Message::Ended(result));
            })
        })
        .collect();
    drop(sender);

    let mut lines = earlier;
    let begun = Instant::now();
    let mut done_now = 0;
    let mut result = Ok(());
    for message in messages {
        match message {
            Message::Said(text) => listener.said(&text),
            Message::Ended(ended) => result = result.and(ended),
            Message::Cycle(line) => {
                if let Some(journal) = &mut journal {
                    result = result.and(journal.add((*line).clone()));
                }
                lines.push((*line).clone());
                done_now += 1;
                let progress = progress(options, &lines, done_now, begun.elapsed());
                listener.cycle(&line, &progress);
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
    result?;
    lines.retain(|line| options.only.is_some() || line.cycle <= options.cycles);
    Ok(Summary::of(&lines, |line| repeat(options, line)))
}

fn progress(
    options: &StressOptions,
    lines: &[StressLine],
    done_now: u64,
    elapsed: Duration,
) -> Progress {
    let done = lines.len() as u64;
    let cycles = if options.only.is_some() {
        1
    } else {
        options.cycles
    };
    let each = elapsed.as_secs_f64() / done_now.max(1) as f64;
    Progress {
        done,
        failed: lines.iter().filter(|line| !line.ok).count() as u64,
        cycles,
        per_minute: 60.0 / each.max(1e-3),
        remaining: Some(Duration::from_secs_f64(
            each * cycles.saturating_sub(done) as f64,
        )),
    }
}

/// The command that repeats one cycle.
fn repeat(options: &StressOptions, line: &StressLine) -> String {
    let identity = &options.identity;
    let mut text = format!(
        "dormouse lab stress --only {} --seed {} --dram {} --cxl {} --cpus {} --flavour {}",
        line.cycle,
        identity.seed,
        identity.dram_bytes,
        identity.cxl_bytes,
        identity.cpus,
        identity.flavour
    );
    if options.firmware != Firmware::default() {
        text.push_str(&format!(" --firmware {}", identity.firmware));
    }
    if identity.power_cuts {
        text.push_str(" --power-cuts");
    }
    if let Some(at_s) = line.cut.at_s {
        text.push_str(&format!(" --cut-at {at_s:.3}"));
    }
    if let Some(inject) = &identity.inject {
        text.push_str(&format!(" --inject {inject}"));
    }
    text
}

/// One machine's share of the cycles.
fn work(
    shared: &Shared,
    job: usize,
    config: &MachineConfig,
    sender: &Sender<Message>,
) -> Result<(), LabError> {
    let mut driver: Option<Driver> = None;
    let result = loop {
        if *lock(&shared.failures) as u64 >= shared.options.max_failures {
            let text = "too many failures: the run ends here (--max-failures)";
            let _ = sender.send(Message::Said(text.into()));
            break Ok(());
        }
        let Some(cycle) = lock(&shared.queue).pop_front() else {
            break Ok(());
        };
        let current = match driver.take() {
            Some(driver) => driver,
            None => match fresh(shared, job, config) {
                Ok(driver) => driver,
                Err(error) => break Err(error),
            },
        };
        match one(shared, current, cycle, sender) {
            Ok(next) => driver = next,
            Err(error) => break Err(error),
        }
    };
    if let Some(mut driver) = driver {
        driver.finish();
        driver.lab().machine.discard();
    }
    result
}

/// A new machine with an empty scratch disk.
fn fresh(shared: &Shared, job: usize, config: &MachineConfig) -> Result<Driver, LabError> {
    let folder = shared.options.folder.join(format!("machine-{job}"));
    let lab = Lab::open(
        &folder,
        config.clone(),
        false,
        shared.parts.clone(),
        shared.options.firmware,
    )?;
    lab.machine.make_scratch_disk(SCRATCH_BYTES, None)?;
    Ok(Driver::new(lab))
}

/// Runs a cycle, keeps what must be kept; returns the machine if it can go on.
fn one(
    shared: &Shared,
    mut driver: Driver,
    cycle: u64,
    sender: &Sender<Message>,
) -> Result<Option<Driver>, LabError> {
    let options = &shared.options;
    let mut plan = CyclePlan::draw(options.identity.seed, cycle, options.identity.power_cuts);
    let turn = (cycle.saturating_sub(1) as usize).checked_rem(options.inject.len());
    if let Some(turn) = turn {
        plan = plan.with_fault(options.inject[turn]);
    }
    let total_s = lock(&shared.estimate).total_s(plan.fill.0, plan.off_ms as f64 / 1e3);
    let cut_at_s = options.cut_at_s.or(plan.cut.map(|cut| cut * total_s));
    let mut line = StressLine::new(cycle);
    let traces = match driver.cycle(&plan, cut_at_s, &mut line) {
        Ok(traces) => traces,
        Err(error) => {
            // The next call begins with a new machine; memory and disks would only be in the way.
            driver.into_machine().discard();
            return Err(error);
        }
    };
    let next = if line.ok {
        lock(&shared.estimate).learn(line.fill_bytes, &line.span_s);
        evidence::prune(&driver.lab().machine);
        Some(driver)
    } else {
        keep(shared, &traces, driver, &mut line)?;
        None
    };
    let _ = sender.send(Message::Cycle(Box::new(line)));
    Ok(next)
}

/// A machine with a failed cycle is done with: the next one starts with a new machine.
fn keep(
    shared: &Shared,
    traces: &Traces,
    driver: Driver,
    line: &mut StressLine,
) -> Result<(), LabError> {
    let folder = shared
        .options
        .folder
        .join("failed")
        .join(format!("cycle-{:05}", line.cycle));
    line.folder = Some(folder.display().to_string());
    let earlier = {
        let mut failures = lock(&shared.failures);
        *failures += 1;
        *failures - 1
    };
    // The emulator ends first: what it holds of the disk is on the disk then.
    let machine = driver.into_machine();
    traces.keep(&machine, Path::new(&folder), line, earlier)?;
    machine.discard();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> StressOptions {
        StressOptions {
            folder: PathBuf::from("out/lab/stress"),
            identity: RunIdentity {
                seed: 5,
                power_cuts: true,
                dram_bytes: 1 << 30,
                cxl_bytes: 2 << 30,
                cpus: 2,
                flavour: "cloud".into(),
                firmware: "coreboot".into(),
                inject: None,
            },
            firmware: Firmware::Coreboot,
            cycles: 10,
            jobs: 1,
            restart: false,
            only: None,
            cut_at_s: None,
            max_failures: 20,
            inject: Vec::new(),
        }
    }

    #[test]
    fn the_command_that_repeats_a_cycle_names_the_instant_of_its_power_cut() {
        let mut line = StressLine::new(7);
        line.cut.at_s = Some(3.25);
        let text = repeat(&options(), &line);
        assert!(
            text.contains("--only 7 --seed 5 --dram 1073741824"),
            "{text}"
        );
        assert!(text.ends_with("--power-cuts --cut-at 3.250"), "{text}");
    }

    #[test]
    fn the_rate_counts_only_what_this_call_did() {
        let lines: Vec<StressLine> = (1..=6).map(StressLine::new).collect();
        let progress = progress(&options(), &lines, 2, Duration::from_secs(60));
        assert_eq!((progress.done, progress.cycles), (6, 10));
        assert!((progress.per_minute - 2.0).abs() < 1e-9);
        assert_eq!(progress.remaining, Some(Duration::from_secs(120)));
    }
}
