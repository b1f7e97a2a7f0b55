//! The verdict on a run in one sentence, and its main figures.

use std::fmt::Write;

use crate::cycle::Cycle;
use crate::format::{bytes, duration, escape_html, seconds};
use crate::stats::median;
use crate::timeline::Timeline;

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
                format!("; cycle {}: {}", cycle.cycle, cycle.ending())
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
        (
            "Pages migrated back",
            time(|c| c.home_s),
            "while programs run",
        ),
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
            "<p class=\"aside\">Medians of {} cycles, with minimum and maximum below.</p>",
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

/// Median, and minimum to maximum if there is more than one value.
fn spread(
    values: impl Iterator<Item = f64>,
    show: impl Fn(f64) -> String,
) -> Option<(String, Option<String>)> {
    let values: Vec<f64> = values.collect();
    let middle = median(values.iter().copied())?;
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (min, max) = (show(min), show(max));
    let range = (min != max).then(|| format!("{min} to {max}"));
    Some((show(middle), range))
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
}
