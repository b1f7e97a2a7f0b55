//! The matrix as a table: for the terminal and for the documentation.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::results::{Check, Row, Verdict};
use crate::error::{Doing, LabError};

/// The page of the documentation.
pub const PAGE: &str = "docs/reference/kernels.md";
const BEGIN: &str = "<!-- dormouse lab kernels --publish: begin -->\n";
const END: &str = "<!-- dormouse lab kernels --publish: end -->\n";

/// A row for each kernel, a column for each check.
pub fn table(rows: &[Row]) -> String {
    let mut head = vec!["distribution".to_owned(), "kernel".to_owned()];
    head.extend(Check::ALL.map(|check| check.to_string()));
    let mut lines = vec![head];
    for row in rows {
        let mut line = vec![row.distribution.clone(), row.release.clone()];
        line.extend(Check::ALL.map(|check| cell(row, check).to_owned()));
        lines.push(line);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max();
    let widths: Vec<usize> = (0..lines[0].len()).filter_map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (word, width) in line.iter().zip(&widths) {
            // Writing into a String cannot fail.
            let _ = write!(text, "| {word:<width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

fn cell(row: &Row, check: Check) -> &'static str {
    match row.checks.get(&check) {
        Some(Verdict::Ok { .. }) => "ok",
        Some(Verdict::Failed { .. }) => "failed",
        Some(Verdict::NotAvailable { .. }) => "not available",
        None => "not run",
    }
}

/// Why a cell is not `ok`, one line for each.
pub fn reasons(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        for (check, verdict) in &row.checks {
            if !matches!(verdict, Verdict::Ok { .. }) {
                let text = verdict.to_string();
                let first = text.lines().next().unwrap_or_default();
                lines.push(format!("{}, {check}: {first}", row.release));
            }
        }
    }
    lines
}

/// Puts the table between the markers of a page.
///
/// # Errors
/// The page has no markers, or cannot be written.
pub fn publish(file: &Path, rows: &[Row]) -> Result<(), LabError> {
    let page = fs::read_to_string(file).doing(format!("read {}", file.display()))?;
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else {
        return Err(LabError::Usage(format!(
            "{} lacks the markers {} and {}",
            file.display(),
            BEGIN.trim(),
            END.trim()
        )));
    };
    let page = [before, BEGIN, &section(rows), END, after].concat();
    fs::write(file, page).doing(format!("write {}", file.display()))
}

fn section(rows: &[Row]) -> String {
    let mut dates: Vec<&str> = rows.iter().map(|row| row.date.as_str()).collect();
    dates.sort_unstable();
    dates.retain(|date| !date.is_empty());
    let when = match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first == last => format!("on {first}"),
        (Some(first), Some(last)) => format!("from {first} to {last}"),
        _ => "never".to_owned(),
    };
    let version = rows.first().map_or("", |row| &row.dormouse);
    let mut text = format!("Run {when} with Dormouse {version}.\n\n{}", table(rows));
    let reasons = reasons(rows);
    if !reasons.is_empty() {
        text.push('\n');
    }
    for reason in reasons {
        let _ = writeln!(text, "- {reason}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn row(verdict: Verdict) -> Row {
        Row {
            distribution: "Debian 13".into(),
            flavour: "cloud".into(),
            release: "6.12-cloud".into(),
            package: "6.12-1".into(),
            dormouse: "0.2.0".into(),
            date: "2026-11-24".into(),
            checks: BTreeMap::from([(Check::Scheduler, verdict)]),
        }
    }

    #[test]
    fn a_published_table_replaces_the_old_one_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.md");
        fs::write(&file, format!("before\n{BEGIN}old\n{END}after\n")).unwrap();
        let missing = "CONFIG_SCHED_CLASS_EXT is not set in its configuration".to_owned();
        publish(&file, &[row(Verdict::NotAvailable { missing })]).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("after\n"));
        assert!(!text.contains("old"));
        for part in [
            "2026-11-24",
            "0.2.0",
            "not available",
            "not run",
            "CONFIG_SCHED",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // Once more: the markers are still there.
        publish(&file, &[]).unwrap();
    }

    #[test]
    fn a_page_without_markers_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.md");
        fs::write(&file, "text\n").unwrap();
        assert_eq!(publish(&file, &[]).unwrap_err().exit_code(), 2);
        assert_eq!(fs::read_to_string(&file).unwrap(), "text\n");
    }
}
