//! A compact timeline for a terminal: phases with bars, times and bytes.
//!
//! ```text
//! suspend                                                            2.62 s
//!   guest     migrate      ▕       ████████████          ▏  1.33 s  540 MiB
//!   firmware  save-copy    ▕                     ████    ▏  430 ms  140 MiB
//! ```

use std::fmt::Write;

pub mod comparison;
pub mod energy;
mod style;

use crate::cycle::Cycle;
use crate::format::{bytes, duration, printable, seconds};
use crate::timeline::{Span, Timeline};

pub use style::Style;

/// Spans beyond this many in one phase are counted, not listed.
const MAX_ROWS_PER_PHASE: usize = 16;
const NAME_WIDTH: usize = 16;
const MIN_BAR_WIDTH: usize = 10;
const MAX_BAR_WIDTH: usize = 72;

/// The whole run; each cycle with the phases in which something took time.
pub fn render(timeline: &Timeline, cycles: &[Cycle], style: Style) -> String {
    let mut text = String::new();
    let numbers = timeline.cycles();
    for number in &numbers {
        let result = cycles.iter().find(|cycle| cycle.cycle == *number);
        if numbers.len() > 1 || result.is_some() {
            heading(&mut text, *number, result, style);
        }
        // A cycle's own span says no more than its heading.
        let shown = |span: &&Span| span.cycle == *number && span.phase != "cycle";
        let spans: Vec<&Span> = timeline.spans.iter().filter(shown).collect();
        for phase in phases(&spans) {
            phase_block(&mut text, phase, &spans, style);
        }
    }
    for note in &timeline.notes {
        let _ = writeln!(text, "{}", printable(note));
    }
    to_shown(text, style)
}

/// The text as this terminal can show it.
pub(crate) fn to_shown(text: String, style: Style) -> String {
    if style.unicode { text } else { to_ascii(&text) }
}

/// For terminals whose locale shows no other characters.
fn to_ascii(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            'µ' => 'u',
            '–' => '-',
            '…' => '~',
            '±' => '+',
            '×' => 'x',
            '·' => '-',
            c if c.is_ascii() => c,
            _ => '?',
        })
        .collect()
}

fn heading(text: &mut String, number: u64, result: Option<&Cycle>, style: Style) {
    let mut line = format!("cycle {number}");
    if let Some(cycle) = result {
        let outcome = printable(cycle.outcome.as_deref().unwrap_or("unknown"));
        let outcome = match &cycle.reason {
            Some(reason) => format!("{outcome}: {}", printable(reason)),
            None => outcome,
        };
        let code = if cycle.is_good() { "32" } else { "31" };
        let _ = write!(line, "  {}", painted(&outcome, code, style));
        match cycle.verified {
            Some(true) => line.push_str(", every page verified"),
            Some(false) => line.push_str(", pages DIFFER"),
            None => {}
        }
        let times = [
            ("down", cycle.suspend.total_s),
            ("up", cycle.resume.total_s),
            ("home", cycle.home_s),
        ];
        for (name, time_s) in times {
            if let Some(time_s) = time_s {
                let _ = write!(line, "  {name} {}", seconds(time_s));
            }
        }
    }
    let _ = writeln!(text, "{line}");
}

/// Phases in the order of their first span.
fn phases<'a>(spans: &[&'a Span]) -> Vec<&'a str> {
    let mut phases: Vec<&str> = Vec::new();
    for span in spans {
        if !phases.contains(&span.phase.as_str()) {
            phases.push(&span.phase);
        }
    }
    phases
}

fn phase_block(text: &mut String, phase: &str, spans: &[&Span], style: Style) {
    let spans: Vec<&Span> = spans
        .iter()
        .filter(|span| span.phase == phase)
        .copied()
        .collect();
    let (Some(begin_ns), Some(end_ns)) = (
        spans.iter().map(|s| s.begin_ns).min(),
        spans.iter().map(|s| s.end_ns).max(),
    ) else {
        return;
    };
    let bar_width = bar_width(style);
    let colour = match phase {
        "suspend" => "34",
        "resume" => "33",
        "home" => "32",
        _ => "35",
    };
    let title = fitted(&printable(phase), 2 + 10 + NAME_WIDTH + 2 + bar_width);
    let total = duration(end_ns - begin_ns);
    let _ = writeln!(
        text,
        "{}  {total:>9}",
        painted(&title, &format!("1;{colour}"), style)
    );

    let mut shown = spans.clone();
    if shown.len() > MAX_ROWS_PER_PHASE {
        shown.sort_by_key(|span| std::cmp::Reverse(span.duration_ns()));
        shown.truncate(MAX_ROWS_PER_PHASE);
        shown.sort_by_key(|span| span.begin_ns);
    }
    for span in &shown {
        let bar = bar(span, begin_ns, end_ns, bar_width, style);
        let amount = span
            .bytes()
            .filter(|count| *count > 0)
            .map(bytes)
            .unwrap_or_default();
        let mut row = format!(
            "  {:<9} {} {} {:>9}  {amount:>9}",
            span.lane.as_str(),
            fitted(&printable(&span.name), NAME_WIDTH),
            painted(&bar, colour, style),
            duration(span.duration_ns()),
        );
        if !span.complete {
            row.push_str("  (never ended)");
        }
        let _ = writeln!(text, "{}", row.trim_end());
    }
    if shown.len() < spans.len() {
        let _ = writeln!(text, "  and {} shorter ones", spans.len() - shown.len());
    }
}

fn bar_width(style: Style) -> usize {
    // Lane, name, time, bytes and the spaces between them.
    let others = 2 + 9 + 1 + NAME_WIDTH + 1 + 1 + 9 + 2 + 9 + 2;
    style
        .width
        .saturating_sub(others)
        .clamp(MIN_BAR_WIDTH, MAX_BAR_WIDTH)
}

/// The span's part of [begin_ns, end_ns], at least one character, between two frame characters.
fn bar(span: &Span, begin_ns: u64, end_ns: u64, width: usize, style: Style) -> String {
    let length_ns = (end_ns - begin_ns).max(1) as f64;
    let column = |ns: u64| ((ns - begin_ns) as f64 / length_ns * width as f64).round() as usize;
    let from = column(span.begin_ns).min(width - 1);
    let to = column(span.end_ns).clamp(from + 1, width);
    let (left, right, filled) = if style.unicode {
        ('▕', '▏', "█")
    } else {
        ('|', '|', "#")
    };
    format!(
        "{left}{}{}{}{right}",
        " ".repeat(from),
        filled.repeat(to - from),
        " ".repeat(width - to)
    )
}

fn painted(text: &str, code: &str, style: Style) -> String {
    if style.colour {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// Exactly `width` characters: padded, or cut with an ellipsis.
pub(crate) fn fitted(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        format!("{text}{}", " ".repeat(width - count))
    } else {
        let mut cut: String = text.chars().take(width - 1).collect();
        cut.push('…');
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Clock, Event, Kind};

    const PLAIN: Style = Style {
        width: 80,
        colour: false,
        unicode: true,
    };

    fn events(name: &str) -> Vec<Event> {
        let event = |t_ns, kind| Event::new(t_ns, Clock::Guest, "suspend", name, kind);
        vec![
            event(0, Kind::Begin),
            event(1_330_000_000, Kind::End).with("bytes", 540 << 20),
        ]
    }

    #[test]
    fn a_span_shows_its_lane_name_time_and_bytes() {
        let text = render(&Timeline::from_events(&events("migrate")), &[], PLAIN);
        for part in ["suspend", "guest", "migrate", "█", "1.33 s", "540 MiB"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn lines_keep_to_the_width_of_the_terminal() {
        for width in [80, 100, 200] {
            let style = Style { width, ..PLAIN };
            let text = render(
                &Timeline::from_events(&events(&"long".repeat(40))),
                &[],
                style,
            );
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
        }
    }

    #[test]
    fn a_terminal_without_unicode_gets_only_ascii() {
        let style = Style {
            unicode: false,
            ..PLAIN
        };
        let text = render(
            &Timeline::from_events(&events(&"größe".repeat(9))),
            &[],
            style,
        );
        assert!(text.is_ascii(), "{text}");
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        let text = render(&Timeline::from_events(&events("\u{1b}[2J\r")), &[], PLAIN);
        assert!(!text.contains('\u{1b}') && !text.contains('\r'));
    }

    #[test]
    fn a_phase_of_many_spans_is_cut_and_says_so() {
        let events: Vec<Event> = (0..100)
            .flat_map(|i| events(&format!("step {i}")))
            .collect();
        let text = render(&Timeline::from_events(&events), &[], PLAIN);
        assert!(text.contains("and 84 shorter ones"));
    }

    #[test]
    fn the_environment_decides_on_colour_and_width() {
        let style = |columns, set: &[(&str, &str)]| {
            let find = |name: &str| {
                let found = set.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            Style::from_environment(columns, find)
        };
        assert!(style(Some(90), &[]).colour);
        assert!(!style(Some(90), &[("NO_COLOR", "1")]).colour);
        assert!(!style(None, &[]).colour);
        assert_eq!(style(None, &[("COLUMNS", "72")]).width, 72);
        assert_eq!(style(None, &[("COLUMNS", "many")]).width, 100);
        assert!(!style(Some(90), &[("LANG", "C")]).unicode);
        assert!(style(Some(90), &[("LANG", "C"), ("LC_ALL", "en_GB.UTF-8")]).unicode);
    }

    #[test]
    fn nothing_renders_as_nothing() {
        assert_eq!(render(&Timeline::default(), &[], PLAIN), "");
    }
}
