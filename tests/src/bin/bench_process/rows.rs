//! The rows of `process.json`: a measured value beside its peer, and the goals.

use dormouse_report::stats::Summary;
use dormouse_tests::bench::journal::Journal;
use dormouse_tests::bench::rows::{Better, row, with_bar, with_goal};
use serde_json::Value;

use crate::entry::Entry;
use crate::plan::{
    Case, EPOCH_INTERVALS_MS, GOAL_MIB, PASS_SIZES, PAYLOADS, Party, REDIS_TESTS, SIZES,
};

/// The largest may take this much longer than the smallest where times are to be flat.
const FLAT: f64 = 1.25;

/// What was measured, by case, party and value.
pub struct Measured<'a>(pub &'a Journal<Entry>);

impl Measured<'_> {
    fn entries(&self, case: Case, party: Party) -> Vec<&Entry> {
        let name = case.name();
        let all = self.0.entries.iter();
        all.filter(|entry| entry.head.case == name && entry.party == party.name())
            .collect()
    }

    /// All visits' values.
    pub fn values(&self, case: Case, party: Party, value: &str) -> Vec<f64> {
        let entries = self.entries(case, party);
        let of = |entry: &&Entry| entry.values.get(value).copied();
        entries.iter().filter_map(of).collect()
    }

    /// Their median and spread, if there are any.
    pub fn summary(&self, case: Case, party: Party, value: &str) -> Option<Summary> {
        Summary::of(self.values(case, party, value))
    }

    /// Why a party has no value.
    pub fn why(&self, case: Case, party: Party) -> String {
        let entries = self.entries(case, party);
        let failure = entries.iter().rev().find_map(|entry| entry.failure.clone());
        failure.unwrap_or_else(|| "not measured".into())
    }

    /// Ours beside one peer; none where ours was not measured.
    fn beside(
        &self,
        metric: &str,
        case: Case,
        (ours, peer): (Party, Party),
        (value, unit, better): (&str, &str, Better),
        title: &str,
    ) -> Option<Value> {
        let ours = self.summary(case, ours, value)?;
        let theirs = self.summary(case, peer, value);
        let why = self.why(case, peer);
        let peer = match &theirs {
            Some(theirs) => Ok((theirs, title)),
            None => Err(why.as_str()),
        };
        Some(row(metric, &situation(case), unit, better, &ours, peer))
    }

    fn alone(
        &self,
        metric: &str,
        case: Case,
        (value, unit, better): (&str, &str, Better),
        why: &str,
    ) -> Option<Value> {
        let ours = self.summary(case, Party::Ours, value)?;
        Some(row(metric, &situation(case), unit, better, &ours, Err(why)))
    }
}

/// A case in words.
pub fn situation(case: Case) -> String {
    match case {
        Case::Cycle { mib } => format!("{}, nothing synced before", size(mib)),
        Case::Dirty { mib } => format!("{}, 1 % written to since", size(mib)),
        Case::Budget { mib } => format!("{}, writing, budget 64 MiB", size(mib)),
        Case::Passes { mib } => size(mib),
        Case::Redis { bytes } => format!("values of {bytes} bytes"),
        Case::Epochs { interval_ms } => format!("an epoch each {interval_ms} ms"),
        Case::Beside => "4 to 32 MiB".into(),
    }
}

/// MiB or GiB.
pub fn size(mib: u64) -> String {
    match mib.is_multiple_of(1024) {
        true => format!("{} GiB", mib / 1024),
        false => format!("{mib} MiB"),
    }
}

const TIME: Better = Better::Less;
const OURS_AND_CRIU: (Party, Party) = (Party::Ours, Party::Criu);
const STEP: &str = "from the request to the commit; CRIU's command is compared with ours";

/// Everything.
pub fn rows(measured: &Measured<'_>) -> Vec<Value> {
    let mut rows = persist(measured);
    rows.extend(budget(measured));
    rows.extend(restore(measured));
    rows.extend(slowdowns(measured));
    rows.extend(epochs(measured));
    rows
}

fn persist(measured: &Measured<'_>) -> Vec<Value> {
    let mut rows = Vec::new();
    let request = ("request_ms", "ms", TIME);
    let command = ("persist_ms", "ms", TIME);
    let small = Case::Cycle { mib: 1 };
    let dirty = Case::Dirty { mib: GOAL_MIB };
    let fixed = measured.alone("persist, fixed cost", small, request, STEP);
    rows.extend(fixed.map(|row| with_bar(row, TIME, 5.0)));
    let few = measured.alone("persist", dirty, request, STEP);
    rows.extend(few.map(|row| with_bar(row, TIME, 20.0)));
    let few = measured.beside(
        "persist, command",
        dirty,
        OURS_AND_CRIU,
        command,
        "criu dump",
    );
    rows.extend(few.map(|row| with_goal(row, 10.0)));
    let both = (Party::Ours, Party::CriuTracking);
    let title = "criu dump after pre-dump";
    rows.extend(measured.beside("persist, command", dirty, both, command, title));
    rows.extend(bandwidth(measured));
    for mib in SIZES {
        let case = Case::Cycle { mib };
        let row = measured.beside(
            "persist, command",
            case,
            OURS_AND_CRIU,
            command,
            "criu dump",
        );
        rows.extend(row.map(|row| match mib {
            GOAL_MIB => with_goal(row, 4.0),
            _ => row,
        }));
    }
    rows
}

/// GiB a second, from the request to the commit.
fn bandwidth(measured: &Measured<'_>) -> Option<Value> {
    let case = Case::Cycle { mib: GOAL_MIB };
    let entries = measured.entries(case, Party::Ours);
    let of = |entry: &&Entry| {
        let seconds = entry.values.get("request_ms")? / 1e3;
        Some(entry.values.get("stored_bytes")? / f64::from(1 << 30) / seconds)
    };
    let ours = Summary::of(entries.iter().filter_map(of))?;
    let more = Better::More;
    let row = row("persist", &situation(case), "GiB/s", more, &ours, Err(STEP));
    Some(with_bar(row, more, 3.5))
}

/// The largest beside the smallest that was measured.
fn flat(
    measured: &Measured<'_>,
    metric: &str,
    cases: impl Iterator<Item = Case>,
    value: &str,
) -> Option<Value> {
    let all: Vec<(Case, Summary)> = cases
        .filter_map(|case| Some((case, measured.summary(case, Party::Ours, value)?)))
        .collect();
    let ((small, min), (large, max)) = (all.first()?, all.last()?);
    if small == large {
        return None;
    }
    let title = format!("ours, {}", situation(*small));
    let row = row(
        metric,
        &situation(*large),
        "ms",
        TIME,
        max,
        Ok((min, &title)),
    );
    Some(with_goal(row, 1.0 / FLAT))
}

fn budget(measured: &Measured<'_>) -> Vec<Value> {
    let cases = || SIZES.into_iter().map(|mib| Case::Budget { mib });
    let why = "CRIU has no budget";
    let mut rows: Vec<Value> = cases()
        .filter_map(|case| measured.alone("persist", case, ("request_ms", "ms", TIME), why))
        .collect();
    rows.extend(flat(measured, "persist, flat", cases(), "request_ms"));
    rows
}

fn restore(measured: &Measured<'_>) -> Vec<Value> {
    let mut rows = Vec::new();
    let value = ("restore_ms", "ms", TIME);
    let cases = || SIZES.into_iter().map(|mib| Case::Cycle { mib });
    for (mib, case) in SIZES.into_iter().zip(cases()) {
        let title = "criu restore";
        let row = measured.beside("restore to running", case, OURS_AND_CRIU, value, title);
        rows.extend(row.map(|row| match mib {
            GOAL_MIB => with_bar(with_goal(row, 5.0), TIME, 50.0),
            _ => with_bar(row, TIME, 50.0),
        }));
    }
    // The smallest is copied before it runs.
    let lazy = cases().skip(1);
    rows.extend(flat(
        measured,
        "restore to running, flat",
        lazy,
        "restore_ms",
    ));
    let case = Case::Cycle { mib: GOAL_MIB };
    let value = ("compared_ms", "ms", TIME);
    let title = "criu restore";
    rows.extend(measured.beside(
        "restore, and all of it read",
        case,
        OURS_AND_CRIU,
        value,
        title,
    ));
    rows
}

const TRACKERS: [(Party, &str); 2] = [(Party::Tracked, ""), (Party::Budgeted, ", budget 64 MiB")];

fn slowdowns(measured: &Measured<'_>) -> Vec<Value> {
    let mut rows = Vec::new();
    for (party, how) in TRACKERS {
        let against = (party, Party::Untracked);
        let name = "untracked";
        for mib in PASS_SIZES {
            let case = Case::Passes { mib };
            let metric = format!("map, fill, unmap{how}");
            let row = measured.beside(&metric, case, against, ("pass_ms", "ms", TIME), name);
            rows.extend(row.map(|row| with_goal(row, 1.0 / 1.10)));
        }
        for test in REDIS_TESTS {
            for bytes in PAYLOADS {
                let case = Case::Redis { bytes };
                let value = format!("{test}_per_s");
                let value = (value.as_str(), "requests/s", Better::More);
                let row =
                    measured.beside(&format!("redis {test}{how}"), case, against, value, name);
                rows.extend(row.map(|row| with_goal(row, 0.97)));
            }
        }
        let value = ("mean_mips", "MIPS", Better::More);
        let metric = format!("7z beside it{how}");
        let row = measured.beside(&metric, Case::Beside, against, value, name);
        rows.extend(row.map(|row| with_goal(row, 0.99)));
    }
    rows
}

/// What frequent epochs cost, and how many there really are.
fn epochs(measured: &Measured<'_>) -> Vec<Value> {
    let mut rows = Vec::new();
    let against = (Party::Tracked, Party::Untracked);
    let value = ("SET_per_s", "requests/s", Better::More);
    for interval_ms in EPOCH_INTERVALS_MS {
        let case = Case::Epochs { interval_ms };
        let beside = measured.beside("redis SET, epochs", case, against, value, "untracked");
        rows.extend(beside.map(|row| with_goal(row, 0.97)));
        let why = "the program stands still for each pause";
        for (metric, value, unit) in [
            ("epochs", "epochs_per_s", "1/s"),
            ("epochs, pause of one", "pause_ms", "ms"),
        ] {
            let better = if unit == "ms" { TIME } else { Better::More };
            let summary = measured.summary(case, Party::Tracked, value);
            // None where no epoch came within the run.
            let summary = summary.filter(|summary| summary.median > 0.0);
            rows.extend(
                summary
                    .map(|summary| row(metric, &situation(case), unit, better, &summary, Err(why))),
            );
        }
    }
    rows
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use dormouse_tests::bench::journal::Head;

    /// A journal with one visit of each party of each case, all values as `value` says.
    pub fn journal(value: impl Fn(Case, Party, &str) -> Option<f64>) -> Journal<Entry> {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&folder.path().join("j"), "x").unwrap();
        let names = [
            "persist_ms",
            "request_ms",
            "stored_bytes",
            "restore_ms",
            "compared_ms",
        ];
        let names = names
            .into_iter()
            .chain(["pass_ms", "mean_mips", "SET_per_s"]);
        for case in crate::plan::cases(u64::MAX) {
            for party in case.parties() {
                let values: std::collections::BTreeMap<String, f64> = names
                    .clone()
                    .filter_map(|name| Some((name.to_owned(), value(case, *party, name)?)))
                    .collect();
                let failure = values.is_empty().then(|| "it crashed".to_owned());
                let entry = Entry {
                    head: Head {
                        inputs: "x".into(),
                        date: "2026-01-01".into(),
                        machine: Value::Null,
                        case: case.name(),
                    },
                    party: party.name().into(),
                    round: 1,
                    seconds: 1.0,
                    values,
                    failure,
                };
                journal.add(entry).unwrap();
            }
        }
        journal
    }

    fn find<'a>(rows: &'a [Value], metric: &str, case: &str) -> &'a Value {
        rows.iter()
            .find(|row| row["metric"] == metric && row["case"] == case)
            .unwrap_or_else(|| panic!("no row {metric}, {case}"))
    }

    #[test]
    fn every_goal_is_held_against_what_was_measured() {
        let journal = journal(|case, party, name| {
            Some(match (case, party, name) {
                (_, Party::Criu, "restore_ms") => 200.0,
                (Case::Cycle { mib: 8192 }, _, "restore_ms") => 60.0,
                (_, _, "restore_ms") => 30.0,
                (_, _, "stored_bytes") => f64::from(1 << 30),
                (_, Party::Criu, _) => 1000.0,
                (_, Party::Untracked, "mean_mips") => 1000.0,
                (_, _, "mean_mips") => 950.0,
                _ => 250.0,
            })
        });
        let rows = rows(&Measured(&journal));
        let at = "1 GiB, nothing synced before";
        assert_eq!(find(&rows, "restore to running", at)["met"], true);
        let large = "8 GiB, nothing synced before";
        assert_eq!(find(&rows, "restore to running", large)["met"], false);
        assert_eq!(find(&rows, "restore to running, flat", large)["ratio"], 0.5);
        let bandwidth = rows.iter().find(|row| row["unit"] == "GiB/s").unwrap();
        assert_eq!(
            (&bandwidth["ours"], &bandwidth["met"]),
            (&4.0.into(), &true.into())
        );
        assert_eq!(find(&rows, "persist, command", at)["ratio"], 4.0);
        assert_eq!(find(&rows, "7z beside it", "4 to 32 MiB")["met"], false);
        let fixed = find(&rows, "persist, fixed cost", "1 MiB, nothing synced before");
        assert_eq!(
            (&fixed["goal"], &fixed["met"]),
            (&"<= 5 ms".into(), &false.into())
        );
    }

    #[test]
    fn a_peer_that_cannot_do_a_case_is_a_row_that_says_why() {
        let journal = journal(|_, party, _| (party == Party::Ours).then_some(1.0));
        let rows = rows(&Measured(&journal));
        let row = find(&rows, "persist, command", "1 GiB, nothing synced before");
        assert_eq!(
            (&row["peer"], &row["why"]),
            (&Value::Null, &"it crashed".into())
        );
        assert_eq!(row["met"], false);
    }
}
