//! The summary by test, as Markdown.

use std::collections::BTreeMap;

use crate::Ran;
use crate::load::Load;

/// What a number of runs of one test says.
#[derive(Debug, PartialEq)]
struct Row {
    runs: usize,
    failures: usize,
    min_s: f64,
    median_s: f64,
    max_s: f64,
    median_cpu_s: f64,
}

/// The page: totals, then a line for each test, failed ones first, then those that take longest.
pub fn page(commit: &str, load: &Load, ran: &[Ran]) -> String {
    let mut by_test: BTreeMap<&str, Vec<&Ran>> = BTreeMap::new();
    for one in ran {
        by_test.entry(&one.test).or_default().push(one);
    }
    let mut rows: Vec<(&str, Row)> = by_test
        .iter()
        .map(|(test, runs)| (*test, row(runs)))
        .collect();
    rows.sort_by(|(_, one), (_, other)| {
        let by_failures = other.failures.cmp(&one.failures);
        by_failures.then(other.median_s.total_cmp(&one.median_s))
    });
    let failures = ran.iter().filter(|one| !one.ok).count();
    let rounds = ran.iter().map(|one| one.round).max().unwrap_or(0);
    let hours = ran.iter().map(|one| one.seconds).sum::<f64>() / 3600.0;
    let seed = ran.first().map_or(0, |one| one.seed);
    let mut text = format!(
        "commit {commit}, load {load}, seed {seed}, {} processors: {} tests, {rounds} rounds, \
         {} runs, {failures} failures, {hours:.2} test hours\n\n\
         | test | runs | failures | min s | median s | max s | median CPU s |\n\
         |---|---|---|---|---|---|---|\n",
        std::thread::available_parallelism().map_or(1, usize::from),
        rows.len(),
        ran.len(),
    );
    for (test, row) in rows {
        text += &format!(
            "| {test} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} |\n",
            row.runs, row.failures, row.min_s, row.median_s, row.max_s, row.median_cpu_s
        );
    }
    text
}

fn row(runs: &[&Ran]) -> Row {
    let sorted = |value: fn(&Ran) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(|one| value(one)).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (seconds, cpu) = (sorted(|one| one.seconds), sorted(|one| one.cpu_seconds));
    Row {
        runs: runs.len(),
        failures: runs.iter().filter(|one| !one.ok).count(),
        min_s: seconds[0],
        median_s: seconds[seconds.len() / 2],
        max_s: seconds[seconds.len() - 1],
        median_cpu_s: cpu[cpu.len() / 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(test: &str, round: u32, ok: bool, seconds: f64) -> Ran {
        Ran {
            inputs: "c quiet".into(),
            test: test.into(),
            round,
            seed: 7,
            ok,
            seconds,
            cpu_seconds: seconds / 2.0,
            ended_unix: 0,
        }
    }

    #[test]
    fn every_test_has_its_line_and_failed_ones_come_first() {
        let runs = [
            ran("a", 1, true, 9.0),
            ran("b", 1, true, 1.0),
            ran("b", 2, false, 4.0),
            ran("b", 3, true, 2.0),
        ];
        let text = page("c", &Load::Quiet, &runs);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].contains("2 tests, 3 rounds, 4 runs, 1 failures"),
            "{text}"
        );
        assert_eq!(lines[4], "| b | 3 | 1 | 1.0 | 2.0 | 4.0 | 1.0 |");
        assert_eq!(lines[5], "| a | 1 | 0 | 9.0 | 9.0 | 9.0 | 4.5 |");
    }

    #[test]
    fn nothing_that_ran_is_a_page_without_lines() {
        assert!(page("c", &Load::Busy, &[]).contains("0 tests, 0 rounds, 0 runs"));
    }
}
