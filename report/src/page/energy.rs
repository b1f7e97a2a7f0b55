//! The energy section of a page.

use std::fmt::Write;

use super::charts;
use super::template::plots_row;
use crate::energy::{CAVEAT, CaseEnergy, Energy, Share};
use crate::format::{escape_html, joules, seconds};
use crate::plot::PlotError;
use crate::stats::Summary;

/// Totals, parts, break-even and the profile.
///
/// # Errors
/// A plot cannot be drawn.
pub fn section(energy: &Energy) -> Result<String, PlotError> {
    let mut html = format!(
        "<section class=\"long\" aria-labelledby=\"energy-heading\"><h2 id=\"energy-heading\">Energy</h2>\
         <p class=\"aside\">Power profile <b>{}</b>. {CAVEAT}</p>",
        escape_html(&energy.profile.name),
    );
    let plots = [charts::energy_breakdown(energy)?, charts::pauses(energy)?];
    html.push_str(&plots_row(plots.into_iter().flatten()));
    parts_table(&mut html, energy);
    break_even_table(&mut html, energy);
    profile_table(&mut html, energy);
    html.push_str("</section>");
    Ok(html)
}

fn dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".to_owned())
}

fn spread(summary: &Summary) -> String {
    if summary.n > 1 {
        format!("{} ± {}", joules(summary.median), joules(summary.mad))
    } else {
        joules(summary.median)
    }
}

fn parts_table(html: &mut String, energy: &Energy) {
    html.push_str(
        "<div class=\"scroll\"><table><caption>Medians over the cycles that resumed; ± is the median \
         absolute deviation.</caption><thead><tr><th scope=\"col\">Case</th><th scope=\"col\">Phase</th>\
         <th scope=\"col\" class=\"n\">Time</th><th scope=\"col\" class=\"n\">Power</th>\
         <th scope=\"col\">Taken from</th><th scope=\"col\" class=\"n\">Energy</th></tr></thead><tbody>",
    );
    for case in &energy.cases {
        case_rows(html, case);
    }
    html.push_str("</tbody></table></div>");
    for case in energy.cases.iter().filter(|case| !case.missing.is_empty()) {
        let _ = write!(
            html,
            "<p class=\"aside\">{}: not all is known: {}.</p>",
            escape_html(&case.label),
            escape_html(&case.missing.join("; ")),
        );
    }
}

fn case_rows(html: &mut String, case: &CaseEnergy) {
    let label = escape_html(&case.label);
    let mut first = true;
    let mut row = |class: &str, phase: &str, part: Option<&Share>, energy: Option<String>| {
        let shown = if std::mem::take(&mut first) {
            label.as_str()
        } else {
            ""
        };
        let of = |get: fn(&Share) -> Option<String>| part.and_then(get).unwrap_or_default();
        let _ = write!(
            html,
            "<tr class=\"{class}\"><td class=\"name\">{shown}</td><td>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td></tr>",
            escape_html(phase),
            of(|part| Some(seconds(part.seconds))),
            of(|part| Some(format!("{} W", part.watts?))),
            escape_html(&of(|part| part.power.clone())),
            dash(energy),
        );
    };
    for way in &case.ways {
        if let [only] = &way.parts[..] {
            row("", way.way, Some(only), way.joules.as_ref().map(spread));
            continue;
        }
        for part in &way.parts {
            let name = format!("{}: {}", way.way, part.part);
            row("", &name, Some(part), part.joules.map(joules));
        }
        if !way.parts.is_empty() {
            row("sum", way.way, None, way.joules.as_ref().map(spread));
        }
    }
    row("total", "a cycle", None, case.total_j.as_ref().map(spread));
}

fn break_even_table(html: &mut String, energy: &Energy) {
    let rows = energy
        .cases
        .iter()
        .flat_map(|case| case.break_even.iter().map(move |b| (case, b)));
    let mut body = String::new();
    for (case, opponent) in rows {
        let _ = write!(
            body,
            "<tr><td class=\"name\">{}</td><td class=\"name\">{}</td><td>{}</td></tr>",
            escape_html(&case.label),
            escape_html(opponent.name()),
            opponent.verdict(),
        );
    }
    if body.is_empty() {
        return;
    }
    let _ = write!(
        html,
        "<h3>Break-even</h3><div class=\"scroll\"><table><caption>Which pauses, from the request to sleep \
         until programs run again, cost less energy. Staying idle and an ideal S3 cost nothing to \
         enter and to leave.</caption><thead><tr><th scope=\"col\">This</th><th scope=\"col\">costs less than</th>\
         <th scope=\"col\">in pauses</th></tr></thead><tbody>{body}</tbody></table></div>"
    );
}

fn profile_table(html: &mut String, energy: &Energy) {
    let profile = &energy.profile;
    let _ = write!(
        html,
        "<details><summary>The power profile, with its sources</summary><p class=\"aside\">{}</p>\
         <div class=\"scroll\"><table><thead><tr><th scope=\"col\">Power of</th><th scope=\"col\" class=\"n\">Watts</th>\
         <th scope=\"col\">Origin</th><th scope=\"col\">Source</th></tr></thead><tbody>",
        escape_html(&profile.description),
    );
    for power in &profile.powers {
        let _ = write!(
            html,
            "<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"name\">{}</td></tr>",
            escape_html(&power.of),
            power.watts,
            power.origin.as_str(),
            escape_html(&power.source),
        );
    }
    html.push_str("</tbody></table></div></details>");
}
