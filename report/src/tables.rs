//! The report's words and numbers: verdict, facts, durations of phases, cycles side by side.

use std::fmt::Write;

use crate::align::Lane;
use crate::cycle::{Cycle, REST, Way};
use crate::format::{bytes, duration, escape_html, seconds};
use crate::stats::median;
use crate::timeline::{Span, Timeline};

/// More rows would hide what matters; the longest phases are kept.
const MAX_PHASE_ROWS: usize = 120;
/// Colours of the parts of a way; names not listed share the last.
const PARTS: [(&str, usize); 10] = [
    ("migrate", 0),
    ("devices", 3),
    ("firmware", 1),
    ("restore", 2),
    ("kernel", 5),
    // Hibernation's own, on the way down and up.
    ("shrink", 0),
    ("copy", 2),
    ("write", 1),
    ("boot", 3),
    ("load", 2),
];

/// One sentence on how the run ended, and its class.
pub fn verdict(timeline: &Timeline, cycles: &[Cycle]) -> (&'static str, String) {
    let good = cycles.iter().filter(|cycle| cycle.is_good()).count();
    let verified = cycles.iter().all(|cycle| cycle.verified == Some(true));
    match cycles {
        [] => {
            let events = timeline.spans.len() + timeline.marks.len();
            (
                "",
                format!(
                    "{events} spans and marks over {}",
                    duration(timeline.end_ns)
                ),
            )
        }
        [only] => {
            let outcome = only.outcome.as_deref().unwrap_or("unknown");
            match (only.is_good(), &only.reason) {
                (true, _) if verified => (
                    "good",
                    "The machine slept, lost its power and woke; every page was compared"
                        .to_owned(),
                ),
                (true, _) => (
                    "good",
                    "The machine slept, lost its power and woke".to_owned(),
                ),
                (false, Some(reason)) => ("bad", format!("{outcome}: {reason}")),
                (false, None) if only.verified == Some(false) => {
                    ("bad", format!("{outcome}, but pages differ"))
                }
                (false, None) => ("bad", outcome.to_owned()),
            }
        }
        many if good == many.len() => {
            let compared = if verified {
                "; every page was compared each time"
            } else {
                ""
            };
            (
                "good",
                format!("{good} of {} cycles resumed{compared}", many.len()),
            )
        }
        many => {
            let first_bad = many.iter().find(|cycle| !cycle.is_good());
            let what = first_bad.map_or(String::new(), |cycle| {
                let outcome = cycle.outcome.as_deref().unwrap_or("unknown");
                let reason = cycle
                    .reason
                    .as_deref()
                    .map(|r| format!(": {r}"))
                    .unwrap_or_default();
                format!("; cycle {}: {outcome}{reason}", cycle.cycle)
            });
            (
                "bad",
                format!("{good} of {} cycles resumed{what}", many.len()),
            )
        }
    }
}

struct Fact {
    name: &'static str,
    value: String,
    more: String,
}

/// Medians over the cycles that resumed (over all, where none did).
pub fn facts(cycles: &[Cycle]) -> String {
    let resumed: Vec<&Cycle> = cycles.iter().filter(|cycle| cycle.is_good()).collect();
    let shown: Vec<&Cycle> = if resumed.is_empty() {
        cycles.iter().collect()
    } else {
        resumed
    };
    let time = |of: fn(&Cycle) -> Option<f64>| spread(shown.iter().filter_map(|c| of(c)), seconds);
    let size = |of: fn(&Cycle) -> Option<u64>| {
        spread(shown.iter().filter_map(|c| of(c)).map(|b| b as f64), |b| {
            bytes(b as u64)
        })
    };
    let rows = [
        ("Power-on to running", time(|c| c.resume.total_s), "resume"),
        ("Going to sleep", time(|c| c.suspend.total_s), "suspend"),
        ("Pages home again", time(|c| c.home_s), "while programs run"),
        ("User memory", size(|c| c.user_bytes), "filled and compared"),
        (
            "Saved by firmware",
            size(|c| c.saved_bytes),
            "what did not migrate",
        ),
    ];
    let has_ranges = rows
        .iter()
        .any(|(_, value, _)| value.as_ref().is_some_and(|v| v.1.is_some()));
    let mut facts: Vec<Fact> = rows
        .into_iter()
        .filter_map(|(name, value, meaning)| {
            let (value, range) = value?;
            Some(Fact {
                name,
                value,
                more: range.unwrap_or_else(|| meaning.to_owned()),
            })
        })
        .collect();
    facts.extend(machine_fact(cycles));
    if facts.is_empty() {
        return String::new();
    }
    let mut html = String::from("<dl class=\"facts\">");
    for fact in facts {
        let _ = write!(
            html,
            "<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>",
            fact.name,
            escape_html(&fact.value),
            escape_html(&fact.more)
        );
    }
    html.push_str("</dl>");
    if has_ranges {
        let _ = write!(
            html,
            "<p class=\"aside\">Medians of {} cycles, with the least and the most below.</p>",
            shown.len()
        );
    }
    html
}

/// The machine's sizes, from the first cycle that names them.
fn machine_fact(cycles: &[Cycle]) -> Option<Fact> {
    let first = cycles.iter().find(|cycle| cycle.dram_bytes.is_some())?;
    let cxl = first
        .cxl_bytes
        .map(|count| format!("{} CXL memory", bytes(count)));
    let mode = first.mode.as_ref().map(|mode| format!("mode {mode}"));
    Some(Fact {
        name: "Machine",
        value: format!("{} DRAM", bytes(first.dram_bytes?)),
        more: [cxl, mode]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// Median, and least to most where there is more than one value.
fn spread(
    values: impl Iterator<Item = f64>,
    show: impl Fn(f64) -> String,
) -> Option<(String, Option<String>)> {
    let values: Vec<f64> = values.collect();
    let middle = median(values.iter().copied())?;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (least, most) = (show(least), show(most));
    let range = (least != most).then(|| format!("{least} to {most}"));
    Some((show(middle), range))
}

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
    let palette = crate::drawing::Palette::of(timeline);
    let repeated = rows.iter().any(|row| row.spans.len() > 1);
    let mut caption = "Every span, in the order of its first begin.".to_owned();
    if repeated {
        caption = "Median over all cycles, in the order of the first begin.".to_owned();
    }
    if total > rows.len() {
        let _ = write!(caption, " The {} longest of {total}.", rows.len());
    }
    let range_heads = if repeated {
        "<th scope=\"col\" class=\"n\">Least to most</th><th scope=\"col\" class=\"n\">Times</th>"
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
            (Some(least), Some(most)) if duration(least) != duration(most) => {
                format!("{} to {}", duration(least), duration(most))
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

fn part_colour(name: &str) -> usize {
    PARTS
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(4, |&(_, colour)| colour)
}

/// The cycles side by side, each way as a bar of its parts.
pub fn cycles(cycles: &[Cycle]) -> String {
    if cycles.is_empty() {
        return String::new();
    }
    let longest = |of: fn(&Cycle) -> &Way| {
        cycles
            .iter()
            .filter_map(|cycle| of(cycle).total_s)
            .fold(0.0, f64::max)
    };
    let (down_s, up_s) = (longest(|c| &c.suspend), longest(|c| &c.resume));
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in cycles
        .iter()
        .flat_map(|c| c.suspend.parts.iter().chain(&c.resume.parts))
    {
        if !names.contains(&name.as_str()) && names.len() < 12 {
            names.push(name);
        }
    }
    let legend: String = names
        .iter()
        .map(|name| {
            let colour = part_colour(name);
            format!(
                "<li><span class=\"swatch p{colour}\"></span>{}</li>",
                escape_html(name)
            )
        })
        .collect();
    let mut html = format!(
        "<section class=\"long\"><h2>Cycles</h2><ul class=\"legend\">{legend}</ul><div class=\"scroll\"><table>\
         <caption>Bars share one scale in each column; grey is what no part accounts for.</caption>\
         <thead><tr><th scope=\"col\" class=\"n\">Cycle</th><th scope=\"col\">Outcome</th>\
         <th scope=\"col\">Pages</th><th scope=\"col\" class=\"n\">Down</th><th scope=\"col\"><span hidden>Parts</span></th>\
         <th scope=\"col\" class=\"n\">Up</th><th scope=\"col\"><span hidden>Parts</span></th>\
         <th scope=\"col\" class=\"n\">Home</th><th scope=\"col\" class=\"n\">User</th>\
         <th scope=\"col\" class=\"n\">Saved</th><th scope=\"col\" class=\"n\">Brought home</th></tr></thead><tbody>"
    );
    let size = |value: Option<u64>| value.map_or_else(|| "–".to_owned(), bytes);
    let time = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), seconds);
    for cycle in cycles {
        let outcome = cycle.outcome.as_deref().unwrap_or("unknown");
        let reason = cycle
            .reason
            .as_deref()
            .map(|r| format!(": {r}"))
            .unwrap_or_default();
        let class = if cycle.is_good() { "good" } else { "bad" };
        let pages = match cycle.verified {
            Some(true) => "<span class=\"good\">✓ same</span>",
            Some(false) => "<span class=\"bad\">✕ differ</span>",
            None => "not compared",
        };
        let _ = write!(
            html,
            "<tr><td class=\"n\">{}</td><td class=\"name\"><span class=\"{class}\">{}</span></td><td>{pages}</td>\
             <td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            cycle.cycle,
            escape_html(&format!("{outcome}{reason}")),
            time(cycle.suspend.total_s),
            way_bar(&cycle.suspend, down_s),
            time(cycle.resume.total_s),
            way_bar(&cycle.resume, up_s),
            time(cycle.home_s),
            size(cycle.user_bytes),
            size(cycle.saved_bytes),
            size(cycle.home_bytes),
        );
    }
    html.push_str("</tbody></table></div></section>");
    html
}

fn way_bar(way: &Way, longest_s: f64) -> String {
    if way.total_s.is_none() || longest_s <= 0.0 {
        return String::new();
    }
    let scale = 100.0 / longest_s;
    let mut bar = String::from("<div class=\"bar\">");
    for (name, part_s) in way.disjoint_parts().unwrap_or_default() {
        let (class, name) = match name {
            REST => ("rest".to_owned(), "the rest"),
            name => (format!("p{}", part_colour(name)), name),
        };
        let _ = write!(
            bar,
            "<i class=\"{class}\" style=\"width:{:.2}%\" title=\"{}\"></i>",
            part_s * scale,
            escape_html(&format!("{name}: {}", seconds(part_s)))
        );
    }
    bar.push_str("</div>");
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(number: u64, outcome: &str, verified: bool) -> Cycle {
        Cycle {
            cycle: number,
            outcome: Some(outcome.to_owned()),
            verified: Some(verified),
            ..Cycle::default()
        }
    }

    #[test]
    fn the_verdict_is_bad_as_soon_as_one_cycle_is() {
        let timeline = Timeline::default();
        let good = [cycle(1, "resumed", true), cycle(2, "resumed", true)];
        assert_eq!(verdict(&timeline, &good).0, "good");
        let mut bad = good.to_vec();
        bad.push(Cycle {
            reason: Some("saved-digest".into()),
            ..cycle(3, "cold-boot", false)
        });
        let (class, text) = verdict(&timeline, &bad);
        assert_eq!(class, "bad");
        assert_eq!(
            text,
            "2 of 3 cycles resumed; cycle 3: cold-boot: saved-digest"
        );
        assert_eq!(verdict(&timeline, &[cycle(1, "resumed", false)]).0, "bad");
    }

    #[test]
    fn facts_leave_out_what_is_not_known() {
        assert_eq!(facts(&[]), "");
        let html = facts(&[Cycle {
            saved_bytes: Some(1 << 20),
            ..cycle(1, "resumed", true)
        }]);
        assert!(html.contains("1.00 MiB") && !html.contains("Going to sleep"));
    }

    #[test]
    fn a_bar_is_never_longer_than_its_column() {
        let way = Way {
            total_s: Some(2.0),
            parts: vec![("migrate".to_owned(), 3.0), ("firmware".to_owned(), 1.0)],
        };
        let bar = way_bar(&way, 2.0);
        assert!(
            bar.contains("width:75.00%") && bar.contains("width:25.00%"),
            "{bar}"
        );
        assert_eq!(way_bar(&way, 0.0), "");
    }
}
