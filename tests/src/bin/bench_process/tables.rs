//! The results as Markdown, for `docs/evaluation/process.md`: no figure is typed by hand.

use std::fmt::Write;

use dormouse_report::stats::Summary;
use dormouse_tests::bench::short;
use serde_json::Value;

use crate::figures::FIGURES;
use crate::plan::{Case, GOAL_MIB, Party, SIZES};
use crate::rows::{Measured, situation, size};

/// Steps of a persist, and where their milliseconds are.
const STEPS: [(&str, &str); 6] = [
    ("freeze", "freeze_ms"),
    ("capture", "capture_ms"),
    ("scan", "scan_ms"),
    ("copy", "copy_ms"),
    ("files", "files_ms"),
    ("commit", "commit_ms"),
];

/// Everything, in the order in which it is read.
pub fn markdown(measured: &Measured<'_>, rows: &[Value], facts: &str) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{facts}\n");
    comparisons(&mut text, rows);
    steps(&mut text, measured);
    restores(&mut text, measured);
    failures(&mut text, measured);
    for (name, title) in FIGURES {
        let _ = writeln!(text, "![{title}](figures/{name})\n\n{title}\n");
    }
    text
}

fn comparisons(text: &mut String, rows: &[Value]) {
    text.push_str(
        "| measure | case | ours | peer | ratio | goal | |\n|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let value = |key: &str, mad: &str| {
            let (value, mad) = (row[key].as_f64()?, row[mad].as_f64()?);
            Some(format!(
                "{} {} ± {}",
                short(value),
                word("unit"),
                short(mad)
            ))
        };
        let peer = match value("peer", "peer_mad") {
            Some(value) => format!("{}: {value}", word("peer_name")),
            None => word("why"),
        };
        let met = match row["met"].as_bool() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {peer} | {} | {} | {met} |",
            word("metric"),
            word("case"),
            value("ours", "mad").unwrap_or_default(),
            row["ratio"]
                .as_f64()
                .map_or(String::new(), |ratio| format!("{} ×", short(ratio))),
            word("goal"),
        );
    }
    text.push('\n');
}

fn cell(summary: Option<Summary>) -> String {
    summary.map_or("–".into(), |summary| short(summary.median))
}

fn steps(text: &mut String, measured: &Measured<'_>) {
    let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
    let _ = writeln!(
        text,
        "Steps of a persist, medians in ms:\n\n| case | {} | request to commit | the command | \
         written |\n|---|{}---|---|---|",
        names.join(" | "),
        "---|".repeat(names.len()),
    );
    let cases = SIZES.map(|mib| Case::Cycle { mib });
    let more = [Case::Dirty { mib: GOAL_MIB }].into_iter();
    let more = more.chain(SIZES.map(|mib| Case::Budget { mib }));
    for case in cases.into_iter().chain(more) {
        let of = |value| measured.summary(case, Party::Ours, value);
        let Some(stored) = of("stored_bytes") else {
            continue;
        };
        let cells = STEPS.map(|(_, value)| cell(of(value)));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} MiB |",
            situation(case),
            cells.join(" | "),
            cell(of("request_ms")),
            cell(of("persist_ms")),
            short(stored.median / f64::from(1 << 20)),
        );
    }
    text.push('\n');
}

fn restores(text: &mut String, measured: &Measured<'_>) {
    text.push_str(
        "Restore, medians in ms, until the program runs and until it has read all of its \
         memory:\n\n| size | ours runs | CRIU's runs | ours has read all | CRIU's has read all |\n\
         |---|---|---|---|---|\n",
    );
    for mib in SIZES {
        let case = Case::Cycle { mib };
        let of = |party, value| cell(measured.summary(case, party, value));
        if measured.summary(case, Party::Ours, "restore_ms").is_none() {
            continue;
        }
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            size(mib),
            of(Party::Ours, "restore_ms"),
            of(Party::Criu, "restore_ms"),
            of(Party::Ours, "compared_ms"),
            of(Party::Criu, "compared_ms"),
        );
    }
    text.push('\n');
}

/// Visits without a result. They are in no median.
fn failures(text: &mut String, measured: &Measured<'_>) {
    let failed = measured.0.entries.iter();
    let failed: Vec<String> = failed
        .filter_map(|entry| {
            let why = entry.failure.as_ref()?.lines().next().unwrap_or_default();
            Some(format!(
                "- {}, {}, round {}: {why}",
                entry.head.case, entry.party, entry.round
            ))
        })
        .collect();
    if !failed.is_empty() {
        let _ = writeln!(text, "Visits without a result:\n\n{}\n", failed.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::rows;
    use crate::rows::tests::journal;

    #[test]
    fn every_comparison_has_its_line_and_a_failed_visit_is_named() {
        let journal = journal(|_, party, name| match (party, name) {
            (Party::Criu, _) => None,
            (_, "stored_bytes") => Some(f64::from(1 << 20)),
            _ => Some(2.0),
        });
        let measured = Measured(&journal);
        let text = markdown(&measured, &rows(&measured), "facts");
        assert!(
            text.contains("| persist, fixed cost | 1 MiB, nothing synced before | 2.00 ms ± 0 | "),
            "{text}"
        );
        assert!(text.contains("| it crashed |"), "{text}");
        assert!(
            text.contains("- cycle 1024M, criu, round 1: it crashed"),
            "{text}"
        );
        assert!(text.contains("| <= 5 ms | met |"), "{text}");
        assert!(text.contains("| 8 GiB | 2.00 | – | 2.00 | – |"), "{text}");
    }
}
