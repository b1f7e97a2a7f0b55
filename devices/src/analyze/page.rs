//! The analysis as a page: the parts about devices; timeline and style come from `report`.

use std::fmt::Write;
use std::path::Path;

use dormouse_report::format::{duration, escape_html};
use dormouse_report::{OwnPage, ReportError, ReportPaths, write_page};

use super::{Analysis, timeline};
use crate::model::{Direction, Recording};
use crate::simulate::table::Table;

/// Writes the page and the trace beside it.
///
/// # Errors
/// A file cannot be written.
pub fn write(
    recording: &Recording,
    analysis: &Analysis,
    table: &Table,
    title: &str,
    page_path: &Path,
    trace_path: &Path,
) -> Result<ReportPaths, ReportError> {
    let events = timeline::events(recording, &[analysis.extent.cycle], analysis.extent.cpus);
    let own = OwnPage {
        title: title.to_owned(),
        verdict: verdict(analysis),
        facts: facts(analysis, table),
        before_timeline: findings(analysis),
        after_timeline: [
            steps(analysis),
            passes(analysis),
            critical_paths(analysis),
            slowest(analysis),
            schedules(table),
        ]
        .concat(),
        command: "dormouse devices analyze".to_owned(),
        notes: analysis.notes.clone(),
    };
    write_page(&events, &own, page_path, trace_path)
}

fn verdict(analysis: &Analysis) -> String {
    let totals = &analysis.totals;
    let whole = if analysis.extent.complete {
        ""
    } else {
        "; not all of it was seen"
    };
    format!(
        "{} down, {} up, {} devices{whole}",
        duration(totals.suspend_ns),
        duration(totals.resume_ns),
        analysis.extent.devices
    )
}

fn facts(analysis: &Analysis, table: &Table) -> String {
    let mut html = String::from("<dl class=\"facts\">");
    let mut fact = |name: &str, value: String, more: String| {
        let _ = write!(
            html,
            "<div><dt>{name}</dt><dd>{}<small>{}</small></dd></div>",
            escape_html(&value),
            escape_html(&more)
        );
    };
    let totals = &analysis.totals;
    fact(
        "Suspend",
        duration(totals.suspend_ns),
        "until asleep".to_owned(),
    );
    fact(
        "Resume",
        duration(totals.resume_ns),
        "until processes run".to_owned(),
    );
    for total in &table.totals {
        let name = match total.direction {
            Direction::Suspend => "Devices down",
            Direction::Resume => "Devices up",
        };
        let recorded = total.recorded_ns.map_or_else(|| "–".to_owned(), duration);
        let bound = format!("at least {} in any order", duration(total.bound_ns));
        fact(name, recorded, bound);
    }
    fact(
        "Devices",
        analysis.extent.devices.to_string(),
        format!(
            "{} links, {} CPUs",
            analysis.extent.links, analysis.extent.cpus
        ),
    );
    html.push_str("</dl>");
    html
}

fn findings(analysis: &Analysis) -> String {
    if analysis.findings.is_empty() {
        return "<section><h2>Findings</h2><p>No improvement found.</p></section>".to_owned();
    }
    let mut html = String::from("<section><h2>Findings</h2><ol class=\"findings\">");
    for finding in &analysis.findings {
        let gain = finding.gain_ns.map_or_else(String::new, |ns| {
            format!(" <strong>up to {}</strong>", duration(ns))
        });
        let _ = write!(
            html,
            "<li><p><b>{}</b>: {}{gain}</p><p>{}</p><p>{}</p>",
            finding.id,
            escape_html(&finding.seen),
            escape_html(finding.why),
            with_code(&finding.todo)
        );
        if !finding.about.is_empty() {
            let _ = write!(
                html,
                "<p class=\"aside\">{}</p>",
                escape_html(&finding.about.join(", "))
            );
        }
        html.push_str("</li>");
    }
    html.push_str("</ol></section>");
    html
}

/// Text with `code` between backquotes.
fn with_code(text: &str) -> String {
    let mut html = String::new();
    for (index, part) in text.split('`').enumerate() {
        let part = escape_html(part);
        if index % 2 == 1 {
            let _ = write!(html, "<code>{part}</code>");
        } else {
            html.push_str(&part);
        }
    }
    html
}

/// A table: heads with whether they are numbers, and rows of text.
/// The head of a column, and whether it has numbers.
type Head = (&'static str, bool);

const fn text(head: &'static str) -> Head {
    (head, false)
}

const fn number(head: &'static str) -> Head {
    (head, true)
}

fn table(title: &str, caption: &str, heads: &[Head], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let class = |number: bool| if number { " class=\"n\"" } else { "" };
    let mut html = format!(
        "<section class=\"long\"><h2>{title}</h2><div class=\"scroll\"><table>\
         <caption>{caption}</caption><thead><tr>"
    );
    for &(head, number) in heads {
        let _ = write!(html, "<th scope=\"col\"{}>{head}</th>", class(number));
    }
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        for (cell, &(_, number)) in row.iter().zip(heads) {
            let _ = write!(html, "<td{}>{}</td>", class(number), escape_html(cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div></section>");
    html
}

fn steps(analysis: &Analysis) -> String {
    let rows: Vec<Vec<String>> = analysis
        .totals
        .steps
        .iter()
        .map(|step| {
            let way = match step.direction {
                Direction::Suspend => "suspend",
                Direction::Resume => "resume",
            };
            vec![
                way.to_owned(),
                step.name.clone(),
                duration(step.duration_ns),
                format!("{:.0} %", step.share * 100.0),
            ]
        })
        .collect();
    let heads = [text("Way"), text("Step"), number("Took"), number("Share")];
    table("Steps", "The kernel's steps in their order.", &heads, &rows)
}

fn passes(analysis: &Analysis) -> String {
    let rows: Vec<Vec<String>> = analysis
        .phases
        .iter()
        .map(|phase| {
            vec![
                phase.phase.to_string(),
                duration(phase.duration_ns),
                duration(phase.sum_ns),
                duration(phase.bound_ns),
                format!(
                    "{} of {}",
                    phase.callbacks,
                    phase.callbacks + phase.without_callback
                ),
                format!("{:.1}", phase.parallelism),
                phase
                    .idle_share
                    .map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0)),
                duration(phase.between_ns),
            ]
        })
        .collect();
    let heads = [
        text("Pass"),
        number("Took"),
        number("Sum"),
        number("Bound"),
        number("Callbacks"),
        number("At a time"),
        number("CPUs idle"),
        number("Between"),
    ];
    table(
        "Passes over the devices",
        "Sum: all callbacks one after the other. Bound: no order is faster. Between: no callback \
         runs.",
        &heads,
        &rows,
    )
}

fn critical_paths(analysis: &Analysis) -> String {
    let rows: Vec<Vec<String>> = analysis
        .phases
        .iter()
        .flat_map(|phase| {
            let min_ns = phase.critical_path_ns / 100;
            phase
                .critical_path
                .iter()
                .filter(move |link| link.duration_ns >= min_ns)
                .map(|link| {
                    vec![
                        phase.phase.to_string(),
                        link.name.clone(),
                        duration(link.duration_ns),
                    ]
                })
        })
        .collect();
    let heads = [text("Pass"), text("Device"), number("Took")];
    table(
        "Critical paths",
        "The longest chain of devices that wait for each other, in the order in which they run; \
         links below one percent are left out.",
        &heads,
        &rows,
    )
}

fn slowest(analysis: &Analysis) -> String {
    let rows: Vec<Vec<String>> = analysis
        .slowest
        .iter()
        .map(|device| {
            let may = match device.is_async {
                Some(true) => "yes",
                Some(false) => "no",
                None => "unknown",
            };
            vec![
                device.name.clone(),
                duration(device.suspend_ns),
                duration(device.resume_ns),
                may.to_owned(),
            ]
        })
        .collect();
    let heads = [
        text("Device"),
        number("Suspend"),
        number("Resume"),
        text("Async"),
    ];
    table("Slowest devices", "All passes together.", &heads, &rows)
}

fn schedules(simulated: &Table) -> String {
    let rows: Vec<Vec<String>> = simulated
        .totals
        .iter()
        .flat_map(|total| {
            let way = match total.direction {
                Direction::Suspend => "suspend",
                Direction::Resume => "resume",
            };
            total.predictions.iter().map(move |prediction| {
                vec![
                    way.to_owned(),
                    prediction.name.to_owned(),
                    duration(prediction.makespan_ns),
                    format!("{:.2}", prediction.ratio_to_list),
                    format!("{:.2}", prediction.ratio_to_bound),
                    prediction.items.to_string(),
                    prediction.wakeups.to_string(),
                ]
            })
        })
        .collect();
    let heads = [
        text("Way"),
        text("Schedule"),
        number("Predicted"),
        number("To list order"),
        number("To the bound"),
        number("Work items"),
        number("Wake-ups"),
    ];
    table(
        "Schedules",
        "The same devices under other schedules, by simulation.",
        &heads,
        &rows,
    )
}
