//! The summary of a run: counts by outcome, by class of failure, by phase of the power cut.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::bound::{Bound, bound};
use super::class::Class;
use super::line::StressLine;
use super::phase::Phase;
use crate::cycle::line::Outcome;

/// Counts of one phase in which power was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhaseCounts {
    pub cuts: u64,
    pub resumed: u64,
    pub cold_boot: u64,
    pub failed: u64,
}

/// A failed cycle.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    pub cycle: u64,
    pub class: Class,
    pub reason: String,
    pub folder: Option<String>,
    /// The command that repeats it.
    pub repeat: String,
}

/// The whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub cycles: u64,
    pub ok: u64,
    pub failed: u64,
    pub outcomes: BTreeMap<&'static str, u64>,
    pub classes: BTreeMap<&'static str, u64>,
    pub phases: BTreeMap<&'static str, PhaseCounts>,
    /// Of the rate at which a cycle fails.
    pub bound: Option<Bound>,
    pub filled_bytes: u64,
    /// Seconds of all cycles together.
    pub total_s: f64,
    pub failures: Vec<Failure>,
    #[serde(skip)]
    wrong_data: bool,
}

impl Summary {
    /// Counts the lines; `repeat` gives the command that repeats one.
    pub fn of(lines: &[StressLine], repeat: impl Fn(&StressLine) -> String) -> Summary {
        let failed = lines.iter().filter(|line| !line.ok).count() as u64;
        let cycles = lines.len() as u64;
        let mut summary = Summary {
            cycles,
            ok: cycles - failed,
            failed,
            outcomes: BTreeMap::new(),
            classes: BTreeMap::new(),
            phases: BTreeMap::new(),
            bound: bound(failed, cycles),
            filled_bytes: lines.iter().map(|line| line.fill_bytes).sum(),
            total_s: lines.iter().map(|line| line.total_s).sum(),
            failures: Vec::new(),
            wrong_data: false,
        };
        for line in lines {
            *summary.outcomes.entry(line.outcome.name()).or_default() += 1;
            if let Some(phase) = line.cut.phase {
                let counts = summary.phases.entry(phase.name()).or_default();
                counts.cuts += 1;
                counts.failed += u64::from(!line.ok);
                if line.ok {
                    counts.resumed += u64::from(line.outcome == Outcome::Resumed);
                    counts.cold_boot += u64::from(line.outcome == Outcome::ColdBoot);
                }
            }
            let Some(class) = line.class else { continue };
            *summary.classes.entry(class.name()).or_default() += 1;
            summary.wrong_data |= class.is_wrong_data();
            summary.failures.push(Failure {
                cycle: line.cycle,
                class,
                reason: line.reason.clone(),
                folder: line.folder.clone(),
                repeat: repeat(line),
            });
        }
        summary
    }

    /// The documented exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            summary if summary.wrong_data => 4,
            summary if summary.failed > 0 => 1,
            _ => 0,
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{} cycles: {} as expected, {} failed",
            self.cycles, self.ok, self.failed
        )?;
        for (outcome, count) in &self.outcomes {
            writeln!(text, "  {outcome:14} {count:5}")?;
        }
        if !self.phases.is_empty() {
            writeln!(text, "\npower cut in     cuts  resumed  cold boot  failed")?;
            for phase in Phase::ALL {
                let counts = self.phases.get(phase.name()).copied().unwrap_or_default();
                writeln!(
                    text,
                    "  {:14} {:5} {:8} {:10} {:7}",
                    phase.name(),
                    counts.cuts,
                    counts.resumed,
                    counts.cold_boot,
                    counts.failed
                )?;
            }
        }
        if let Some(Bound { low, high, method }) = self.bound {
            let (low, high) = (low * 100.0, high * 100.0);
            if self.failed == 0 {
                writeln!(
                    text,
                    "\na cycle fails with a probability of at most {high:.2} % ({method})"
                )?;
            } else {
                writeln!(
                    text,
                    "\na cycle fails with a probability of {low:.2} % to {high:.2} % ({method})"
                )?;
            }
        }
        for class in Class::ALL {
            let failures = self
                .failures
                .iter()
                .filter(|failure| failure.class == class);
            let mut failures = failures.peekable();
            if failures.peek().is_none() {
                continue;
            }
            let count = self.classes.get(class.name()).copied().unwrap_or_default();
            writeln!(text, "\n{} ({count}): {}", class.name(), class.meaning())?;
            writeln!(text, "  next: {}", class.next())?;
            for failure in failures {
                writeln!(text, "  cycle {}: {}", failure.cycle, failure.reason)?;
                if let Some(folder) = &failure.folder {
                    writeln!(text, "    logs: {folder}")?;
                }
                writeln!(text, "    again: {}", failure.repeat)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stress::line::PowerCut;

    fn line(cycle: u64, class: Option<Class>, cut: Option<Phase>) -> StressLine {
        StressLine {
            ok: class.is_none(),
            class,
            outcome: if class.is_some() {
                Outcome::Failed
            } else {
                Outcome::Resumed
            },
            cut: PowerCut {
                phase: cut,
                ..PowerCut::default()
            },
            ..StressLine::new(cycle)
        }
    }

    fn summary(lines: &[StressLine]) -> Summary {
        Summary::of(lines, |line| format!("again {}", line.cycle))
    }

    #[test]
    fn a_run_without_failure_is_bounded_by_three_over_n() {
        let lines: Vec<StressLine> = (1..=30).map(|cycle| line(cycle, None, None)).collect();
        let summary = summary(&lines);
        assert_eq!(summary.exit_code(), 0);
        assert!((summary.bound.unwrap().high - 0.1).abs() < 1e-12);
        assert!(summary.describe().contains("at most 10.00 %"));
    }

    #[test]
    fn wrong_data_has_an_exit_code_of_its_own() {
        let hang = line(1, Some(Class::HangInResume), None);
        assert_eq!(summary(std::slice::from_ref(&hang)).exit_code(), 1);
        let wrong = line(2, Some(Class::DataDiffers), None);
        assert_eq!(summary(&[hang, wrong]).exit_code(), 4);
    }

    #[test]
    fn a_failure_is_named_explained_and_repeatable() {
        let mut failed = line(7, Some(Class::RedisLostKeys), None);
        failed.reason = "key 3 is missing".into();
        failed.folder = Some("out/failed/cycle-00007".into());
        let text = summary(&[failed]).describe();
        for part in [
            "redis-lost-keys (1)",
            Class::RedisLostKeys.next(),
            "cycle 7: key 3 is missing",
            "logs: out/failed/cycle-00007",
            "again: again 7",
            "Clopper-Pearson",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn power_cuts_are_counted_by_phase() {
        let lines = [
            line(1, None, Some(Phase::Migrating)),
            line(2, Some(Class::KernelOops), Some(Phase::Migrating)),
            line(3, None, Some(Phase::FirmwareUp)),
            line(4, None, None),
        ];
        let summary = summary(&lines);
        let migrating = summary.phases["migrating"];
        assert_eq!(
            (migrating.cuts, migrating.resumed, migrating.failed),
            (2, 1, 1)
        );
        assert_eq!(summary.phases["firmware-up"].cuts, 1);
        assert_eq!(
            summary
                .phases
                .values()
                .map(|counts| counts.cuts)
                .sum::<u64>(),
            3
        );
    }
}
