//! The static drawing of a timeline (SVG), and the data from which the page's script redraws it.
//!
//! Both use one layout, so that the page looks the same before and after the script has run:
//!
//! ```text
//! gutter │ axis labels
//! host   │ ▆▆▆▆ span rows (a row for each track and depth)
//!        │  ◆   ◆ row of marks
//!        │ ╱╲╱╲ counters
//! guest  │ …
//! ```

use std::fmt::Write;

use serde_json::{Value, json};

use crate::format;
use crate::timeline::align::Lane;
use crate::timeline::{Counter, Mark, Span, Timeline};

const WIDTH: f64 = 1296.0;
const GUTTER: f64 = 104.0;
const RIGHT: f64 = 14.0;
const AXIS_HEIGHT: usize = 28;
const ROW_HEIGHT: usize = 24;
const MARK_ROW_HEIGHT: usize = 18;
const COUNTER_HEIGHT: usize = 44;
const LANE_PADDING: usize = 8;
const MAX_COUNTERS_PER_LANE: usize = 3;
/// Without the script, more shapes than this would make the page slow; the longest are kept.
const MAX_STATIC_SHAPES: usize = 1500;
const CHARACTER_WIDTH: f64 = 6.7;

/// Phases in the order of their first event, and the colour of each.
pub struct Palette {
    phases: Vec<String>,
    /// Those that took time and are not of the host's bookkeeping.
    spanned: Vec<String>,
}

/// What the host notes beside the machine's own phases.
const BOOKKEEPING: [&str; 2] = ["cycle", "machine"];

impl Palette {
    /// Colours for a timeline: the three phases that every run has keep theirs.
    pub fn of(timeline: &Timeline) -> Palette {
        let mut seen: Vec<(u64, &str)> = Vec::new();
        let spans = timeline
            .spans
            .iter()
            .map(|span| (span.begin_ns, span.phase.as_str()));
        let marks = timeline
            .marks
            .iter()
            .map(|mark| (mark.at_ns, mark.phase.as_str()));
        for (at_ns, phase) in spans.chain(marks) {
            match seen.iter_mut().find(|(_, known)| *known == phase) {
                Some(first) => first.0 = first.0.min(at_ns),
                None => seen.push((at_ns, phase)),
            }
        }
        seen.sort();
        let phases: Vec<String> = seen
            .into_iter()
            .map(|(_, phase)| phase.to_owned())
            .collect();
        let took_time = |phase: &String| timeline.spans.iter().any(|span| span.phase == *phase);
        let spanned = phases
            .iter()
            .filter(|phase| !BOOKKEEPING.contains(&phase.as_str()) && took_time(phase))
            .cloned()
            .collect();
        Palette { phases, spanned }
    }

    /// In the order of their first event.
    pub fn phases(&self) -> &[String] {
        &self.phases
    }

    /// Those worth zooming to.
    pub fn spanned_phases(&self) -> &[String] {
        &self.spanned
    }

    /// Number of the phase's colour, 0 to 5.
    pub fn colour(&self, phase: &str) -> usize {
        const FIXED: [&str; 3] = ["suspend", "resume", "home"];
        const OTHERS: [usize; 2] = [3, 5];
        if let Some(fixed) = FIXED.iter().position(|known| *known == phase) {
            return fixed;
        }
        let mut others = self
            .spanned
            .iter()
            .filter(|name| !FIXED.contains(&name.as_str()));
        others
            .position(|name| name == phase)
            .map_or(4, |place| OTHERS[place % OTHERS.len()])
    }
}

struct LaneBox {
    lane: Lane,
    top: usize,
    /// First row of each track.
    track_rows: Vec<usize>,
    marks_top: usize,
    counters_top: usize,
}

/// Where everything stands vertically.
pub struct Layout {
    lanes: Vec<LaneBox>,
    height: usize,
}

impl Layout {
    /// Lanes that have nothing to show get no room.
    pub fn of(timeline: &Timeline) -> Layout {
        let mut lanes = Vec::new();
        let mut top = AXIS_HEIGHT;
        for lane in Lane::ALL {
            let depths = timeline.track_depths(lane);
            let has_marks = timeline.marks.iter().any(|mark| mark.lane == lane);
            let counters = lane_counters(timeline, lane).count();
            if depths.is_empty() && !has_marks && counters == 0 {
                continue;
            }
            let mut rows = 0;
            let track_rows = depths
                .iter()
                .map(|depth| {
                    rows += depth;
                    rows - depth
                })
                .collect();
            let marks_top = top + LANE_PADDING + rows * ROW_HEIGHT;
            let counters_top = marks_top + if has_marks { MARK_ROW_HEIGHT } else { 0 };
            lanes.push(LaneBox {
                lane,
                top,
                track_rows,
                marks_top,
                counters_top,
            });
            top = (counters_top + counters * COUNTER_HEIGHT + LANE_PADDING)
                .max(top + ROW_HEIGHT + 2 * LANE_PADDING);
        }
        Layout { lanes, height: top }
    }

    fn lane(&self, lane: Lane) -> &LaneBox {
        self.lanes
            .iter()
            .find(|found| found.lane == lane)
            .expect("every lane in use has a box")
    }

    fn span_top(&self, span: &Span) -> usize {
        let lane = self.lane(span.lane);
        lane.top + LANE_PADDING + (lane.track_rows[span.track] + span.depth) * ROW_HEIGHT
    }

    fn mark_top(&self, mark: &Mark) -> usize {
        self.lane(mark.lane).marks_top
    }
}

fn lane_counters(timeline: &Timeline, lane: Lane) -> impl Iterator<Item = &Counter> {
    timeline
        .counters
        .iter()
        .filter(move |c| c.lane == lane)
        .take(MAX_COUNTERS_PER_LANE)
}

/// A round step that gives about `wanted` ticks.
fn tick_step_ns(end_ns: u64, wanted: u64) -> u64 {
    let least = (end_ns / wanted).max(1);
    let mut power = 1u64;
    loop {
        for factor in [1, 2, 5] {
            match power.checked_mul(factor) {
                Some(step) if step >= least => return step,
                Some(_) => {}
                None => return u64::MAX,
            }
        }
        match power.checked_mul(10) {
            Some(next) => power = next,
            None => return u64::MAX,
        }
    }
}

/// The drawing, complete without any script; each shape has its details as a title.
pub fn static_svg(timeline: &Timeline) -> String {
    let (palette, layout) = (Palette::of(timeline), Layout::of(timeline));
    let scale = (WIDTH - GUTTER - RIGHT) / timeline.end_ns.max(1) as f64;
    let x = |ns: u64| GUTTER + ns as f64 * scale;
    let (mut svg, height) = (String::new(), layout.height);
    // Writing into a String cannot fail.
    let _ = writeln!(
        svg,
        r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Timeline of the run">"#
    );
    for &(begin_ns, end_ns) in &timeline.outages {
        let width = (x(end_ns) - x(begin_ns)).max(1.0);
        let _ = writeln!(
            svg,
            r#"<rect class="outage" x="{:.2}" y="{AXIS_HEIGHT}" width="{width:.2}" height="{}"><title>no power: {}</title></rect>"#,
            x(begin_ns),
            height - AXIS_HEIGHT,
            format::duration(end_ns - begin_ns),
        );
    }
    let step_ns = tick_step_ns(timeline.end_ns, 10);
    let mut tick_ns = 0u64;
    while tick_ns <= timeline.end_ns {
        let _ = writeln!(
            svg,
            r#"<line class="tick" x1="{0:.2}" x2="{0:.2}" y1="{AXIS_HEIGHT}" y2="{height}"/><text class="tick-text" x="{0:.2}" y="{1}" text-anchor="middle">{2}</text>"#,
            x(tick_ns),
            AXIS_HEIGHT - 9,
            format::duration(tick_ns),
        );
        let Some(next_ns) = tick_ns.checked_add(step_ns) else {
            break;
        };
        tick_ns = next_ns;
    }
    draw_counters(&mut svg, timeline, &layout, x);
    draw_spans(&mut svg, timeline, &layout, &palette, x);
    for mark in timeline.marks.iter().take(MAX_STATIC_SHAPES) {
        let _ = writeln!(
            svg,
            r#"<g class="mark p{}"><path d="M{:.2} {}l5 6l-5 6l-5 -6z"><title>{}</title></path></g>"#,
            palette.colour(&mark.phase),
            x(mark.at_ns),
            layout.mark_top(mark) + 2,
            format::escape_html(&format!(
                "{} at {}{}",
                mark.name,
                format::duration(mark.at_ns),
                detail_text(&detail_rows(&mark.detail))
            )),
        );
    }
    for lane in &layout.lanes {
        let _ = writeln!(
            svg,
            r#"<line class="lane-line" x1="0" x2="{WIDTH}" y1="{0}" y2="{0}"/><text class="lane-text" x="14" y="{1}">{2}</text>"#,
            lane.top,
            lane.top + 21,
            lane.lane.as_str(),
        );
    }
    svg.push_str("</svg>");
    svg
}

fn draw_spans(
    svg: &mut String,
    timeline: &Timeline,
    layout: &Layout,
    palette: &Palette,
    x: impl Fn(u64) -> f64,
) {
    let mut shown: Vec<&Span> = timeline.spans.iter().collect();
    if shown.len() > MAX_STATIC_SHAPES {
        shown.sort_by_key(|span| std::cmp::Reverse(span.duration_ns()));
        shown.truncate(MAX_STATIC_SHAPES);
        shown.sort_by_key(|span| (span.begin_ns, std::cmp::Reverse(span.end_ns)));
    }
    for span in shown {
        let (left, width) = (
            x(span.begin_ns),
            (x(span.end_ns) - x(span.begin_ns)).max(1.5),
        );
        let (top, duration) = (layout.span_top(span), format::duration(span.duration_ns()));
        let title = format!(
            "{}: {duration}{}",
            span.name,
            detail_text(&detail_rows(&span.detail))
        );
        let _ = write!(
            svg,
            r#"<g class="span p{}{}"><rect x="{left:.2}" y="{top}" width="{width:.2}" height="{}" rx="{:.1}"><title>{}</title></rect>"#,
            palette.colour(&span.phase),
            if span.complete { "" } else { " open" },
            ROW_HEIGHT - 3,
            (width / 3.0).min(3.0),
            format::escape_html(&title),
        );
        let full = format!("{}  {duration}", span.name);
        let fits = |text: &str| text.chars().count() as f64 * CHARACTER_WIDTH < width - 10.0;
        if let Some(label) = [full.as_str(), span.name.as_str()]
            .into_iter()
            .find(|text| fits(text))
        {
            let _ = write!(
                svg,
                r#"<text x="{:.2}" y="{}">{}</text>"#,
                left + 5.0,
                top + ROW_HEIGHT - 8,
                format::escape_html(label)
            );
        }
        svg.push_str("</g>\n");
    }
}

fn draw_counters(svg: &mut String, timeline: &Timeline, layout: &Layout, x: impl Fn(u64) -> f64) {
    for lane in &layout.lanes {
        for (index, counter) in lane_counters(timeline, lane.lane).enumerate() {
            let top = lane.counters_top + index * COUNTER_HEIGHT;
            let most = counter_max(counter);
            let room = COUNTER_HEIGHT as f64;
            // A counter that falls has started anew.
            for run in counter
                .samples
                .chunk_by(|before, after| before.1 <= after.1)
            {
                svg.push_str(r#"<polyline class="counter" points=""#);
                for &(at_ns, value) in run {
                    let y = top as f64 + room - 4.0 - value as f64 / most as f64 * (room - 10.0);
                    let _ = write!(svg, "{:.1},{y:.1} ", x(at_ns));
                }
                svg.push_str("\"/>");
            }
            let _ = writeln!(
                svg,
                r#"<text class="track-text" x="{}" y="{}">{}, up to {}</text>"#,
                GUTTER + 6.0,
                top + 12,
                format::escape_html(&counter.name),
                format::bytes(most),
            );
        }
    }
}

fn counter_max(counter: &Counter) -> u64 {
    counter
        .samples
        .iter()
        .map(|&(_, value)| value)
        .max()
        .unwrap_or(0)
        .max(1)
}

/// Details as people read them; what only serves alignment is left out.
pub fn detail_rows(detail: &serde_json::Map<String, Value>) -> Vec<(String, String)> {
    detail
        .iter()
        .filter(|(key, _)| {
            !matches!(
                key.as_str(),
                "host_t_ns" | "host_ns" | "power_on" | "cycle" | "source"
            )
        })
        .map(|(key, value)| {
            let label = match key.strip_suffix("_bytes").or(key.strip_suffix("_ns")) {
                Some(stem) => stem.replace('_', " "),
                None => key.replace('_', " "),
            };
            (label, format::detail(key, value))
        })
        .collect()
}

fn detail_text(rows: &[(String, String)]) -> String {
    rows.iter()
        .map(|(key, value)| format!("; {key}: {value}"))
        .collect()
}

/// What the page's script needs; spans first, in the order of `timeline.spans`, then marks.
pub fn script_data(timeline: &Timeline) -> Value {
    let (palette, layout) = (Palette::of(timeline), Layout::of(timeline));
    let spans = timeline.spans.iter().map(|span| {
        json!({"b": span.begin_ns, "e": span.end_ns, "y": layout.span_top(span),
               "p": palette.colour(&span.phase), "ph": span.phase, "n": span.name,
               "c": span.cycle, "l": span.lane.as_str(), "o": u8::from(!span.complete), "m": 0,
               "x": detail_rows(&span.detail)})
    });
    let marks = timeline.marks.iter().map(|mark| {
        json!({"b": mark.at_ns, "e": mark.at_ns, "y": layout.mark_top(mark),
               "p": palette.colour(&mark.phase), "ph": mark.phase, "n": mark.name,
               "c": mark.cycle, "l": mark.lane.as_str(), "o": u8::from(mark.orphan_end), "m": 1,
               "x": detail_rows(&mark.detail)})
    });
    let counters = layout.lanes.iter().flat_map(|lane| {
        lane_counters(timeline, lane.lane)
            .enumerate()
            .map(|(index, counter)| {
                json!({"n": counter.name, "y": lane.counters_top + index * COUNTER_HEIGHT,
                   "h": COUNTER_HEIGHT, "max": format::bytes(counter_max(counter)),
                   "s": counter.samples})
            })
    });
    let lanes = layout
        .lanes
        .iter()
        .map(|lane| json!({"id": lane.lane.as_str(), "name": lane.lane.as_str(), "y": lane.top}));
    json!({
        "end": timeline.end_ns, "height": layout.height, "gutter": GUTTER, "axis": AXIS_HEIGHT,
        "row": ROW_HEIGHT, "outages": timeline.outages, "cycles": timeline.cycles(),
        "phases": palette.spanned_phases(), "lanes": lanes.collect::<Vec<_>>(),
        "counters": counters.collect::<Vec<_>>(), "items": spans.chain(marks).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
