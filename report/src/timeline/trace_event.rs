//! A timeline in the Trace Event Format, which Perfetto and chrome://tracing open.
//!
//! Each lane is a process, each of its tracks a thread: spans of one thread nest properly, as
//! the format asks. Spans are `X` events, marks `i`, counters `C`, names `M`; times are
//! microseconds from the start of the axis. A span whose detail `after` names others began after
//! these had ended: a flow (`s`, `f`) leads from the end of each to its begin.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::timeline::align::Lane;
use crate::timeline::{Span, Timeline};

fn process_id(lane: Lane) -> u64 {
    1 + Lane::ALL
        .iter()
        .position(|&other| other == lane)
        .unwrap_or_default() as u64
}

fn process_name(lane: Lane) -> &'static str {
    match lane {
        Lane::Host => "host",
        Lane::Guest => "guest user space",
        Lane::Kernel => "guest kernel",
        Lane::Firmware => "firmware",
    }
}

fn microseconds(ns: u64) -> Value {
    Value::from(ns as f64 / 1e3)
}

fn arguments(detail: &Map<String, Value>, cycle: u64) -> Map<String, Value> {
    let mut arguments = detail.clone();
    arguments.insert("cycle".to_owned(), Value::from(cycle));
    arguments
}

/// Flows along dependencies. A name may occur again and again: the last span of that name which had
/// ended when the other one began is the one that it waited for.
fn flows(timeline: &Timeline) -> Vec<Value> {
    let mut of_name: HashMap<(Lane, u64, &str), Vec<&Span>> = HashMap::new();
    for span in &timeline.spans {
        let key = (span.lane, span.cycle, span.name.as_str());
        of_name.entry(key).or_default().push(span);
    }
    let mut events = Vec::new();
    for span in &timeline.spans {
        let names = span.detail.get("after").and_then(Value::as_array);
        for name in names.into_iter().flatten().filter_map(Value::as_str) {
            let spans = of_name.get(&(span.lane, span.cycle, name));
            let ended = spans.into_iter().flatten();
            let before = ended
                .filter(|other| other.complete && other.end_ns <= span.begin_ns)
                .max_by_key(|other| other.end_ns);
            let Some(before) = before else { continue };
            let id = events.len() as u64 / 2 + 1;
            let end = |ph: &str, at: &Span, ts_ns: u64| {
                json!({
                    "ph": ph, "bp": "e", "id": id, "pid": process_id(at.lane),
                    "tid": at.track + 1, "ts": microseconds(ts_ns), "name": "waits for",
                    "cat": "dependency",
                })
            };
            // A flow binds to the slice that encloses its time; the end of one is outside.
            let last_ns = before.end_ns.saturating_sub(1).max(before.begin_ns);
            events.push(end("s", before, last_ns));
            events.push(end("f", span, span.begin_ns));
        }
    }
    events
}

/// Every element of `traceEvents`, in no promised order.
fn trace_events(timeline: &Timeline) -> Vec<Value> {
    let mut events = Vec::new();
    for lane in Lane::ALL {
        let tracks = timeline.track_depths(lane).len();
        let is_used = tracks > 0
            || timeline.marks.iter().any(|mark| mark.lane == lane)
            || timeline.counters.iter().any(|counter| counter.lane == lane);
        if !is_used {
            continue;
        }
        let pid = process_id(lane);
        events.push(
            json!({"ph": "M", "pid": pid, "tid": 0, "name": "process_name",
                           "args": {"name": process_name(lane)}}),
        );
        events.push(
            json!({"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index",
                           "args": {"sort_index": pid}}),
        );
        for track in 0..tracks.max(1) {
            let name = match track {
                0 => lane.as_str().to_owned(),
                _ => format!("{} {}", lane.as_str(), track + 1),
            };
            events.push(
                json!({"ph": "M", "pid": pid, "tid": track + 1, "name": "thread_name",
                               "args": {"name": name}}),
            );
        }
    }
    for span in &timeline.spans {
        let mut args = arguments(&span.detail, span.cycle);
        if !span.complete {
            args.insert("incomplete".to_owned(), Value::from(true));
        }
        events.push(json!({
            "ph": "X", "pid": process_id(span.lane), "tid": span.track + 1,
            "ts": microseconds(span.begin_ns), "dur": microseconds(span.duration_ns()),
            "name": span.name, "cat": span.phase, "args": args,
        }));
    }
    events.extend(flows(timeline));
    for mark in &timeline.marks {
        events.push(json!({
            "ph": "i", "s": "p", "pid": process_id(mark.lane), "tid": 1,
            "ts": microseconds(mark.at_ns), "name": mark.name, "cat": mark.phase,
            "args": arguments(&mark.detail, mark.cycle),
        }));
    }
    for counter in &timeline.counters {
        for &(at_ns, value) in &counter.samples {
            events.push(json!({
                "ph": "C", "pid": process_id(counter.lane), "tid": 0,
                "ts": microseconds(at_ns), "name": counter.name, "args": {"bytes": value},
            }));
        }
    }
    for &(begin_ns, end_ns) in &timeline.outages {
        events.push(json!({
            "ph": "X", "pid": 100, "tid": 1, "ts": microseconds(begin_ns),
            "dur": microseconds(end_ns - begin_ns), "name": "no power", "cat": "power",
            "args": {},
        }));
    }
    if !timeline.outages.is_empty() {
        events.push(
            json!({"ph": "M", "pid": 100, "tid": 0, "name": "process_name",
                           "args": {"name": "power"}}),
        );
    }
    events
}

/// Writes the whole trace as one JSON object, an event a line.
///
/// # Errors
/// What the output reports.
pub fn write_trace(timeline: &Timeline, mut output: impl Write) -> io::Result<()> {
    write!(output, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    for (index, event) in trace_events(timeline).iter().enumerate() {
        let separator = if index == 0 { "\n" } else { ",\n" };
        write!(output, "{separator}{event}")?;
    }
    writeln!(output, "\n]}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Clock, Event, Kind};

    fn trace(events: &[Event]) -> Vec<Value> {
        let mut text = Vec::new();
        write_trace(&Timeline::from_events(events), &mut text).unwrap();
        let value: Value = serde_json::from_slice(&text).unwrap();
        value["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn no_events_give_a_trace_that_opens() {
        assert!(trace(&[]).is_empty());
    }

    #[test]
    fn spans_marks_and_names_have_the_fields_that_viewers_need() {
        let event = |t_ns, name: &str, kind| Event::new(t_ns, Clock::Guest, "suspend", name, kind);
        let events = trace(&[
            event(1_000, "freeze", Kind::Begin).with("cgroups", 3),
            event(3_500, "freeze", Kind::End),
            event(4_000, "entered", Kind::Mark),
        ]);
        let of = |ph: &str| events.iter().find(|event| event["ph"] == ph).unwrap();
        let span = of("X");
        assert_eq!(
            (span["ts"].as_f64(), span["dur"].as_f64()),
            (Some(0.0), Some(2.5))
        );
        assert_eq!(
            (&span["name"], &span["cat"]),
            (&json!("freeze"), &json!("suspend"))
        );
        assert_eq!(span["args"], json!({"cgroups": 3, "cycle": 1}));
        assert_eq!(of("i")["ts"], 3.0);
        assert_eq!(of("M")["args"]["name"], "guest user space");
        for event in &events {
            assert!(event["pid"].is_u64() && event["tid"].is_u64() && event["name"].is_string());
        }
    }

    #[test]
    fn a_span_that_names_what_came_before_has_a_flow_from_its_last_occurrence() {
        let event = |t_ns, name: &str, kind| Event::new(t_ns, Clock::Guest, "suspend", name, kind);
        let events = trace(&[
            event(0, "disk", Kind::Begin),
            event(1_000, "disk", Kind::End),
            event(2_000, "disk", Kind::Begin),
            event(3_000, "disk", Kind::End),
            event(4_000, "port", Kind::Begin).with("after", json!(["disk", "nothing"])),
            event(5_000, "port", Kind::End),
        ]);
        let of =
            |ph: &str| -> Vec<&Value> { events.iter().filter(|one| one["ph"] == ph).collect() };
        let (from, to) = (of("s"), of("f"));
        assert_eq!((from.len(), to.len()), (1, 1));
        assert_eq!(
            (from[0]["ts"].as_f64(), to[0]["ts"].as_f64()),
            (Some(2.999), Some(4.0))
        );
        assert_eq!(from[0]["id"], to[0]["id"]);
        for event in &events {
            assert!(event["pid"].is_u64() && event["tid"].is_u64() && event["name"].is_string());
        }
    }

    #[test]
    fn spans_of_one_thread_nest() {
        let events: Vec<Event> = (0..40u64)
            .flat_map(|i| {
                let name = format!("n{i}");
                let event = |t_ns, kind| Event::new(t_ns, Clock::Host, "p", name.clone(), kind);
                [
                    event(i * 7 % 31, Kind::Begin),
                    event(40 + i * 5 % 23, Kind::End),
                ]
            })
            .collect();
        // Up to the cap of tracks; beyond it, spans share the last one.
        let spans = Timeline::from_events(&events[..12]).spans;
        for a in &spans {
            for b in spans.iter().filter(|b| b.track == a.track) {
                let apart = a.end_ns <= b.begin_ns || b.end_ns <= a.begin_ns;
                let nested = (a.begin_ns <= b.begin_ns && b.end_ns <= a.end_ns)
                    || (b.begin_ns <= a.begin_ns && a.end_ns <= b.end_ns);
                assert!(apart || nested, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_hostile_name_stays_inside_its_string() {
        let hostile = "\"},{\u{0}\n</script>";
        let events = trace(&[Event::new(0, Clock::Host, hostile, hostile, Kind::Mark)]);
        assert!(events.iter().any(|event| event["name"] == hostile));
    }
}
