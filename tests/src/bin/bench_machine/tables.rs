//! The results as Markdown, for `docs/evaluation/machine.md`: no figure is typed by hand.

use std::fmt::Write;

use dormouse_report::stats::Summary;
use dormouse_tests::bench::short;
use serde_json::Value;

use crate::figures::{FIGURES, PHASES_DOWN, PHASES_UP, mib, parts};
use crate::plan::{ONE_THREAD, OURS, VERIFY_ALL, VERIFY_NONE};
use crate::results::{All, Field, Results, home, migrate, resume, saved, suspend};

const TITLES: [&str; 5] = [
    "Resume by user memory and way to sleep; every cycle is a point. The axis is logarithmic.",
    "Suspend, likewise.",
    "What resume is made of.",
    "What suspend is made of.",
    "Until pages are back in DRAM.",
];

/// Everything, in the order in which it is read.
pub fn markdown(all: &All, rows: &[Value], facts: &str) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{facts}\n");
    goals(&mut text, rows);
    for fill in all.fills() {
        latencies(&mut text, all, fill);
    }
    if let Some(&largest) = all.fills().last() {
        phases(&mut text, all, largest);
        one_thread(&mut text, all, largest);
        verification(&mut text, all, largest);
    }
    copy(&mut text, rows);
    for (name, title) in FIGURES.iter().zip(TITLES) {
        let _ = writeln!(text, "![{title}](figures/{name})\n\n{title}\n");
    }
    text
}

pub fn goals(text: &mut String, rows: &[Value]) {
    let with_goal: Vec<&Value> = rows.iter().filter(|row| row["goal"].is_string()).collect();
    if with_goal.is_empty() {
        return;
    }
    text.push_str("| promise | ours | peer | ratio | bar | |\n|---|---|---|---|---|---|\n");
    for row in with_goal {
        let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let value = |key: &str| {
            row[key].as_f64().map_or("–".into(), |value| {
                format!("{} {}", short(value), word("unit"))
            })
        };
        let _ = writeln!(
            text,
            "| {}, {} | {} | {}: {} | {} × | {} | {} |",
            word("metric"),
            word("case"),
            value("ours"),
            word("peer_name"),
            value("peer"),
            row["ratio"].as_f64().map_or("–".into(), short),
            word("goal"),
            if row["met"] == true { "met" } else { "missed" },
        );
    }
    text.push('\n');
}

fn latencies(text: &mut String, all: &All, fill: &str) {
    let best = |field: Field| {
        let ours = all.get(OURS, fill).and_then(|ours| ours.median(field));
        move |results: &Results| match (results.median(field), ours) {
            (Some(value), Some(ours)) if ours > 0.0 && results.case.mode.is_hibernation() => {
                format!(" ({} ×)", short(value / ours))
            }
            _ => String::new(),
        }
    };
    let (resume_ratio, suspend_ratio) = (best(resume), best(suspend));
    let _ = writeln!(
        text,
        "{} of user memory:\n\n| way to sleep | resume | suspend | pages home | copied | on the \
         disk | resumed |\n|---|---|---|---|---|---|---|",
        mib(fill)
    );
    for results in all.at(fill) {
        let mode = &results.case.mode;
        if mode.is_variant() {
            continue;
        }
        if let Some(lacking) = &results.lacking {
            let _ = writeln!(text, "| {} | {lacking} | | | | | |", mode.title);
            continue;
        }
        let on_disk = |cycle: &dormouse_lab::CycleLine| cycle.image_bytes.map(|bytes| bytes as f64);
        let _ = writeln!(
            text,
            "| {} | {}{} | {}{} | {} | {} | {} | {} of {} |",
            mode.title,
            seconds(results.summary(resume)),
            resume_ratio(results),
            seconds(results.summary(suspend)),
            suspend_ratio(results),
            seconds(results.summary(home)),
            mebibytes(results.median(saved)),
            mebibytes(results.median(on_disk)),
            results.good.len(),
            results.attempts,
        );
    }
    text.push('\n');
}

fn phases(text: &mut String, all: &All, fill: &str) {
    for (what, phases, total) in [
        ("Resume", &PHASES_UP[..], resume as Field),
        ("Suspend", &PHASES_DOWN[..], suspend),
    ] {
        let columns: Vec<&str> = phases.iter().map(|(name, _)| *name).collect();
        let _ = writeln!(
            text,
            "{what} at {}, median seconds of each phase:\n\n| way to sleep | {} | other | total |\n\
             |---|{}---|---|",
            mib(fill),
            columns.join(" | "),
            "---|".repeat(columns.len()),
        );
        for results in all.at(fill) {
            let Some(total_s) = results.median(total) else {
                continue;
            };
            let parts = parts(&results.good, phases, total_s);
            let cells = columns.iter().copied().chain(["other"]).map(|column| {
                let part = parts.iter().find(|(name, _)| *name == column);
                part.map_or("–".into(), |(_, seconds)| short(*seconds))
            });
            let cells: Vec<String> = cells.collect();
            let title = results.case.mode.title;
            let _ = writeln!(
                text,
                "| {title} | {} | {} |",
                cells.join(" | "),
                short(total_s)
            );
        }
        text.push('\n');
    }
}

fn one_thread(text: &mut String, all: &All, fill: &str) {
    let at = |mode| {
        all.get(mode, fill)
            .and_then(|results| results.summary(migrate))
    };
    if let (Some(ours), Some(peer)) = (at(OURS), at(ONE_THREAD)) {
        let _ = writeln!(
            text,
            "Migration at {}: {}; with one thread, process after process (as in Zimmer 2024), {}: \
             {} × as long.\n",
            mib(fill),
            seconds(Some(ours)),
            seconds(Some(peer)),
            short(peer.median / ours.median),
        );
    }
}

/// What digests of user pages cost.
fn verification(text: &mut String, all: &All, fill: &str) {
    let settings = [("none", VERIFY_NONE), ("sample", OURS), ("all", VERIFY_ALL)];
    if all.get(VERIFY_ALL, fill).is_none() {
        return;
    }
    let firmware_up = |cycle: &dormouse_lab::CycleLine| cycle.resume_s.firmware;
    let firmware_down = |cycle: &dormouse_lab::CycleLine| cycle.suspend_s.firmware;
    let _ = writeln!(
        text,
        "Digests of user pages (`dormouse sleep --verify-user-pages`) at {}:\n\n| verified | suspend \
         | of it firmware | resume | of it firmware |\n|---|---|---|---|---|",
        mib(fill)
    );
    for (name, mode) in settings {
        if let Some(results) = all.get(mode, fill) {
            let _ = writeln!(
                text,
                "| {name} | {} | {} | {} | {} |",
                seconds(results.summary(suspend)),
                seconds(results.summary(firmware_down)),
                seconds(results.summary(resume)),
                seconds(results.summary(firmware_up)),
            );
        }
    }
    text.push('\n');
}

fn copy(text: &mut String, rows: &[Value]) {
    let copies: Vec<&Value> = rows.iter().filter(|row| row["metric"] == "copy").collect();
    if copies.is_empty() {
        return;
    }
    text.push_str("The copy routine:\n\n| work | ours | peer | ratio |\n|---|---|---|---|\n");
    for row in copies {
        let number = |key: &str| row[key].as_f64().map_or("–".into(), short);
        let word = |key: &str| row[key].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {} {} | {}: {} | {} |",
            word("case"),
            number("ours"),
            word("unit"),
            word("peer_name"),
            number("peer"),
            number("ratio"),
        );
    }
    text.push('\n');
}

/// Median and median absolute deviation.
pub fn seconds(summary: Option<Summary>) -> String {
    summary.map_or("–".into(), |summary| {
        format!("{} s ± {}", short(summary.median), short(summary.mad))
    })
}

pub fn mebibytes(bytes: Option<f64>) -> String {
    bytes.map_or("–".into(), |bytes| {
        format!("{:.0} MiB", bytes / f64::from(1 << 20))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::measured;
    use crate::rows::rows;

    #[test]
    fn every_way_has_its_line_and_failures_are_counted() {
        let all = measured(&|mode| match mode {
            "cxl" => vec![0.5, 0.5, 0.6],
            "hibernate-lz4" => vec![],
            _ => vec![8.0, 8.0],
        });
        let text = markdown(&all, &rows(&all), "facts");
        assert!(
            text.contains("| Suspend-to-CXL | 0.500 s ± 0 | 0.500 s ± 0 |"),
            "{text}"
        );
        assert!(
            text.contains("| hibernate, none | 8.00 s ± 0 (16.0 ×)"),
            "{text}"
        );
        assert!(text.contains("2 of 2"), "{text}");
        assert!(
            text.contains("| hibernate, lz4 | it lacks something |"),
            "{text}"
        );
        assert!(text.contains("ratio >= 8.000 | met |"), "{text}");
        assert!(text.contains("\n| all | 8.00 s ± 0 | – |"), "{text}");
    }
}
