//! Runs side by side: cycles that were made under the same conditions are one case, and each
//! number of a case is a median with its median absolute deviation.

use serde::Serialize;

use crate::cycle::{Cycle, Way};
use crate::format;
use crate::run::Run;
use crate::stats::Summary;

/// Cycles of one run, one mode and one fill.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// What distinguishes it from the others of the comparison.
    pub label: String,
    /// Number of its run, from 0.
    pub run: usize,
    /// The mode of sleep.
    pub mode: String,
    /// The compressor of hibernation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compressor: Option<String>,
    /// Bytes of user memory that were filled.
    pub user_bytes: Option<u64>,
    /// Cycles that were tried.
    pub attempts: usize,
    /// Cycles that resumed, with all pages as they were.
    pub resumed: usize,
    /// The cycles of the case.
    #[serde(skip)]
    pub cycles: Vec<Cycle>,
    /// In plots: its place on the axis, and its colour.
    #[serde(skip)]
    pub group: String,
    /// The series in plots, which has a colour.
    #[serde(skip)]
    pub series: String,
}

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
}

impl Unit {
    /// A value with its unit, for people.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Seconds => format::seconds(value),
            Unit::Bytes => format::bytes(value.max(0.0) as u64),
        }
    }
}

/// One number of one case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The median and its deviation.
    #[serde(flatten)]
    pub summary: Summary,
    /// This median over that of the first case; above 1 is more.
    pub ratio_to_first: Option<f64>,
}

/// One number of all cases.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Stable name: `resume.total`, `suspend.migrate`, …
    pub metric: String,
    /// The unit of the values.
    pub unit: Unit,
    /// A cell for each case, in their order; null where it was not seen.
    pub cells: Vec<Option<Cell>>,
}

impl Row {
    /// Whether it is part of another row.
    pub fn is_part(&self) -> bool {
        self.metric.contains('.') && !self.metric.ends_with(".total")
    }

    /// For people; a part has only its own name.
    pub fn name(&self) -> String {
        match self.metric.as_str() {
            "suspend.total" => "going to sleep".to_owned(),
            "resume.total" => "power-on to running".to_owned(),
            "home" => "pages home".to_owned(),
            "saved" => "saved".to_owned(),
            "migrated-back" => "migrated back".to_owned(),
            other => other.rsplit('.').next().unwrap_or(other).to_owned(),
        }
    }
}

/// Sorts the cycles of all runs into cases, in the order in which they first appear.
///
/// A cycle that failed before its memory was filled belongs to the first case of its run and mode.
pub fn cases(runs: &[Run]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    // Good cycles say which fills there are; the others are then counted where they belong.
    for wants_good in [true, false] {
        for (run, of_run) in runs.iter().enumerate() {
            for cycle in of_run.cycles.iter().filter(|c| c.is_good() == wants_good) {
                let mode = cycle.mode.as_deref().unwrap_or("cxl");
                let same_way = |case: &Case| {
                    case.run == run && case.mode == mode && case.compressor == cycle.compressor
                };
                let same_fill = |case: &Case| case.user_bytes == cycle.user_bytes;
                let exact = cases
                    .iter()
                    .position(|case| same_way(case) && same_fill(case));
                let near = || cases.iter().position(same_way).filter(|_| !wants_good);
                let index = exact.or_else(near).unwrap_or_else(|| {
                    cases.push(Case {
                        label: String::new(),
                        run,
                        mode: mode.to_owned(),
                        compressor: cycle.compressor.clone(),
                        user_bytes: cycle.user_bytes,
                        attempts: 0,
                        resumed: 0,
                        cycles: Vec::new(),
                        group: String::new(),
                        series: String::new(),
                    });
                    cases.len() - 1
                });
                cases[index].attempts += 1;
                if wants_good {
                    cases[index].resumed += 1;
                    cases[index].cycles.push(cycle.clone());
                }
            }
        }
    }
    cases.sort_by_key(|case| case.run);
    label(&mut cases, runs);
    cases
}

/// Labels that name only what differs.
fn label(cases: &mut [Case], runs: &[Run]) {
    let differs = |of: &dyn Fn(&Case) -> String| cases.iter().any(|case| of(case) != of(&cases[0]));
    let title = |case: &Case| -> String {
        let own = &runs[case.run].title;
        let same = runs.iter().filter(|run| run.title == *own).count();
        match same {
            1 => own.clone(),
            _ => format!("{own} ({})", case.run + 1),
        }
    };
    let mode = |case: &Case| match &case.compressor {
        Some(compressor) => format!("{} {compressor}", case.mode),
        None => case.mode.clone(),
    };
    let fill = |case: &Case| case.user_bytes.map_or_else(String::new, format::bytes);
    let (by_run, by_mode, by_fill) = (differs(&title), differs(&mode), differs(&fill));
    let joined = |parts: [Option<String>; 2]| {
        let parts: Vec<String> = parts
            .into_iter()
            .flatten()
            .filter(|p| !p.is_empty())
            .collect();
        parts.join(" · ")
    };
    let labels: Vec<[String; 3]> = cases
        .iter()
        .map(|case| {
            let way = joined([
                by_run.then(|| title(case)),
                (by_mode || !(by_run || by_fill)).then(|| mode(case)),
            ]);
            let label = joined([Some(way.clone()), by_fill.then(|| fill(case))]);
            match by_fill {
                true => [label, fill(case), way],
                false => [label, way, String::new()],
            }
        })
        .collect();
    for (case, [label, group, series]) in cases.iter_mut().zip(labels) {
        (case.label, case.group, case.series) = (label, group, series);
    }
}

type OfCycle = fn(&Cycle) -> &Way;
const WAYS: [(&str, OfCycle); 2] = [("suspend", |c| &c.suspend), ("resume", |c| &c.resume)];

/// The numbers of all cases: each way with its parts, the way home, the sizes. Parts are as
/// recorded, so `restore` lies within `firmware`. Rows that no case has are left out.
pub fn rows(cases: &[Case]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, of) in WAYS {
        rows.push(row(&format!("{name}.total"), Unit::Seconds, cases, |c| {
            of(c).total_s
        }));
        let parts = cases
            .iter()
            .flat_map(|case| &case.cycles)
            .flat_map(|c| &of(c).parts);
        let mut names: Vec<&str> = Vec::new();
        for (part, _) in parts {
            if !names.contains(&part.as_str()) && names.len() < 24 {
                names.push(part);
            }
        }
        for part in Way::in_order(names) {
            rows.push(row(
                &format!("{name}.{part}"),
                Unit::Seconds,
                cases,
                |cycle| {
                    let found = of(cycle).parts.iter().find(|(name, _)| name == part);
                    found.map(|(_, part_s)| *part_s)
                },
            ));
        }
    }
    rows.push(row("home", Unit::Seconds, cases, |c| c.home_s));
    let size = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    rows.push(row("saved", Unit::Bytes, cases, |c| size(c.saved_bytes)));
    rows.push(row("migrated-back", Unit::Bytes, cases, |c| {
        size(c.home_bytes)
    }));
    rows.retain(|row| row.cells.iter().any(Option::is_some));
    rows
}

fn row(metric: &str, unit: Unit, cases: &[Case], of: impl Fn(&Cycle) -> Option<f64>) -> Row {
    let summary = |case: &Case| Summary::of(case.cycles.iter().filter_map(&of));
    let first = cases.first().and_then(summary);
    let cells = cases.iter().map(|case| {
        let summary = summary(case)?;
        let ratio = first.map(|first| summary.median / first.median);
        Some(Cell {
            summary,
            ratio_to_first: ratio.filter(|ratio| ratio.is_finite()),
        })
    });
    Row {
        metric: metric.to_owned(),
        unit,
        cells: cells.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(title: &str, lines: &[&str]) -> Run {
        let cycle = |line: &&str| Cycle::from_object(&serde_json::from_str(line).unwrap());
        Run {
            title: title.to_owned(),
            cycles: lines.iter().map(cycle).collect(),
            ..Run::default()
        }
    }

    fn line(mode: &str, user_bytes: u64, total_s: f64) -> String {
        format!(
            r#"{{"mode":"{mode}","outcome":"resumed","user_bytes":{user_bytes},"suspend_s":{{"total":{total_s},"migrate":1}}}}"#
        )
    }

    #[test]
    fn cycles_of_one_run_mode_and_fill_are_one_case() {
        let lines = [
            line("cxl", 1 << 30, 2.0),
            line("hibernate", 1 << 30, 8.0),
            line("cxl", 1 << 30, 4.0),
            line("cxl", 2 << 30, 5.0),
            r#"{"mode":"cxl","outcome":"failed","user_bytes":0}"#.to_owned(),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let cases = cases(&[run("demo", &lines)]);
        let seen: Vec<_> = cases
            .iter()
            .map(|case| (case.label.as_str(), case.resumed, case.attempts))
            .collect();
        assert_eq!(
            seen,
            [
                ("cxl · 1.00 GiB", 2, 3),
                ("hibernate · 1.00 GiB", 1, 1),
                ("cxl · 2.00 GiB", 1, 1)
            ]
        );
        let total = &rows(&cases)[0];
        let cell = total.cells[0].unwrap();
        assert_eq!(
            (cell.summary.n, cell.summary.median, cell.summary.mad),
            (2, 3.0, 1.0)
        );
        assert_eq!(total.cells[1].unwrap().ratio_to_first, Some(8.0 / 3.0));
    }

    #[test]
    fn runs_that_differ_in_nothing_but_their_directory_are_named_after_it() {
        let line = line("cxl", 1 << 30, 2.0);
        let cases = cases(&[
            run("before", &[&line]),
            run("after", &[&line]),
            run("after", &[&line]),
        ]);
        let labels: Vec<_> = cases.iter().map(|case| case.label.as_str()).collect();
        assert_eq!(labels, ["before", "after (2)", "after (3)"]);
    }

    #[test]
    fn what_was_not_seen_is_no_cell() {
        let unknown = r#"{"mode":"hibernate","outcome":"resumed","suspend_s":{"total":null}}"#;
        let known = line("cxl", 1, 2.0);
        let rows = rows(&cases(&[run("a", &[unknown]), run("b", &[&known])]));
        assert!(rows[0].cells[0].is_none() && rows[0].cells[1].is_some());
        assert_eq!(rows[0].cells[1].unwrap().ratio_to_first, None);
    }

    #[test]
    fn no_runs_have_no_cases() {
        assert!(cases(&[]).is_empty() && rows(&[]).is_empty());
    }
}
