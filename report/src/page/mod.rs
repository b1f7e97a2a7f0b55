//! One self-contained HTML page for a run: facts, timeline, phases, cycles. No external resource
//! is ever loaded; everything from the run is escaped.

mod charts;
pub mod comparison;
mod cycles;
mod drawing;
pub mod energy;
mod facts;
mod phases;
mod template;

use crate::compare::Case;
use crate::cycle::Cycle;
use crate::energy::Energy;
use crate::format::{escape_html, escape_json_for_script};
use crate::plot::PlotError;
use crate::timeline::Timeline;
use drawing::Palette;

use template::{CSS, Frame, fill};

const PAGE: &str = include_str!("../../assets/page.html");
const SCRIPTS: &str = include_str!("../../assets/scripts.html");
const JS: &str = include_str!("../../assets/page.js");

/// What a page shows.
pub struct Page<'a> {
    /// The title of the page.
    pub title: &'a str,
    /// The timeline of the run.
    pub timeline: &'a Timeline,
    /// The results of the cycles.
    pub cycles: &'a [Cycle],
    /// The cycles by mode and fill; compared where there are several.
    pub cases: &'a [Case],
    /// A section of its own, where there is one.
    pub energy: Option<&'a Energy>,
    /// Name of the file beside the page that has the trace.
    pub trace_name: &'a str,
    /// What another part of Dormouse has to say in place of a run's words and numbers.
    pub own: Option<&'a OwnPage>,
}

/// The words of a page that is not of a run of the lab; everything in HTML is escaped already.
#[derive(Clone, Debug, Default)]
pub struct OwnPage {
    /// The title of the page.
    pub title: String,
    /// One sentence of plain text.
    pub verdict: String,
    /// HTML: a `<dl class="facts">`.
    pub facts: String,
    /// HTML: sections above the timeline.
    pub before_timeline: String,
    /// HTML: sections below it, in place of the table of phases.
    pub after_timeline: String,
    /// The command that wrote the page, as plain text.
    pub command: String,
    /// Plain text, below the timeline.
    pub notes: Vec<String>,
}

/// The page as text.
///
/// # Errors
/// A plot cannot be drawn.
pub fn page(page: &Page) -> Result<String, PlotError> {
    let (timeline, cycles) = (page.timeline, page.cycles);
    let comparison = match page.cases.len() {
        0 | 1 => String::new(),
        _ => comparison::section(page.cases)?,
    };
    let memory = [charts::way_down(timeline)?, charts::way_home(timeline)?];
    let memory = template::plots_row(memory.into_iter().flatten());
    let energy = page
        .energy
        .map(energy::section)
        .transpose()?
        .unwrap_or_default();
    let (verdict_class, verdict) = match page.own {
        Some(own) => ("", own.verdict.clone()),
        None => facts::verdict(timeline, cycles),
    };
    let data = drawing::script_data(timeline).to_string();
    let command = page.own.map_or("dormouse report", |own| &own.command);
    let frame = Frame {
        title: page.title,
        brand: "Dormouse",
        verdict: &verdict,
        verdict_class,
        footer: &format!(
            "Written by <code>{}</code> {}. The same timeline is in <code>{}</code> beside this \
             page, for Perfetto or chrome://tracing.",
            escape_html(command),
            env!("CARGO_PKG_VERSION"),
            escape_html(page.trace_name),
        ),
        scripts: &fill(SCRIPTS, |name| match name {
            "js" => JS.to_owned(),
            "data" => escape_json_for_script(&data),
            other => unreachable!("the scripts have no place named {other}"),
        }),
    };
    let main = fill(PAGE, |name| match name {
        "memory" if memory.is_empty() => String::new(),
        "memory" => format!("<section><h2>Memory</h2>{memory}</section>"),
        "energy" => energy.clone(),
        "facts" if page.own.is_some() => page.own.map_or_else(String::new, |own| own.facts.clone()),
        "before_timeline" => page
            .own
            .map_or_else(String::new, |own| own.before_timeline.clone()),
        // Medians over different modes or fills would say nothing.
        "facts" if page.cases.len() > 1 => comparison::cases_table(page.cases),
        "facts" => facts::facts(cycles),
        "comparison" => comparison.clone(),
        "legend" => legend(timeline),
        "svg" if timeline.end_ns == 0 && timeline.marks.is_empty() => {
            "<p class=\"empty\">This run has no events.</p>".to_owned()
        }
        "svg" => drawing::static_svg(timeline),
        "notes" => notes(timeline),
        "phases" => page.own.map_or_else(
            || phases::phases(timeline),
            |own| own.after_timeline.clone(),
        ),
        "cycles" => cycles::table(cycles),
        other => unreachable!("the page has no place named {other}"),
    });
    Ok(frame.page(&main))
}

/// The timeline alone as an SVG file: the drawing of the page, with the page's style inside.
pub fn picture(timeline: &Timeline) -> String {
    let drawing = drawing::static_svg(timeline);
    let (opening, shapes) = drawing
        .split_once('\n')
        .expect("the drawing's opening tag has a line of its own");
    // `<img>` shows a file only with its namespace; the page's ground is not drawn by an SVG.
    let opening = opening.replacen("<svg ", r#"<svg xmlns="http://www.w3.org/2000/svg" "#, 1);
    format!(
        "{opening}\n<style>\n{CSS}svg {{ font-size: 12px; background: var(--surface); }}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" style=\"fill: var(--surface)\"/>\n{shapes}\n"
    )
}

fn legend(timeline: &Timeline) -> String {
    let palette = Palette::of(timeline);
    let mut items: Vec<String> = palette
        .phases()
        .iter()
        .take(12)
        .map(|phase| {
            let colour = palette.colour(phase);
            format!(
                r#"<li><span class="swatch p{colour}"></span>{}</li>"#,
                escape_html(phase)
            )
        })
        .collect();
    if timeline.spans.iter().any(|span| !span.complete) {
        items.push(r#"<li><span class="swatch dashed"></span>end never seen</li>"#.to_owned());
    }
    if !timeline.outages.is_empty() {
        items.push(r#"<li><span class="swatch outage"></span>no power</li>"#.to_owned());
    }
    format!("<ul class=\"legend\">{}</ul>", items.concat())
}

fn notes(timeline: &Timeline) -> String {
    if timeline.notes.is_empty() {
        return String::new();
    }
    let items: String = timeline
        .notes
        .iter()
        .map(|note| format!("<li>{}</li>", escape_html(note)))
        .collect();
    format!("<ul class=\"notes\">{items}</ul>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Clock, Event, Kind};

    fn drawn(title: &str, timeline: &Timeline, cycles: &[Cycle]) -> String {
        let trace_name = "trace.json";
        page(&Page {
            title,
            timeline,
            cycles,
            cases: &[],
            energy: None,
            trace_name,
            own: None,
        })
        .unwrap()
    }

    #[test]
    fn the_picture_is_a_file_of_its_own_and_hostile_names_stay_text() {
        let timeline = Timeline::from_events(&[
            Event::new(0, Clock::Guest, "suspend", HOSTILE, Kind::Begin),
            Event::new(5_000_000, Clock::Guest, "suspend", HOSTILE, Kind::End),
        ]);
        let picture = picture(&timeline);
        assert!(picture.starts_with("<svg xmlns="), "{picture}");
        assert!(picture.trim_end().ends_with("</svg>"), "{picture}");
        assert!(picture.contains("--surface:"), "the style is inside");
        assert!(!picture.contains("<script"), "{picture}");
    }

    const HOSTILE: &str =
        "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{js}}";

    #[test]
    fn hostile_names_never_become_markup() {
        let event = |t_ns, kind| {
            Event::new(t_ns, Clock::Guest, HOSTILE, HOSTILE, kind).with(HOSTILE, HOSTILE)
        };
        let timeline = Timeline::from_events(&[
            event(0, Kind::Begin),
            event(5_000_000, Kind::End),
            event(6_000_000, Kind::Mark),
        ]);
        let fields = serde_json::json!({"cycle": 1, "outcome": HOSTILE, "reason": HOSTILE,
            "mode": HOSTILE, "suspend_s": {"total": 1.0, HOSTILE: 0.5}});
        let cycle = Cycle::from_object(fields.as_object().unwrap());
        let page = drawn(HOSTILE, &timeline, &[cycle]);
        assert!(!page.contains("<img"));
        assert!(!page.contains("<script>alert"));
        assert_eq!(
            page.matches("<script").count(),
            2,
            "the data and the page's own script"
        );
        assert_eq!(page.matches("</script").count(), 2);
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        let page = drawn("run", &Timeline::default(), &[]);
        // The one address is the name of the SVG namespace.
        let addresses = page.matches("http://").count() + page.matches("https://").count();
        assert_eq!(
            addresses,
            page.matches("http://www.w3.org/2000/svg").count()
        );
        assert!(!page.contains(" src=") && !page.contains("@import") && !page.contains("url("));
    }

    #[test]
    fn every_place_of_the_template_is_filled() {
        let page = drawn("run", &Timeline::default(), &[]);
        assert!(!page.contains("{{"));
    }
}
