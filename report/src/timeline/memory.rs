//! Where user pages are while a machine falls asleep and wakes: bytes on the CXL node over time.
//!
//! Read from the progress that `migrate` and `home` report: marks with the bytes moved so far,
//! and begins and ends with all of them.

use crate::timeline::{Mark, Span, Timeline};

/// (seconds, bytes), ascending in time.
pub type Progress = Vec<(f64, f64)>;

/// The way to CXL memory in one cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct WayDown {
    /// Bytes on the CXL node, over the time since the request to sleep.
    pub on_cxl: Progress,
    /// When steps began, in the same time.
    pub steps: Vec<(f64, &'static str)>,
}

/// The way home in one cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct WayHome {
    /// Bytes still on the CXL node, over the time since waking.
    pub on_cxl: Progress,
    /// Bytes that migrated back, in the same time.
    pub home: Progress,
    /// When the node was offline again.
    pub offline_s: Option<f64>,
}

/// The named span of a cycle.
fn span<'a>(timeline: &'a Timeline, cycle: u64, phase: &str, name: &str) -> Option<&'a Span> {
    let matches = |span: &&Span| span.cycle == cycle && span.phase == phase && span.name == name;
    timeline.spans.iter().find(matches)
}

fn mark<'a>(timeline: &'a Timeline, cycle: u64, phase: &str, name: &str) -> Option<&'a Mark> {
    let matches = |mark: &&Mark| mark.cycle == cycle && mark.phase == phase && mark.name == name;
    timeline.marks.iter().find(matches)
}

fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    (i128::from(to_ns) - i128::from(from_ns)) as f64 / 1e9
}

/// Bytes moved so far, by the marks within a span, and all of them at its end.
fn moved(timeline: &Timeline, span: &Span, from_ns: u64) -> Progress {
    let same = |mark: &&Mark| {
        mark.cycle == span.cycle && mark.phase == span.phase && mark.name == span.name
    };
    let bytes = |value: Option<&serde_json::Value>| value.and_then(serde_json::Value::as_u64);
    let mut points: Progress = vec![(seconds(from_ns, span.begin_ns), 0.0)];
    for mark in timeline.marks.iter().filter(same) {
        if let Some(moved) = bytes(mark.detail.get("bytes")) {
            points.push((seconds(from_ns, mark.at_ns), moved as f64));
        }
    }
    // An end without its begin is a mark; a begin without its end has no known end.
    if let (Some(all), true) = (bytes(span.detail.get("bytes")), span.complete) {
        points.push((seconds(from_ns, span.end_ns), all as f64));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// The way down of a cycle, where its migration was seen.
pub fn way_down(timeline: &Timeline, cycle: u64) -> Option<WayDown> {
    let find = |name| span(timeline, cycle, "suspend", name);
    let migrate = find("migrate")?;
    let request = find("suspend").or(find("preflight")).unwrap_or(migrate);
    let from_ns = request.begin_ns;
    let steps = [
        ("freeze", "freeze"),
        ("migrate", "migrate"),
        ("kernel", "kernel"),
        ("save-check", "firmware"),
    ];
    let begins = |(name, shown)| Some((seconds(from_ns, find(name)?.begin_ns), shown));
    let mut steps: Vec<(f64, &str)> = steps.into_iter().filter_map(begins).collect();
    // What firmware logs last; the host's own mark comes when the emulator has ended.
    let off = mark(timeline, cycle, "suspend", "power-off");
    let off = off.or_else(|| {
        let after = |mark: &&Mark| mark.name == "power-off" && mark.at_ns >= migrate.end_ns;
        timeline.marks.iter().find(after)
    });
    let off_s = off.map_or(f64::INFINITY, |mark| seconds(from_ns, mark.at_ns));
    // What a clock that could not be aligned puts elsewhere is no step of this sleep.
    steps.retain(|step| (0.0..=off_s).contains(&step.0));
    steps.extend(off.map(|_| (off_s, "power off")));
    let mut on_cxl = vec![(0.0, 0.0)];
    on_cxl.extend(moved(timeline, migrate, from_ns));
    if let (Some(&(end_s, _)), Some(&(_, all))) = (steps.last(), on_cxl.last()) {
        let end_s: f64 = end_s;
        on_cxl.push((end_s.max(on_cxl[on_cxl.len() - 1].0), all));
    }
    let has_moved = on_cxl.iter().any(|point| point.1 > 0.0);
    has_moved.then_some(WayDown { on_cxl, steps })
}

/// The way home of a cycle, where it was seen.
pub fn way_home(timeline: &Timeline, cycle: u64) -> Option<WayHome> {
    let span_home = span(timeline, cycle, "home", "home")?;
    let awake = mark(timeline, cycle, "resume", "awake").map(|mark| mark.at_ns);
    let thawed = || Some(span(timeline, cycle, "resume", "thaw")?.end_ns);
    let awake_ns = awake.or_else(thawed).unwrap_or(span_home.begin_ns);
    let mut home = vec![(0.0, 0.0)];
    home.extend(moved(timeline, span_home, awake_ns));
    home.retain(|point| point.0 >= 0.0);
    // The total, from any mark; otherwise what had migrated back in the end.
    let marks = timeline
        .marks
        .iter()
        .filter(|m| m.cycle == cycle && m.phase == "home");
    let told = marks
        .filter_map(|mark| mark.detail.get("total_bytes")?.as_u64())
        .max();
    let most = home.iter().map(|point| point.1).fold(0.0, f64::max);
    let total = told.map_or(most, |total| (total as f64).max(most));
    if total == 0.0 {
        return None;
    }
    let offline = span(timeline, cycle, "home", "node-offline");
    let is_off =
        |span: &&Span| span.complete && span.detail.get("blocks_left").is_some_and(|n| n == 0);
    Some(WayHome {
        on_cxl: home
            .iter()
            .map(|(at_s, bytes)| (*at_s, total - bytes))
            .collect(),
        home,
        offline_s: offline
            .filter(is_off)
            .map(|span| seconds(awake_ns, span.end_ns)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Clock, Event, Kind};

    const S: u64 = 1_000_000_000;

    fn event(t_s: u64, phase: &str, name: &str, kind: Kind) -> Event {
        Event::new(t_s * S, Clock::Guest, phase, name, kind)
    }

    #[test]
    fn the_way_home_falls_to_zero_from_waking_on() {
        let timeline = Timeline::from_events(&[
            event(9, "resume", "awake", Kind::Mark),
            event(10, "home", "home", Kind::Begin).with("bytes", 100),
            event(11, "home", "home", Kind::Mark)
                .with("bytes", 40)
                .with("total_bytes", 100),
            event(12, "home", "node-offline", Kind::Begin),
            event(13, "home", "node-offline", Kind::End).with("blocks_left", 0),
            event(13, "home", "home", Kind::End).with("bytes", 100),
        ]);
        let way = way_home(&timeline, 1).unwrap();
        assert_eq!(
            way.on_cxl,
            [(0.0, 100.0), (1.0, 100.0), (2.0, 60.0), (4.0, 0.0)]
        );
        assert_eq!(way.home.last(), Some(&(4.0, 100.0)));
        assert_eq!(way.offline_s, Some(4.0));
    }

    #[test]
    fn a_way_home_that_was_cut_off_keeps_what_is_left() {
        let timeline = Timeline::from_events(&[
            event(10, "home", "home", Kind::Begin).with("bytes", 100),
            event(11, "home", "home", Kind::Mark)
                .with("bytes", 40)
                .with("total_bytes", 100),
        ]);
        let way = way_home(&timeline, 1).unwrap();
        assert_eq!(way.on_cxl.last(), Some(&(1.0, 60.0)));
        assert_eq!(way.offline_s, None);
    }

    #[test]
    fn the_way_down_rises_while_pages_migrate_and_names_its_steps() {
        let timeline = Timeline::from_events(&[
            event(1, "suspend", "preflight", Kind::Begin),
            event(2, "suspend", "preflight", Kind::End),
            event(2, "suspend", "migrate", Kind::Begin),
            event(3, "suspend", "migrate", Kind::Mark).with("bytes", 10),
            event(5, "suspend", "migrate", Kind::End).with("bytes", 30),
            event(6, "suspend", "kernel", Kind::Begin),
            event(6, "suspend", "kernel", Kind::End),
        ]);
        let way = way_down(&timeline, 1).unwrap();
        assert_eq!(
            way.on_cxl,
            [
                (0.0, 0.0),
                (1.0, 0.0),
                (2.0, 10.0),
                (4.0, 30.0),
                (5.0, 30.0)
            ]
        );
        assert_eq!(way.steps, [(1.0, "migrate"), (5.0, "kernel")]);
        assert_eq!(way_down(&timeline, 2), None);
    }
}
