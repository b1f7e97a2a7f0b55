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
mod tests;
