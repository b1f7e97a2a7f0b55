//! What another set of permissions would gain, by simulation of the recorded passes.

use crate::model::{Cycle, DevicePhase, Recording};
use crate::simulate::{Problem, Schedule, Setting, flags, simulate};

/// The scheduled passes of a cycle, ready to be simulated with different permissions.
pub struct Simulated {
    /// The scheduled passes.
    pub problems: Vec<Problem>,
    setting: Setting,
}

impl Simulated {
    /// `schedule` is the machine's own.
    pub fn new(recording: &Recording, cycle: &Cycle, setting: Setting) -> Simulated {
        Simulated {
            problems: DevicePhase::SCHEDULED
                .into_iter()
                .map(|phase| Problem::of(recording, cycle, phase))
                .collect(),
            setting,
        }
    }

    /// All passes together, with these permissions.
    pub fn total_ns(&self, may_run_async: &[bool]) -> u64 {
        let passes = self.problems.iter();
        passes
            .map(|problem| simulate(problem, may_run_async, &self.setting).makespan_ns)
            .sum()
    }

    /// The same under another schedule.
    pub fn total_under(&self, schedule: Schedule, may_run_async: &[bool]) -> u64 {
        let setting = Setting {
            schedule,
            ..self.setting
        };
        let passes = self.problems.iter();
        passes
            .map(|problem| simulate(problem, may_run_async, &setting).makespan_ns)
            .sum()
    }

    /// Each device's worst time in any pass.
    pub fn worst_ns(&self) -> Vec<u64> {
        flags::worst_ns(&self.problems)
    }
}

/// The schedule of a kernel by its release: items start with leaves since 6.17.
pub fn schedule_of(release: Option<&str>) -> Schedule {
    let mut numbers = release
        .unwrap_or_default()
        .split(|c: char| !c.is_ascii_digit())
        .map(|word| word.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 17) {
        Schedule::LeavesFirst
    } else {
        Schedule::WorkItems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_release_tells_its_schedule() {
        for (release, schedule) in [
            (None, Schedule::WorkItems),
            (Some("6.12.117+deb12-cloud-amd64"), Schedule::WorkItems),
            (Some("6.17.0"), Schedule::LeavesFirst),
            (Some("7.0-rc1"), Schedule::LeavesFirst),
            (Some(""), Schedule::WorkItems),
        ] {
            assert_eq!(schedule_of(release), schedule, "{release:?}");
        }
    }
}
