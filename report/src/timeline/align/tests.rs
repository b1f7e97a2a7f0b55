//! Clocks of firmware and guest on that of the host.

use super::*;
use proptest::prelude::*;

fn host(t_ns: u64, name: &str) -> Event {
    Event::new(t_ns, Clock::Host, "run", name, Kind::Mark)
}

fn guest(t_ns: u64, host_t_ns: u64, phase: &str) -> Event {
    Event::new(t_ns, Clock::Guest, phase, "step", Kind::Mark).with("host_t_ns", host_t_ns)
}

fn firmware(t_ns: u64, phase: &str) -> Event {
    Event::new(t_ns, Clock::Firmware, phase, "copy", Kind::Mark)
}

fn times(events: &[Event]) -> Vec<i128> {
    align(events)
        .events
        .iter()
        .map(|place| place.at_ns)
        .collect()
}

#[test]
fn firmware_time_counts_from_its_own_power_on() {
    let events = [
        host(1_000, "power-on"),
        firmware(50, "suspend"),
        host(2_000, "power-off"),
        host(5_000, "power-on"),
        firmware(50, "resume"),
    ];
    let alignment = align(&events);
    let firmware_times: Vec<_> = alignment
        .events
        .iter()
        .filter(|place| place.lane == Lane::Firmware)
        .map(|place| (place.session, place.at_ns))
        .collect();
    assert_eq!(firmware_times, [(1, 1_050), (2, 5_050)]);
    assert_eq!(alignment.outages, [(2_000, 5_000)]);
    assert!(alignment.notes.is_empty());
}

#[test]
fn the_fastest_delivery_decides_a_guest_offset() {
    // Offset 900; the first one was delivered 70 late.
    assert_eq!(
        times(&[guest(100, 1_070, "suspend"), guest(200, 1_100, "suspend")]),
        [1_000, 1_100]
    );
}

#[test]
fn a_guest_clock_that_stood_still_while_asleep_is_aligned_anew_after_power_on() {
    let events = [
        host(0, "power-on"),
        guest(100, 200, "suspend"),
        host(300, "power-off"),
        host(9_000, "power-on"),
        guest(110, 9_500, "resume"),
    ];
    assert_eq!(times(&events), [0, 200, 300, 9_000, 9_500]);
}

#[test]
fn phases_of_one_clock_keep_their_distance_whatever_delivery_took() {
    let events = [guest(1_000, 2_000, "resume"), guest(1_500, 9_000, "home")];
    assert_eq!(times(&events), [2_000, 2_500]);
}

#[test]
fn firmware_is_never_before_its_power_on() {
    let events = [
        host(1_000, "power-on"),
        // Claims to be 800 after reset, yet was seen 500 after power-on.
        firmware(800, "resume").with("host_t_ns", 1_500),
        firmware(0, "resume"),
    ];
    assert_eq!(times(&events), [1_000, 1_000, 1_800]);
}

#[test]
fn a_firmware_clock_with_a_wrong_rate_is_put_right_by_stamps_of_its_phase() {
    let events = [
        host(1_000, "power-on"),
        firmware(10, "resume").with("host_t_ns", 1_010),
        // 100 s later the counter is 2 s behind.
        firmware(98_000_000_000, "suspend").with("host_t_ns", 100_000_001_000u64),
    ];
    assert_eq!(times(&events), [1_000, 1_010, 100_000_001_000]);
}

#[test]
fn what_the_kernel_could_say_only_after_waking_is_placed_before_the_sleep() {
    const S: u64 = 1_000_000_000;
    let kernel = |t_ns, host_t_ns: u64, phase| {
        firmware(t_ns, phase)
            .with("source", "kernel")
            .with("host_t_ns", host_t_ns)
    };
    let events = [
        host(0, "power-on"),
        kernel(9 * S, 9 * S, "suspend"),
        host(11 * S, "power-off"),
        host(20 * S, "power-on"),
        // The buffered line, then one of now.
        kernel(10 * S, 23 * S, "suspend"),
        kernel(3 * S, 23 * S, "resume"),
    ];
    let expected = [0, 9, 10, 11, 20, 23].map(|s| i128::from(s * S));
    assert_eq!(times(&events), expected);
    assert_eq!(align(&events).events[2].session, 1);
}

#[test]
fn events_without_any_anchor_stand_where_they_were_recorded() {
    let kernel =
        Event::new(7_000, Clock::Guest, "suspend", "prepare", Kind::Mark).with("source", "kernel");
    let events = [host(100, "power-on"), host(500, "start"), kernel];
    let alignment = align(&events);
    assert_eq!(alignment.events[2].at_ns, 500);
    assert_eq!(alignment.notes.len(), 1);
}

#[test]
fn a_machine_that_recorded_itself_keeps_its_own_clock() {
    let event = |t_ns| Event::new(t_ns, Clock::Guest, "suspend", "freeze", Kind::Mark);
    let events = [event(70), event(90)];
    assert_eq!(times(&events), [70, 90]);
    assert!(align(&events).notes.is_empty());
}

#[test]
fn a_cycle_lasts_until_the_next_one_is_named() {
    let begin = Event::new(4, Clock::Host, "cycle", "cycle 7", Kind::Begin);
    let named = host(2, "b").with("cycle", 2);
    let events = [host(1, "a"), named, host(3, "c"), begin];
    let cycles: Vec<_> = align(&events)
        .events
        .iter()
        .map(|place| place.cycle)
        .collect();
    assert_eq!(cycles, [1, 2, 2, 7]);
}

#[test]
fn a_power_on_that_restores_nothing_is_a_boot() {
    let check = |t_ns| {
        Event::new(
            t_ns,
            Clock::Firmware,
            "resume",
            "restore-check",
            Kind::Begin,
        )
    };
    let copy = Event::new(9, Clock::Firmware, "resume", "restore-copy", Kind::Begin);
    let events = [
        host(0, "power-on"),
        check(5),
        host(100, "power-on"),
        check(5),
        copy,
    ];
    let phases: Vec<_> = align(&events)
        .events
        .iter()
        .map(|place| place.phase)
        .collect();
    assert_eq!(phases, ["run", "boot", "run", "resume", "resume"]);
}

#[test]
fn nothing_gives_nothing() {
    assert!(align(&[]).events.is_empty());
}

proptest! {
    #[test]
    fn any_times_are_placed_without_loss_and_in_order(
        list in proptest::collection::vec(
            (any::<u64>(), 0..3u8, 0..3u8, proptest::option::of(any::<u64>())), 0..60)
    ) {
        let events: Vec<Event> = list.into_iter().map(|(t_ns, clock, name, stamp)| {
            let clock = [Clock::Host, Clock::Guest, Clock::Firmware][usize::from(clock)];
            let name = ["power-on", "power-off", "copy"][usize::from(name)];
            let event = Event::new(t_ns, clock, "p", name, Kind::Mark);
            match stamp {
                Some(stamp) => event.with("host_t_ns", stamp),
                None => event,
            }
        }).collect();
        let alignment = align(&events);
        prop_assert_eq!(alignment.events.len(), events.len());
        prop_assert!(alignment.events.windows(2).all(|w| w[0].at_ns <= w[1].at_ns));
        prop_assert!(alignment.outages.iter().all(|(begin, end)| begin <= end));
    }
}
