//! The page that shows runs side by side.

use std::fmt::Write;

use super::template::{Frame, fill, plots_row};
use super::{charts, energy};
use crate::compare::{self, Case, Cell, Row};
use crate::energy::Energy;
use crate::format::{bytes, escape_html};
use crate::plot::PlotError;
use crate::run::Run;
use crate::timeline::Timeline;

const PAGE: &str = include_str!("../../assets/comparison.html");

/// The page as text; `cases` and `rows` are of `runs`, `timelines` in the order of `runs`.
///
/// # Errors
/// A plot cannot be drawn.
pub fn page(
    runs: &[Run],
    timelines: &[Timeline],
    cases: &[Case],
    rows: &[Row],
    energy: Option<&Energy>,
) -> Result<String, PlotError> {
    let titles: Vec<&str> = runs.iter().map(|run| run.title.as_str()).collect();
    let title = match titles.len() {
        0..=4 => titles.join(", "),
        more => format!("{more} runs"),
    };
    let (class, verdict) = verdict(cases);
    let energy = energy.map(energy::section).transpose()?.unwrap_or_default();
    let plots = plots(cases, charts::ways_home(cases, timelines)?)?;
    let frame = Frame {
        title: &title,
        brand: "Dormouse · comparison",
        verdict: &verdict,
        verdict_class: class,
        footer: &format!(
            "Written by <code>dormouse report</code> {}.",
            env!("CARGO_PKG_VERSION")
        ),
        scripts: "",
    };
    let main = fill(PAGE, |name| match name {
        "cases" => cases_table(cases),
        "plots" => plots.clone(),
        "rows" => rows_table(cases, rows),
        "energy" => energy.clone(),
        other => unreachable!("the page has no place named {other}"),
    });
    Ok(frame.page(&main))
}

/// The comparison as a section of another page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn section(cases: &[Case]) -> Result<String, PlotError> {
    let plots = plots(cases, None)?;
    Ok(plots + &rows_table(cases, &compare::rows(cases)))
}

fn plots(cases: &[Case], home: Option<String>) -> Result<String, PlotError> {
    let all = [
        charts::spread("Power-on to running", cases, |c| c.resume.total_s)?,
        charts::spread("Going to sleep", cases, |c| c.suspend.total_s)?,
        charts::breakdown("Power-on to running, by phase", cases, |c| &c.resume)?,
        charts::breakdown("Going to sleep, by phase", cases, |c| &c.suspend)?,
        home,
    ];
    Ok(plots_row(all.into_iter().flatten()))
}

fn verdict(cases: &[Case]) -> (&'static str, String) {
    let attempts: usize = cases.iter().map(|case| case.attempts).sum();
    let resumed: usize = cases.iter().map(|case| case.resumed).sum();
    match attempts {
        0 => ("", "No cycle in these runs".to_owned()),
        _ if resumed == attempts => ("good", format!("{resumed} of {attempts} cycles resumed")),
        _ => ("bad", format!("{resumed} of {attempts} cycles resumed")),
    }
}

/// What the cases are, and how many of their cycles resumed.
pub fn cases_table(cases: &[Case]) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">Case</th><th scope=\"col\">Mode</th>\
         <th scope=\"col\" class=\"n\">User memory</th><th scope=\"col\" class=\"n\">DRAM</th>\
         <th scope=\"col\" class=\"n\">Resumed</th></tr></thead><tbody>",
    );
    for case in cases {
        let dram = case.cycles.iter().find_map(|cycle| cycle.dram_bytes);
        let class = if case.resumed == case.attempts {
            "good"
        } else {
            "bad"
        };
        let mode = [Some(case.mode.as_str()), case.compressor.as_deref()];
        let mode: Vec<&str> = mode.into_iter().flatten().collect();
        let size = |count: Option<u64>| count.map_or_else(|| "–".to_owned(), bytes);
        let _ = write!(
            html,
            "<tr><td class=\"name\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\"><span class=\"{class}\">{} of {}</span></td></tr>",
            escape_html(&case.label),
            escape_html(&mode.join(" ")),
            size(case.user_bytes),
            size(dram),
            case.resumed,
            case.attempts,
        );
    }
    html.push_str("</tbody></table></div>");
    html
}

fn rows_table(cases: &[Case], rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let heads: String = cases
        .iter()
        .map(|case| {
            format!(
                "<th scope=\"col\" class=\"n\">{}</th>",
                escape_html(&case.label)
            )
        })
        .collect();
    let mut html = format!(
        "<section class=\"long\"><h2>Phase by phase</h2><div class=\"scroll\"><table>\
         <caption>Medians ± median absolute deviation over n cycles that resumed; × is the median over that of \
         the first case. Indented phases are parts as recorded: restore lies within firmware.</caption>\
         <thead><tr><th scope=\"col\">Phase</th>{heads}</tr></thead><tbody>"
    );
    for row in rows {
        let class = if row.is_part() { "name part" } else { "name" };
        let _ = write!(
            html,
            "<tr><td class=\"{class}\">{}</td>",
            escape_html(&row.name())
        );
        for (index, found) in row.cells.iter().enumerate() {
            let _ = write!(
                html,
                "<td class=\"n\">{}</td>",
                cell(row, index, found.as_ref())
            );
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div></section>");
    html
}

fn cell(row: &Row, index: usize, cell: Option<&Cell>) -> String {
    let Some(Cell {
        summary,
        ratio_to_first,
    }) = cell
    else {
        return "–".to_owned();
    };
    let mut html = row.unit.show(summary.median);
    let mut more = Vec::new();
    if summary.n > 1 {
        let _ = write!(html, " ± {}", row.unit.show(summary.mad));
        more.push(format!("n {}", summary.n));
    }
    if let (Some(ratio), true) = (ratio_to_first, index > 0) {
        more.push(format!("× {ratio:.2}"));
    }
    if !more.is_empty() {
        let _ = write!(html, "<small>{}</small>", more.join(", "));
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{cases, rows};
    use crate::cycle::Cycle;

    const HOSTILE: &str = "</td><script>alert(1)</script>{{css}}";

    fn hostile_page() -> String {
        let fields = serde_json::json!({"cycle": 1, "outcome": "resumed", "mode": HOSTILE,
            "compressor": HOSTILE, "suspend_s": {"total": 1.0, HOSTILE: 0.5}});
        let run = || Run {
            title: HOSTILE.to_owned(),
            cycles: vec![Cycle::from_object(fields.as_object().unwrap()); 6],
            ..Run::default()
        };
        let runs = [run(), run()];
        let cases = cases(&runs);
        let profile = crate::energy::Profile::find("xeon-cxl-fpga".as_ref()).unwrap();
        let energy = crate::energy::of_cases(&profile, &cases);
        let timelines = [Timeline::default(), Timeline::default()];
        page(&runs, &timelines, &cases, &rows(&cases), Some(&energy)).unwrap()
    }

    #[test]
    fn hostile_names_never_become_markup() {
        let page = hostile_page();
        assert_eq!(page.matches("<script").count(), 0);
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere_and_fills_every_place() {
        let page = hostile_page();
        let addresses = page.matches("http://").count() + page.matches("https://").count();
        assert_eq!(
            addresses,
            page.matches("http://www.w3.org/2000/svg").count()
        );
        assert!(!page.contains(" src=") && !page.contains("@import") && !page.contains("url("));
        assert_eq!(page.matches("{{").count(), page.matches("{{css}}").count());
    }

    #[test]
    fn runs_without_cycles_have_a_page_that_says_so() {
        let runs = [Run::default(), Run::default()];
        let timelines = [Timeline::default(), Timeline::default()];
        let page = page(&runs, &timelines, &[], &[], None).unwrap();
        assert!(page.contains("No cycle in these runs"));
    }
}
