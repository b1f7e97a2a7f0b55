//! The table of phases and their durations.

use std::fmt::Write;

use super::drawing::Palette;
use crate::format::{bytes, duration, escape_html};
use crate::stats::median;
use crate::timeline::{Lane, Span, Timeline};

/// More rows would hide what matters; the longest phases are kept.
const MAX_PHASE_ROWS: usize = 120;
/// Spans of the same lane, phase and name.
struct PhaseRow<'a> {
    first: usize,
    lane: Lane,
    phase: &'a str,
    name: &'a str,
    spans: Vec<&'a Span>,
}

impl PhaseRow<'_> {
    fn median_ns(&self) -> u64 {
        median(self.spans.iter().map(|span| span.duration_ns() as f64)).unwrap_or(0.0) as u64
    }
}

/// The table of phases with their durations; rows show themselves in the timeline when clicked.
pub fn phases(timeline: &Timeline) -> String {
    let mut rows: Vec<PhaseRow> = Vec::new();
    let mut index = std::collections::HashMap::new();
    // Whole cycles have a table of their own.
    let parts = timeline
        .spans
        .iter()
        .enumerate()
        .filter(|(_, span)| span.phase != "cycle");
    for (first, span) in parts {
        let key = (span.lane, span.phase.as_str(), span.name.as_str());
        let row = *index.entry(key).or_insert_with(|| {
            let (lane, phase, name) = key;
            rows.push(PhaseRow {
                first,
                lane,
                phase,
                name,
                spans: Vec::new(),
            });
            rows.len() - 1
        });
        rows[row].spans.push(span);
    }
    if rows.is_empty() {
        return String::new();
    }
    let total = rows.len();
    if total > MAX_PHASE_ROWS {
        rows.sort_by_key(|row| std::cmp::Reverse(row.median_ns()));
        rows.truncate(MAX_PHASE_ROWS);
        rows.sort_by_key(|row| row.first);
    }
    let longest_ns = rows
        .iter()
        .map(PhaseRow::median_ns)
        .max()
        .unwrap_or(0)
        .max(1);
    let palette = Palette::of(timeline);
    let repeated = rows.iter().any(|row| row.spans.len() > 1);
    let mut caption = "Every span, in the order of its first begin.".to_owned();
    if repeated {
        caption = "Median over all cycles, in the order of the first begin.".to_owned();
    }
    if total > rows.len() {
        let _ = write!(caption, " The {} longest of {total}.", rows.len());
    }
    let range_heads = if repeated {
        "<th scope=\"col\" class=\"n\">Minimum to maximum</th><th scope=\"col\" class=\"n\">Times</th>"
    } else {
        ""
    };
    let mut html = format!(
        "<section class=\"long\"><h2>Phases</h2><div class=\"scroll\"><table><caption>{caption}</caption>\
         <thead><tr><th scope=\"col\">Phase</th><th scope=\"col\">What</th><th scope=\"col\">Where</th>\
         <th scope=\"col\" class=\"n\">Begins at</th><th scope=\"col\" class=\"n\">Duration</th>\
         <th scope=\"col\" class=\"bar-col\"><span hidden>Bar</span></th>{range_heads}\
         <th scope=\"col\" class=\"n\">Bytes</th><th scope=\"col\" class=\"n\">Rate</th></tr></thead><tbody>"
    );
    for row in &rows {
        phase_row(
            &mut html,
            row,
            longest_ns,
            palette.colour(row.phase),
            repeated,
        );
    }
    html.push_str("</tbody></table></div></section>");
    html
}

/// Whether the span moved the bytes that it names (and did not only count them).
fn moves_bytes(row: &PhaseRow) -> bool {
    row.name.ends_with("copy")
        || row
            .spans
            .iter()
            .any(|span| span.detail.contains_key("bytes"))
}

fn phase_row(html: &mut String, row: &PhaseRow, longest_ns: u64, colour: usize, with_range: bool) {
    let median_ns = row.median_ns();
    let known: Vec<f64> = row
        .spans
        .iter()
        .filter_map(|s| s.bytes())
        .map(|b| b as f64)
        .collect();
    let handled = median(known).map(|count| count as u64);
    let open = if row.spans.iter().any(|span| !span.complete) {
        " (end never seen)"
    } else {
        ""
    };
    let _ = write!(
        html,
        "<tr data-span=\"{}\"><td>{}</td><td class=\"name\">{}{open}</td><td>{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"bar-col\"><div class=\"bar\"><i class=\"p{colour}\" style=\"width:{:.2}%\"></i></div></td>",
        row.first,
        escape_html(row.phase),
        escape_html(row.name),
        row.lane.as_str(),
        duration(row.spans[0].begin_ns),
        duration(median_ns),
        100.0 * median_ns as f64 / longest_ns as f64,
    );
    if with_range {
        let durations = || row.spans.iter().map(|span| span.duration_ns());
        let range = match (durations().min(), durations().max()) {
            (Some(min), Some(max)) if duration(min) != duration(max) => {
                format!("{} to {}", duration(min), duration(max))
            }
            _ => String::new(),
        };
        let _ = write!(
            html,
            "<td class=\"n\">{range}</td><td class=\"n\">{}</td>",
            row.spans.len()
        );
    }
    let rate = match handled {
        Some(count) if median_ns > 0 && count > 0 && moves_bytes(row) => {
            format!(
                "{}/s",
                bytes((count as f64 / (median_ns as f64 / 1e9)) as u64)
            )
        }
        _ => String::new(),
    };
    let handled = handled.map(bytes).unwrap_or_default();
    let _ = write!(
        html,
        "<td class=\"n\">{handled}</td><td class=\"n\">{rate}</td></tr>"
    );
}
