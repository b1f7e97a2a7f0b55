//! Events to what is drawn: spans, marks and counters in lanes on one axis that starts at 0.
//!
//! Pure functions of plain data. A begin without its end (power was cut) gives a span that ends
//! with the last sign of life of its lane, an end without its begin a mark; both are flagged.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

pub mod align;
mod counters;
mod layout;
pub mod memory;
pub mod trace_event;

use crate::event::{Event, Kind};
pub use align::Lane;
use align::{Placed, align};
use counters::counters;
use layout::lay_out;

/// Something that took time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The lane in which it is drawn.
    pub lane: Lane,
    /// The number of the cycle.
    pub cycle: u64,
    /// The phase of the whole machine.
    pub phase: String,
    /// The step.
    pub name: String,
    /// Begin on the common axis, ns.
    pub begin_ns: u64,
    /// End on the common axis, ns.
    pub end_ns: u64,
    /// False where the end was never seen.
    pub complete: bool,
    /// Details of the begin, overlaid by those of the end.
    pub detail: Map<String, Value>,
    /// Spans of one track nest properly; those that cross are on tracks of their own.
    pub track: usize,
    /// How many spans of its track it lies in.
    pub depth: usize,
}

impl Span {
    /// How long it took.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// The number of bytes that it handled, where its details say so.
    pub fn bytes(&self) -> Option<u64> {
        detail_bytes(&self.detail)
    }
}

/// Something that happened at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The lane in which it is drawn.
    pub lane: Lane,
    /// The number of the cycle.
    pub cycle: u64,
    /// The phase of the whole machine.
    pub phase: String,
    /// The step.
    pub name: String,
    /// Time on the common axis, ns.
    pub at_ns: u64,
    /// Further values.
    pub detail: Map<String, Value>,
    /// True for an end whose begin was never seen.
    pub orphan_end: bool,
}

/// A number of bytes that changes over time, for instance memory migrated back so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// The lane in which it is drawn.
    pub lane: Lane,
    /// The step.
    pub name: String,
    /// (time, value), ascending in time.
    pub samples: Vec<(u64, u64)>,
}

/// All that is drawn of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Ascending in begin time, enclosing before enclosed.
    pub spans: Vec<Span>,
    /// Ascending in time.
    pub marks: Vec<Mark>,
    /// Values over time.
    pub counters: Vec<Counter>,
    /// Intervals without power.
    pub outages: Vec<(u64, u64)>,
    /// Where the axis ends.
    pub end_ns: u64,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// `bytes`, or 4 KiB for each of `pages`, or the only detail whose name ends in `_bytes`.
fn detail_bytes(detail: &Map<String, Value>) -> Option<u64> {
    if let Some(bytes) = detail.get("bytes").and_then(Value::as_u64) {
        return Some(bytes);
    }
    if let Some(pages) = detail.get("pages").and_then(Value::as_u64) {
        return pages.checked_mul(4096);
    }
    let mut named = detail.iter().filter(|(key, _)| key.ends_with("_bytes"));
    match (named.next(), named.next()) {
        (Some((_, value)), None) => value.as_u64(),
        _ => None,
    }
}

type PairKey<'a> = (Lane, usize, u64, &'a str, &'a str);

impl Timeline {
    /// Aligns the clocks, pairs begins with ends, and lays out what overlaps.
    pub fn from_events(events: &[Event]) -> Timeline {
        let alignment = align(events);
        let Some(first) = alignment.events.first() else {
            return Timeline::default();
        };
        let origin_ns = first.at_ns;
        // Differences of 64-bit times that do not fit are shown at the far end.
        let axis = |at_ns: i128| u64::try_from(at_ns - origin_ns).unwrap_or(u64::MAX);

        let mut last_sign: HashMap<(Lane, usize), u64> = HashMap::new();
        for place in &alignment.events {
            last_sign.insert((place.lane, place.session), axis(place.at_ns));
        }

        let mut timeline = Timeline {
            outages: alignment
                .outages
                .iter()
                .map(|&(b, e)| (axis(b), axis(e)))
                .collect(),
            end_ns: alignment.events.last().map_or(0, |place| axis(place.at_ns)),
            notes: alignment.notes.clone(),
            counters: counters(&alignment.events, axis),
            ..Timeline::default()
        };
        let mut open: BTreeMap<PairKey, Vec<&Placed>> = BTreeMap::new();
        for place in &alignment.events {
            let event = place.event;
            // Firmware does not live on across a power cycle; the rest may.
            let session = if place.lane == Lane::Firmware {
                place.session
            } else {
                0
            };
            let key = (
                place.lane,
                session,
                place.cycle,
                place.phase,
                event.name.as_str(),
            );
            match event.kind {
                Kind::Begin => open.entry(key).or_default().push(place),
                Kind::End => match open.get_mut(&key).and_then(Vec::pop) {
                    Some(begin) => {
                        let mut span = span_from(begin, axis);
                        span.end_ns = axis(place.at_ns);
                        span.complete = true;
                        span.detail.extend(event.detail.clone());
                        timeline.spans.push(span);
                    }
                    None => timeline.marks.push(mark_from(place, axis)),
                },
                Kind::Mark => timeline.marks.push(mark_from(place, axis)),
            }
        }
        for begin in open.into_values().flatten() {
            let mut span = span_from(begin, axis);
            if let Some(end_ns) = handed_to_firmware(&alignment.events, begin) {
                span.end_ns = axis(end_ns);
                span.complete = true;
            } else {
                let sign_ns = last_sign.get(&(begin.lane, begin.session)).copied();
                span.end_ns = sign_ns.unwrap_or_default().max(span.begin_ns);
            }
            timeline.spans.push(span);
        }

        timeline.marks.sort_by_key(|mark| mark.at_ns);
        timeline
            .spans
            .sort_by(|a, b| (a.begin_ns, b.end_ns, a.lane).cmp(&(b.begin_ns, a.end_ns, b.lane)));
        lay_out(&mut timeline.spans);
        timeline
    }

    /// The cycles that have anything to show, ascending.
    pub fn cycles(&self) -> Vec<u64> {
        let mut cycles: Vec<u64> = self
            .spans
            .iter()
            .map(|span| span.cycle)
            .chain(self.marks.iter().map(|mark| mark.cycle))
            .collect();
        cycles.sort_unstable();
        cycles.dedup();
        cycles
    }

    /// Rows that a lane needs: for each track, its depth.
    pub fn track_depths(&self, lane: Lane) -> Vec<usize> {
        let mut depths: Vec<usize> = Vec::new();
        for span in self.spans.iter().filter(|span| span.lane == lane) {
            if depths.len() <= span.track {
                depths.resize(span.track + 1, 1);
            }
            depths[span.track] = depths[span.track].max(span.depth + 1);
        }
        depths
    }
}

/// Kernel and firmware read the same counter, each with its own idea of its frequency.
const CLOCK_DISAGREEMENT_NS: i128 = 10_000_000;

/// When a kernel span without an end is over: the kernel's part of going to sleep ends when
/// firmware takes the CPU, and the kernel cannot say so.
fn handed_to_firmware(events: &[Placed], begin: &Placed) -> Option<i128> {
    if begin.lane != Lane::Kernel {
        return None;
    }
    let from = events.partition_point(|place| place.at_ns < begin.at_ns);
    let same = |place: &&Placed| place.session == begin.session && place.phase == begin.phase;
    let taken = events[from..]
        .iter()
        .filter(same)
        .find(|place| place.lane == Lane::Firmware)?;
    let until_ns = taken.at_ns + CLOCK_DISAGREEMENT_NS;
    // What the kernel did last may seem to end after the takeover.
    events[from..]
        .iter()
        .take_while(|place| place.at_ns <= until_ns)
        .filter(same)
        .filter(|place| place.lane == Lane::Kernel || place.at_ns == taken.at_ns)
        .map(|place| place.at_ns)
        .max()
}

fn span_from(begin: &Placed, axis: impl Fn(i128) -> u64) -> Span {
    Span {
        lane: begin.lane,
        cycle: begin.cycle,
        phase: begin.phase.to_owned(),
        name: begin.event.name.clone(),
        begin_ns: axis(begin.at_ns),
        end_ns: axis(begin.at_ns),
        complete: false,
        detail: begin.event.detail.clone(),
        track: 0,
        depth: 0,
    }
}

fn mark_from(place: &Placed, axis: impl Fn(i128) -> u64) -> Mark {
    Mark {
        lane: place.lane,
        cycle: place.cycle,
        phase: place.phase.to_owned(),
        name: place.event.name.clone(),
        at_ns: axis(place.at_ns),
        detail: place.event.detail.clone(),
        orphan_end: place.event.kind == Kind::End,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Clock;
    use proptest::prelude::*;

    fn event(t_ns: u64, name: &str, kind: Kind) -> Event {
        Event::new(t_ns, Clock::Host, "suspend", name, kind)
    }

    #[test]
    fn a_begin_and_its_end_make_one_span_with_the_details_of_both() {
        let timeline = Timeline::from_events(&[
            event(10, "migrate", Kind::Begin)
                .with("node", 1)
                .with("bytes", 0),
            event(30, "migrate", Kind::End).with("bytes", 4096),
        ]);
        let span = &timeline.spans[0];
        assert_eq!((span.begin_ns, span.end_ns, span.complete), (0, 20, true));
        assert_eq!(
            (span.bytes(), span.detail["node"].as_u64()),
            (Some(4096), Some(1))
        );
        assert_eq!(timeline.end_ns, 20);
    }

    #[test]
    fn a_missing_end_gives_a_span_until_the_last_sign_of_life() {
        let timeline = Timeline::from_events(&[
            event(10, "copy", Kind::Begin),
            event(90, "alive", Kind::Mark),
        ]);
        let span = &timeline.spans[0];
        assert_eq!((span.begin_ns, span.end_ns, span.complete), (0, 80, false));
    }

    #[test]
    fn a_missing_begin_gives_a_flagged_mark() {
        let timeline = Timeline::from_events(&[event(10, "copy", Kind::End)]);
        assert!(timeline.spans.is_empty());
        assert!(timeline.marks[0].orphan_end);
    }

    #[test]
    fn lines_out_of_order_are_paired_by_time() {
        let timeline =
            Timeline::from_events(&[event(30, "copy", Kind::End), event(10, "copy", Kind::Begin)]);
        assert_eq!(timeline.spans.len(), 1);
        assert!(timeline.spans[0].complete);
    }

    #[test]
    fn a_firmware_span_never_reaches_across_a_power_cycle() {
        let firmware =
            |t_ns, kind| Event::new(t_ns, Clock::Firmware, "resume", "restore-copy", kind);
        let power_on = |t_ns| Event::new(t_ns, Clock::Host, "run", "power-on", Kind::Mark);
        let timeline = Timeline::from_events(&[
            power_on(1_000),
            firmware(10, Kind::Begin),
            power_on(9_000),
            firmware(20, Kind::End),
        ]);
        assert!(!timeline.spans[0].complete);
        assert_eq!(timeline.spans[0].end_ns, 10);
        assert!(timeline.marks.iter().any(|mark| mark.orphan_end));
    }

    #[test]
    fn a_guest_span_may_reach_across_a_power_cycle() {
        let guest = |t_ns, host_ns: u64, kind| {
            Event::new(t_ns, Clock::Guest, "sleep", "enter", kind).with("host_t_ns", host_ns)
        };
        let power_on = |t_ns| Event::new(t_ns, Clock::Host, "run", "power-on", Kind::Mark);
        let timeline = Timeline::from_events(&[
            power_on(0),
            guest(50, 60, Kind::Begin),
            power_on(1_000),
            guest(70, 1_500, Kind::End),
        ]);
        assert!(timeline.spans[0].complete);
        assert_eq!(timeline.spans[0].duration_ns(), 1_440);
    }

    #[test]
    fn a_kernel_span_ends_where_firmware_takes_over() {
        let event = |t_ns, name: &str, source: &str| {
            Event::new(t_ns, Clock::Firmware, "suspend", name, Kind::Begin).with("source", source)
        };
        let timeline = Timeline::from_events(&[
            Event::new(0, Clock::Host, "run", "power-on", Kind::Mark),
            event(100, "kernel", "kernel"),
            event(400, "save-check", "firmware"),
        ]);
        let span = timeline
            .spans
            .iter()
            .find(|span| span.lane == Lane::Kernel)
            .unwrap();
        assert_eq!(
            (span.begin_ns, span.end_ns, span.complete),
            (100, 400, true)
        );
    }

    #[test]
    fn spans_that_nest_share_a_track_and_spans_that_cross_do_not() {
        let timeline = Timeline::from_events(&[
            event(0, "outer", Kind::Begin),
            event(10, "inner", Kind::Begin),
            event(20, "inner", Kind::End),
            event(50, "crossing", Kind::Begin),
            event(60, "outer", Kind::End),
            event(70, "crossing", Kind::End),
        ]);
        let place = |name: &str| {
            let span = timeline
                .spans
                .iter()
                .find(|span| span.name == name)
                .unwrap();
            (span.track, span.depth)
        };
        assert_eq!(
            (place("outer"), place("inner"), place("crossing")),
            ((0, 0), (0, 1), (1, 0))
        );
        assert_eq!(timeline.track_depths(Lane::Host), [2, 1]);
    }

    #[test]
    fn progress_marks_become_a_counter() {
        let events: Vec<Event> = (0..5u64)
            .map(|i| event(i * 10, "progress", Kind::Mark).with("home_bytes", i * 100))
            .collect();
        let counters = Timeline::from_events(&events).counters;
        assert_eq!(counters.len(), 1);
        assert_eq!(counters[0].samples[4], (40, 400));
    }

    #[test]
    fn ten_thousand_spans_that_all_overlap_are_laid_out_within_bounds() {
        let begins = (0..10_000u64).map(|i| event(i, &format!("n{i}"), Kind::Begin));
        let ends = (0..10_000u64).map(|i| event(20_000 + i, &format!("n{i}"), Kind::End));
        let timeline = Timeline::from_events(&begins.chain(ends).collect::<Vec<_>>());
        assert_eq!(timeline.spans.len(), 10_000);
        assert!(
            timeline
                .spans
                .iter()
                .all(|s| s.track < layout::MAX_TRACKS && s.depth < layout::MAX_DEPTH)
        );
    }

    proptest! {
        #[test]
        fn every_event_is_drawn_once(
            list in proptest::collection::vec((any::<u64>(), 0..3u8, 0..4u8, 0..3u8), 0..80)
        ) {
            let events: Vec<Event> = list.iter().map(|&(t_ns, clock, name, kind)| {
                let clock = [Clock::Host, Clock::Guest, Clock::Firmware][usize::from(clock)];
                let name = ["power-on", "power-off", "a", "b"][usize::from(name)];
                let kind = [Kind::Begin, Kind::End, Kind::Mark][usize::from(kind)];
                Event::new(t_ns, clock, "p", name, kind)
            }).collect();
            let timeline = Timeline::from_events(&events);
            let drawn: usize = timeline.spans.iter().map(|s| if s.complete { 2 } else { 1 }).sum();
            prop_assert_eq!(drawn + timeline.marks.len(), events.len());
            prop_assert!(timeline.spans.iter().all(|s| s.begin_ns <= s.end_ns));
            prop_assert!(timeline.spans.iter().all(|s| s.end_ns <= timeline.end_ns));
        }
    }
}
