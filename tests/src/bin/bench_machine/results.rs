//! The numbers of one case, from all its cycles.

use dormouse_lab::{CycleLine, Outcome};
use dormouse_report::stats::Summary;

use dormouse_tests::bench::journal::Journal;

use crate::entry::Entry;
use crate::plan::{Case, Mode};

/// A case with what was measured of it.
pub struct Results {
    pub case: Case,
    /// Resumed, with every page compared.
    pub good: Vec<CycleLine>,
    pub attempts: usize,
    /// How the others ended.
    pub failures: Vec<String>,
    /// Why it could not run here at all.
    pub lacking: Option<String>,
}

/// A value of a cycle.
pub type Field = fn(&CycleLine) -> Option<f64>;

impl Results {
    pub fn of(case: Case, journal: &Journal<Entry>) -> Results {
        let (mut good, mut failures, mut attempts, mut lacking) = (Vec::new(), Vec::new(), 0, None);
        for entry in journal.of(&case.name()) {
            if entry.is_lacking() {
                lacking = Some(entry.error.clone());
                continue;
            }
            attempts += entry.cycles.len();
            for cycle in entry.read_cycles() {
                if cycle.outcome == Outcome::Resumed && cycle.verified {
                    good.push(cycle);
                } else {
                    failures.push(format!("{}: {}", cycle.outcome, cycle.reason));
                }
            }
        }
        Results {
            case,
            good,
            attempts,
            failures,
            lacking,
        }
    }

    pub fn values(&self, field: Field) -> Vec<f64> {
        self.good.iter().filter_map(field).collect()
    }

    pub fn summary(&self, field: Field) -> Option<Summary> {
        Summary::of(self.values(field))
    }

    /// It was not asked for yet.
    pub fn is_without_runs(&self) -> bool {
        self.attempts == 0 && self.lacking.is_none()
    }

    pub fn median(&self, field: Field) -> Option<f64> {
        self.summary(field).map(|summary| summary.median)
    }
}

/// Everything that was measured, by mode and fill.
pub struct All(pub Vec<Results>);

impl All {
    pub fn get(&self, mode: &str, fill: &str) -> Option<&Results> {
        self.0
            .iter()
            .find(|results| results.case.mode.name == mode && results.case.fill == fill)
    }

    /// In the order of the plan.
    pub fn fills(&self) -> Vec<&str> {
        let mut fills: Vec<&str> = Vec::new();
        for results in &self.0 {
            if !fills.contains(&results.case.fill.as_str()) {
                fills.push(&results.case.fill);
            }
        }
        fills
    }

    pub fn at(&self, fill: &str) -> impl Iterator<Item = &Results> {
        self.0
            .iter()
            .filter(move |results| results.case.fill == fill)
    }

    /// The kind of hibernation with the least median of this field, among those that `may` count.
    pub fn best_hibernation(
        &self,
        fill: &str,
        field: Field,
        may: fn(&Mode) -> bool,
    ) -> Option<&Results> {
        self.at(fill)
            .filter(|results| results.case.mode.is_hibernation() && may(&results.case.mode))
            .filter_map(|results| Some((results.median(field)?, results)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, results)| results)
    }
}

pub fn resume(cycle: &CycleLine) -> Option<f64> {
    cycle.resume_s.total
}

pub fn suspend(cycle: &CycleLine) -> Option<f64> {
    cycle.suspend_s.total
}

pub fn home(cycle: &CycleLine) -> Option<f64> {
    cycle.home_s
}

pub fn migrate(cycle: &CycleLine) -> Option<f64> {
    cycle.suspend_s.migrate
}

/// Bytes that are copied besides what users filled: firmware's pages, or the image.
pub fn saved(cycle: &CycleLine) -> Option<f64> {
    Some(cycle.saved_bytes as f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::MODES;
    use dormouse_tests::bench::journal::Head;

    /// A resumed cycle with these times.
    pub fn cycle(suspend_s: &str, resume_s: &str) -> CycleLine {
        serde_json::from_str(&line(suspend_s, resume_s)).unwrap()
    }

    fn line(suspend_s: &str, resume_s: &str) -> String {
        format!(
            r#"{{"cycle":1,"mode":"cxl","ok":true,"verified":true,"outcome":"resumed","reason":"",
            "dram_bytes":1,"cxl_bytes":1,"user_bytes":1,"saved_bytes":1,"restored_bytes":1,
            "suspend_s":{suspend_s},"resume_s":{resume_s},"home_s":0.5,"home_bytes":1}}"#
        )
    }

    /// All modes at one fill, each with cycles of these resume times; an exit code of 3 for none.
    pub fn measured(resume_s: &dyn Fn(&str) -> Vec<f64>) -> All {
        let cases = crate::plan::cases(&MODES, &["768M".to_owned()]);
        measured_cases(cases, &|case| resume_s(case.mode.name))
    }

    /// Likewise, for any cases.
    pub fn measured_cases(cases: Vec<Case>, resume_s: &dyn Fn(&Case) -> Vec<f64>) -> All {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&folder.path().join("j"), "x").unwrap();
        let results = |case: Case| {
            let times = resume_s(&case);
            let cycles = times
                .iter()
                .map(|total| format!(r#"{{"total":{total}}}"#))
                .map(|times| serde_json::from_str(&line(&times, &times)).unwrap())
                .collect();
            let entry = Entry {
                head: Head {
                    inputs: "x".into(),
                    date: String::new(),
                    machine: serde_json::Value::Null,
                    case: case.name(),
                },
                words: Vec::new(),
                seconds: 1.0,
                exit_code: if times.is_empty() { 3 } else { 0 },
                error: "it lacks something".into(),
                cycles,
            };
            journal.add(entry).unwrap();
            Results::of(case, &journal)
        };
        All(cases.into_iter().map(results).collect())
    }

    #[test]
    fn the_best_hibernation_is_the_fastest_one_that_ran() {
        let all = measured(&|mode| match mode {
            "cxl" => vec![0.5],
            "hibernate-none" => vec![9.0, 5.0, 7.0],
            "hibernate-lz4" => vec![],
            _ => vec![8.0],
        });
        let best = all.best_hibernation("768M", resume, |_| true).unwrap();
        assert_eq!(best.case.mode.name, "hibernate-none");
        assert_eq!(best.median(resume), Some(7.0));
        let lz4 = all.get("hibernate-lz4", "768M").unwrap();
        assert_eq!(lz4.lacking.as_deref(), Some("it lacks something"));
        assert_eq!(lz4.attempts, 0);
    }
}
