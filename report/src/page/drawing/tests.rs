//! The timeline as it is drawn.

use super::*;
use crate::event::{Clock, Event, Kind};

#[test]
fn ticks_are_round_and_few_at_any_length() {
    for end_ns in [0, 1, 999, 12_345_678_901, u64::MAX / 3, u64::MAX] {
        let step_ns = tick_step_ns(end_ns, 10);
        assert!(end_ns / step_ns <= 10, "{end_ns}");
    }
    assert_eq!(tick_step_ns(12_000_000_000, 10), 2_000_000_000);
}

#[test]
fn the_three_phases_keep_their_colours_in_every_run() {
    let event = |phase: &str| Event::new(0, Clock::Host, phase, "n", Kind::Mark);
    let begin = |phase: &str| Event::new(0, Clock::Host, phase, "n", Kind::Begin);
    let timeline = Timeline::from_events(&[
        begin("boot"),
        event("home"),
        event("suspend"),
        begin("cycle"),
    ]);
    let palette = Palette::of(&timeline);
    assert_eq!((palette.colour("suspend"), palette.colour("home")), (0, 2));
    assert_eq!((palette.colour("boot"), palette.colour("cycle")), (3, 4));
    assert_eq!(palette.spanned_phases(), ["boot"]);
}

#[test]
fn an_endless_run_is_drawn_with_few_shapes() {
    let events: Vec<Event> = (0..10_000u64)
        .flat_map(|i| {
            let event = |t, kind| Event::new(t, Clock::Host, "p", format!("n{i}"), kind);
            [event(i * 10, Kind::Begin), event(i * 10 + 5, Kind::End)]
        })
        .collect();
    let svg = static_svg(&Timeline::from_events(&events));
    assert_eq!(svg.matches("<g class=\"span").count(), MAX_STATIC_SHAPES);
}
