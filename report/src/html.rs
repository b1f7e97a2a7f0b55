//! One self-contained HTML page for a run: facts, timeline, phases, cycles. No external resource
//! is ever loaded; everything from the run is escaped.

use crate::cycle::Cycle;
use crate::drawing::{self, Palette};
use crate::format::{escape_html, escape_json_for_script};
use crate::tables;
use crate::timeline::Timeline;

const PAGE: &str = include_str!("../assets/page.html");
const CSS: &str = include_str!("../assets/page.css");
const JS: &str = include_str!("../assets/page.js");

/// The page as text.
pub fn page(title: &str, timeline: &Timeline, cycles: &[Cycle]) -> String {
    let (verdict_class, verdict) = tables::verdict(timeline, cycles);
    let data = drawing::script_data(timeline).to_string();
    fill(PAGE, |name| match name {
        "title" => escape_html(title),
        "css" => CSS.to_owned(),
        "js" => JS.to_owned(),
        "verdict" => escape_html(&verdict),
        "verdict_class" => verdict_class.to_owned(),
        "facts" => tables::facts(cycles),
        "legend" => legend(timeline),
        "svg" => drawing::static_svg(timeline),
        "notes" => notes(timeline),
        "phases" => tables::phases(timeline),
        "cycles" => tables::cycles(cycles),
        "data" => escape_json_for_script(&data),
        "footer" => format!(
            "Written by <code>dormouse report</code> {}. The same timeline is in \
             <code>trace.json</code> beside this page, for Perfetto or chrome://tracing.",
            env!("CARGO_PKG_VERSION")
        ),
        other => unreachable!("the page has no place named {other}"),
    })
}

/// Replaces each `{{name}}` of the template, in one pass: what is filled in is not searched.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut filled = String::with_capacity(template.len() * 4);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after
            .split_once("}}")
            .expect("the template closes its places");
        filled.push_str(before);
        filled.push_str(&value(name));
        rest = after;
    }
    filled.push_str(rest);
    filled
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
        let page = page(HOSTILE, &timeline, &[cycle]);
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
        let page = page("run", &Timeline::default(), &[]);
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
        let page = page("run", &Timeline::default(), &[]);
        assert!(!page.contains("{{"));
    }
}
