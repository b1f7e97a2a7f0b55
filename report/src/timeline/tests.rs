//! Timelines of events, also of events that contradict each other.

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
    let firmware = |t_ns, kind| Event::new(t_ns, Clock::Firmware, "resume", "restore-copy", kind);
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
