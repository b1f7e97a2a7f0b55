//! The kernel's steps, one after the other, and what both ways took.

use serde::Serialize;

use crate::model::{Cycle, DevicePhase, Direction};

/// One step of the kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The kernel's name; `CPU_OFF` and `CPU_ON` stand for all CPUs together.
    pub name: String,
    /// Suspend or resume.
    pub direction: Direction,
    /// Duration, ns.
    pub duration_ns: u64,
    /// Of its direction's whole, from 0 to 1.
    pub share: f64,
}

/// Both ways.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// From the begin of the first step until the machine slept, or turned back.
    pub suspend_ns: u64,
    /// Asleep; 0 if it did not sleep (`pm_test`) or the trace does not show it.
    pub asleep_ns: u64,
    /// From there until the last step ended.
    pub resume_ns: u64,
    /// The steps of the kernel.
    pub steps: Vec<Step>,
    /// Time of each direction that no step accounts for.
    pub rest_suspend_ns: u64,
    /// The rest of the resume, ns.
    pub rest_resume_ns: u64,
}

impl Totals {
    /// The step of that name, if the kernel had it.
    pub fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }
}

/// Steps with a line of their own, in order, and their direction.
/// `suspend_enter` holds the first two and is left out.
const STEPS: [(&str, Direction); 16] = [
    ("sync_filesystems", Direction::Suspend),
    ("freeze_processes", Direction::Suspend),
    ("dpm_prepare", Direction::Suspend),
    ("dpm_suspend", Direction::Suspend),
    ("dpm_suspend_late", Direction::Suspend),
    ("dpm_suspend_noirq", Direction::Suspend),
    ("CPU_OFF", Direction::Suspend),
    ("syscore_suspend", Direction::Suspend),
    ("syscore_resume", Direction::Resume),
    ("CPU_ON", Direction::Resume),
    ("dpm_resume_noirq", Direction::Resume),
    ("dpm_resume_early", Direction::Resume),
    ("dpm_resume", Direction::Resume),
    ("dpm_complete", Direction::Resume),
    ("resume_console", Direction::Resume),
    ("thaw_processes", Direction::Resume),
];

/// The step in which the machine sleeps.
const ASLEEP: &str = "machine_suspend";

/// Sums a cycle up.
pub fn of(cycle: &Cycle) -> Totals {
    let mut steps: Vec<Step> = Vec::new();
    for (name, direction) in STEPS {
        let spans = cycle.phases.iter().filter(|span| span.name == name);
        let duration_ns: u64 = spans.map(|span| span.duration_ns()).sum();
        if cycle.phases.iter().any(|span| span.name == name) {
            steps.push(Step {
                name: name.to_owned(),
                direction,
                duration_ns,
                share: 0.0,
            });
        }
    }
    let asleep = cycle.phase(ASLEEP);
    let asleep_ns = asleep.map_or(0, |span| span.duration_ns());
    let (down_ns, turn_ns, up_ns) = way(cycle);
    let suspend_ns = turn_ns.saturating_sub(down_ns);
    let resume_ns = up_ns.saturating_sub(turn_ns).saturating_sub(asleep_ns);
    for step in &mut steps {
        let whole_ns = match step.direction {
            Direction::Suspend => suspend_ns,
            Direction::Resume => resume_ns,
        };
        step.share = step.duration_ns as f64 / whole_ns.max(1) as f64;
    }
    let sum = |direction| -> u64 {
        let own = steps.iter().filter(|step| step.direction == direction);
        own.map(|step| step.duration_ns).sum()
    };
    Totals {
        suspend_ns,
        asleep_ns,
        resume_ns,
        rest_suspend_ns: suspend_ns.saturating_sub(sum(Direction::Suspend)),
        rest_resume_ns: resume_ns.saturating_sub(sum(Direction::Resume)),
        steps,
    }
}

/// Begin of the way down, the turn, and the end of the way up.
fn way(cycle: &Cycle) -> (u64, u64, u64) {
    let begin_ns = cycle.phases.iter().map(|span| span.begin_ns).min();
    let end_ns = cycle.phases.iter().map(|span| span.end_ns).max();
    let is_up = |name: &str| {
        STEPS
            .iter()
            .any(|&(step, direction)| step == name && direction == Direction::Resume)
    };
    let asleep = cycle.phase(ASLEEP).map(|span| span.begin_ns);
    let first_up = cycle.phases.iter().filter(|span| is_up(&span.name));
    let first_up = first_up.map(|span| span.begin_ns).min();
    // A suspend that was tried again after an abort, or one without any resume.
    let last_down = DevicePhase::ALL[..4]
        .iter()
        .filter_map(|&phase| cycle.device_phase(phase))
        .map(|span| span.end_ns)
        .max();
    let begin_ns = begin_ns.unwrap_or(0);
    let end_ns = end_ns.unwrap_or(begin_ns);
    let turn_ns = asleep.or(first_up).or(last_down).unwrap_or(end_ns);
    (begin_ns, turn_ns.max(begin_ns), end_ns.max(turn_ns))
}
