//! Cases side by side on a terminal.
//!
//! ```text
//!                            cxl                       hibernate
//! resumed                    10 of 10                  10 of 10
//! going to sleep             2.87 s ±12.0 ms           9.12 s ±33.0 ms ×3.18
//!   migrate                  1.40 s ±9.10 ms           –
//! ```

use std::fmt::Write;

use super::{Style, fitted, to_shown};
use crate::compare::{Case, Cell, Row};
use crate::format::printable;

const NAME_WIDTH: usize = 22;
const MIN_COLUMN: usize = 28;

/// The table; cases that do not fit beside each other follow below, each time with the rows' names.
pub fn render(cases: &[Case], rows: &[Row], style: Style) -> String {
    if cases.is_empty() {
        return "no cycle in these runs: nothing to compare\n".to_owned();
    }
    let mut text = String::new();
    let fit = (style.width.saturating_sub(NAME_WIDTH) / MIN_COLUMN).max(1);
    let wanted = cases
        .iter()
        .map(|case| case.label.chars().count() + 2)
        .max()
        .unwrap_or(0);
    let room = style.width.saturating_sub(NAME_WIDTH) / fit.min(cases.len());
    let column = wanted.clamp(MIN_COLUMN, room.max(MIN_COLUMN));
    for (number, chunk) in cases.chunks(fit).enumerate() {
        let from = number * fit;
        if number > 0 {
            text.push('\n');
        }
        let cells = |of: &dyn Fn(usize, &Case) -> String| -> String {
            let indexed = chunk.iter().enumerate();
            let cell = |(index, case)| fitted(&of(from + index, case), column - 1) + " ";
            indexed.map(cell).collect()
        };
        let mut line = |name: &str, cells: String| {
            let _ = writeln!(
                text,
                "{}",
                format!("{} {cells}", fitted(name, NAME_WIDTH - 1)).trim_end()
            );
        };
        line("", cells(&|_, case| printable(&case.label)));
        line(
            "resumed",
            cells(&|_, case| format!("{} of {}", case.resumed, case.attempts)),
        );
        for row in rows {
            let indent = if row.is_part() { "  " } else { "" };
            let name = format!("{indent}{}", printable(&row.name()));
            line(&name, cells(&|index, _| cell(row, index)));
        }
    }
    text.push_str("median ±MAD; × is the median over that of the first case\n");
    to_shown(text, style)
}

fn cell(row: &Row, index: usize) -> String {
    let Some(Cell {
        summary,
        ratio_to_first,
    }) = row.cells.get(index).and_then(Option::as_ref)
    else {
        return "–".to_owned();
    };
    let mut text = row.unit.show(summary.median);
    if summary.n > 1 {
        let _ = write!(text, " ±{}", row.unit.show(summary.mad));
    }
    if let (Some(ratio), true) = (ratio_to_first, index > 0) {
        let _ = write!(text, " ×{ratio:.2}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{cases, rows};
    use crate::cycle::Cycle;
    use crate::run::Run;

    fn text(width: usize, titles: &[&str]) -> String {
        let runs: Vec<Run> = titles
            .iter()
            .zip(1..)
            .map(|(title, n)| {
                let line =
                    format!(r#"{{"outcome":"resumed","suspend_s":{{"total":{n},"migrate":1}}}}"#);
                Run {
                    title: (*title).to_owned(),
                    cycles: vec![Cycle::from_object(&serde_json::from_str(&line).unwrap()); 3],
                    ..Run::default()
                }
            })
            .collect();
        let cases = cases(&runs);
        let style = Style {
            width,
            colour: false,
            unicode: true,
        };
        render(&cases, &rows(&cases), style)
    }

    #[test]
    fn each_case_has_its_median_deviation_and_ratio() {
        let text = text(100, &["before", "after"]);
        assert!(text.contains("3 of 3"));
        let line = text
            .lines()
            .find(|line| line.starts_with("going to sleep"))
            .unwrap();
        assert!(
            line.contains("1.00 s ±0 s") && line.contains("2.00 s ±0 s ×2.00"),
            "{line}"
        );
    }

    #[test]
    fn cases_that_do_not_fit_follow_below() {
        let text = text(60, &["one", "two", "three"]);
        assert!(
            text.lines().all(|line| line.chars().count() <= 60),
            "{text}"
        );
        assert_eq!(
            text.lines()
                .filter(|line| line.starts_with("resumed"))
                .count(),
            3
        );
    }
}
