//! The energy of a run on a terminal.

use std::fmt::Write;

use super::{Style, fitted, to_shown};
use crate::energy::{CAVEAT, Energy};
use crate::format::{joules, printable, seconds};

/// Joules by phase, the total of a cycle, and break-even pauses.
pub fn render(energy: &Energy, style: Style) -> String {
    let mut text = format!(
        "energy by power profile {}\n",
        printable(&energy.profile.name)
    );
    let label_width = style.width.saturating_sub(46).clamp(12, 44);
    for case in &energy.cases {
        let _ = writeln!(text, "{}", printable(&case.label));
        for way in &case.ways {
            for part in &way.parts {
                let name = match way.way == part.part {
                    true => part.part.clone(),
                    false => format!("{} {}", way.way, part.part),
                };
                let watts = part
                    .watts
                    .map_or("–".to_owned(), |watts| format!("{watts} W"));
                let _ = writeln!(
                    text,
                    "  {} {:>9} {watts:>9} {:>9}",
                    fitted(&printable(&name), label_width),
                    seconds(part.seconds),
                    part.joules.map_or("–".to_owned(), joules),
                );
            }
        }
        let total = case
            .total_j
            .map_or("–".to_owned(), |total| joules(total.median));
        let n = if case.n > 1 {
            format!("  n {}", case.n)
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "  {} {:>9} {:>9} {total:>9}{n}",
            fitted("a cycle", label_width),
            "",
            ""
        );
        for why in &case.missing {
            let _ = writeln!(text, "  not known: {}", printable(why));
        }
        for opponent in &case.break_even {
            let _ = writeln!(
                text,
                "  costs less than {} in pauses: {}",
                printable(opponent.name()),
                opponent.verdict()
            );
        }
    }
    let _ = writeln!(text, "{CAVEAT}");
    to_shown(text, style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare;
    use crate::cycle::Cycle;
    use crate::energy::{Profile, of_cases};
    use crate::run::Run;

    #[test]
    fn a_line_for_each_phase_and_each_opponent() {
        let line = r#"{"mode":"cxl","outcome":"resumed","suspend_s":{"total":4,"migrate":3},"resume_s":{"total":2}}"#;
        let run = Run {
            cycles: vec![Cycle::from_object(&serde_json::from_str(line).unwrap())],
            ..Run::default()
        };
        let profile = Profile::find("xeon-cxl-fpga".as_ref()).unwrap();
        let energy = of_cases(&profile, &compare::cases(&[run]));
        let style = Style {
            width: 80,
            colour: false,
            unicode: false,
        };
        let text = render(&energy, style);
        for part in [
            "suspend migrate",
            "167 W",
            "501 J",
            "staying idle",
            "S3 (ideal)",
            "a cycle",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.is_ascii());
    }
}
