//! The rows of `machine.json`: a measured value beside its peer, and the goals.

use dormouse_report::stats::Summary;
use dormouse_tests::bench::rows::{self, Better, with_goal};
use serde_json::{Value, json};

use crate::plan::{Mode, ONE_THREAD, OURS};
use crate::results::{All, Field, Results, home, migrate, resume, saved, suspend};

/// Resume may take this much longer at the largest fill than at the smallest.
const FLAT: f64 = 1.1;
/// Times that resume and suspend must be faster than the best hibernation at the largest fill.
const RESUME_GOAL: f64 = 8.0;
const SUSPEND_GOAL: f64 = 5.0;

/// Whether a way to sleep is held against ours.
type MayCount = fn(&Mode) -> bool;

/// Those that compress, as the thesis' do, and all: without compression a virtual disk, which lies in
/// the host's memory, is faster than any real one.
const PEERS: [(&str, MayCount); 2] = [
    ("best hibernation that compresses", Mode::compresses),
    ("best hibernation of all", |_| true),
];

pub fn rows(all: &All) -> Vec<Value> {
    let mut rows = Vec::new();
    for (metric, field) in [("resume", resume as Field), ("suspend", suspend)] {
        for fill in all.fills() {
            rows.extend(against_each(all, metric, fill, field));
        }
    }
    if let (Some(&smallest), Some(&largest)) = (all.fills().first(), all.fills().last()) {
        rows.extend(goals(all, smallest, largest));
        rows.extend(one_thread(all, largest));
    }
    for fill in all.fills() {
        rows.extend(pages_home(all, fill));
        rows.extend(saved_bytes(all, fill));
    }
    rows.extend(all.0.iter().map(reliability));
    rows
}

fn row(
    metric: &str,
    case: &str,
    unit: &str,
    ours: &Summary,
    peer: Result<(&Summary, &str), &str>,
) -> Value {
    rows::row(metric, case, unit, Better::Less, ours, peer)
}

/// Ours beside each kind of hibernation.
fn against_each(all: &All, metric: &str, fill: &str, field: Field) -> Vec<Value> {
    let Some(ours) = all
        .get(OURS, fill)
        .and_then(|results| results.summary(field))
    else {
        return Vec::new();
    };
    let peers = all.at(fill).filter(|peer| peer.case.mode.is_hibernation());
    peers
        .map(|peer| {
            let summary = peer.summary(field);
            let title = peer.case.mode.title;
            let why = peer
                .lacking
                .clone()
                .unwrap_or_else(|| "it never resumed".into());
            let peer = summary.as_ref().map(|summary| (summary, title));
            let mut row = row(
                metric,
                &format!("fill={fill}"),
                "s",
                &ours,
                peer.ok_or(why.as_str()),
            );
            row["peer_name"] = json!(title);
            row
        })
        .collect()
}

fn goals(all: &All, smallest: &str, largest: &str) -> Vec<Value> {
    let mut rows = Vec::new();
    for (metric, field, goal) in [
        ("resume", resume as Field, RESUME_GOAL),
        ("suspend", suspend, SUSPEND_GOAL),
    ] {
        let ours = all.get(OURS, largest).and_then(|ours| ours.summary(field));
        for (which, may) in PEERS {
            let best = all.best_hibernation(largest, field, may);
            if let (Some(ours), Some(best)) = (&ours, best)
                && let Some(peer) = best.summary(field)
            {
                let case = format!("fill={largest}, {which}");
                let row = row(metric, &case, "s", ours, Ok((&peer, best.case.mode.title)));
                rows.push(with_goal(row, goal));
            }
        }
    }
    let at = |fill| {
        all.get(OURS, fill)
            .and_then(|results| results.summary(resume))
    };
    if smallest != largest
        && let (Some(small), Some(large)) = (at(smallest), at(largest))
    {
        let name = format!("ours at fill={smallest}");
        let row = row(
            "resume-flat",
            &format!("fill={largest}"),
            "s",
            &large,
            Ok((&small, &name)),
        );
        rows.push(with_goal(row, 1.0 / FLAT));
    }
    rows
}

fn one_thread(all: &All, fill: &str) -> Option<Value> {
    let ours = all.get(OURS, fill)?.summary(migrate)?;
    let peer = all.get(ONE_THREAD, fill)?.summary(migrate)?;
    let name = "one thread, process after process (as in Zimmer 2024)";
    let case = format!("fill={fill}");
    Some(row("migrate", &case, "s", &ours, Ok((&peer, name))))
}

/// Beside what hibernation had swapped out, where it had.
fn pages_home(all: &All, fill: &str) -> Option<Value> {
    let ours = all.get(OURS, fill)?.summary(home)?;
    let peer = all.at(fill).find(|results| {
        results.case.mode.is_hibernation() && results.good.iter().any(|cycle| cycle.home_bytes > 0)
    });
    let summary = peer.and_then(|peer| Some((peer.summary(home)?, peer.case.mode.title)));
    let peer = match &summary {
        Some((summary, title)) => Ok((summary, *title)),
        None => Err("no hibernation swapped pages out: all are back when it resumes"),
    };
    Some(row("home", &format!("fill={fill}"), "s", &ours, peer))
}

fn saved_bytes(all: &All, fill: &str) -> Option<Value> {
    let ours = all.get(OURS, fill)?.summary(saved)?;
    let why = "what firmware copies; user pages migrate besides, hibernation has all in its image";
    let case = format!("fill={fill}");
    Some(row("saved", &case, "bytes", &ours, Err(why)))
}

/// How many cycles resumed with all their data. A ratio has no meaning here.
fn reliability(results: &Results) -> Value {
    let mut row = json!({
        "metric": "reliability", "case": results.case.name(), "unit": "resumed of attempts",
        "ours": results.good.len(), "n": results.attempts, "peer": null,
        "why": "a count", "failures": results.failures,
    });
    if let Some(lacking) = &results.lacking {
        row["why"] = json!(lacking);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::measured;

    #[test]
    fn the_goal_is_held_against_the_best_hibernation() {
        let all = measured(&|mode| match mode {
            "cxl" => vec![0.5],
            "hibernate-none" => vec![3.5],
            _ => vec![8.0],
        });
        let rows = rows(&all);
        let goals: Vec<&Value> = rows.iter().filter(|row| row["goal"].is_string()).collect();
        assert_eq!(
            goals.len(),
            4,
            "resume and suspend; one fill says nothing of flatness"
        );
        assert_eq!(goals[0]["ratio"], 16.0);
        assert_eq!(goals[0]["met"], true);
        assert_eq!(goals[1]["ratio"], 7.0);
        assert_eq!(goals[1]["met"], false);
        assert_eq!(goals[1]["peer_name"], "hibernate, none");
        assert_eq!(goals[3]["met"], true);
    }

    #[test]
    fn a_peer_that_cannot_run_here_is_a_row_that_says_why() {
        let all = measured(&|mode| match mode {
            "hibernate-lz4" => vec![],
            _ => vec![1.0],
        });
        let rows = rows(&all);
        let lz4 = rows
            .iter()
            .find(|row| row["metric"] == "resume" && row["peer_name"] == "hibernate, lz4");
        let lz4 = lz4.unwrap();
        assert!(lz4["peer"].is_null());
        assert_eq!(lz4["why"], "it lacks something");
    }
}
