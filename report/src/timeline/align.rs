//! Puts events of three clocks on one axis, the host's.
//!
//! ```text
//! host      ──●power-on────────────────────●power-off ····· ●power-on ───────────▶
//! reset       0────▶t_ns (firmware, kernel)                 0────▶t_ns
//! guest            └─ each event that the host saw carries detail.host_t_ns ─┘
//! ```
//!
//! A power session lasts from one `power-on` to the next. An event reaches the host after it
//! happened, never before, so the smallest `host_t_ns - t_ns` of a session is the closest to the
//! true offset. A phase gets an offset of its own only where it disagrees by more than delivery
//! explains: so a clock which runs fast or slow (an emulated time stamp counter may) is put right.
//!
//! What the kernel says while its consoles are suspended reaches the host after waking, one
//! session late. Its time shows this: it counts more from reset than has passed since power-on.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Clock, Event, HOST_STAMPS, Kind};

/// Where an event is drawn; the kernel shares the firmware's clock but not its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// The machine that runs the lab.
    Host,
    /// User space of the emulated machine.
    Guest,
    /// The kernel of the emulated machine.
    Kernel,
    /// Its firmware.
    Firmware,
}

impl Lane {
    /// All lanes, top to bottom.
    pub const ALL: [Lane; 4] = [Lane::Host, Lane::Guest, Lane::Kernel, Lane::Firmware];

    /// The lane's stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Lane::Host => "host",
            Lane::Guest => "guest",
            Lane::Kernel => "kernel",
            Lane::Firmware => "firmware",
        }
    }

    fn of(event: &Event) -> Lane {
        let from_kernel = || {
            event
                .detail
                .get("source")
                .is_some_and(|source| source == "kernel")
        };
        match event.clock {
            Clock::Host => Lane::Host,
            _ if from_kernel() => Lane::Kernel,
            Clock::Guest => Lane::Guest,
            Clock::Firmware => Lane::Firmware,
        }
    }
}

/// An event with its place on the common axis.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The event.
    pub event: &'a Event,
    /// The lane in which it is drawn.
    pub lane: Lane,
    /// The event's own phase, except that firmware's `resume` of a power-on that restored nothing
    /// is `boot`: at its begin firmware cannot know.
    pub phase: &'a str,
    /// Time on the host's clock; wide enough that no input overflows it.
    pub at_ns: i128,
    /// How many power-ons came before, 0 before the first.
    pub session: usize,
    /// The cycle that it names, or the last one named before it, or 1.
    pub cycle: u64,
}

/// What alignment found.
#[derive(Debug, Default)]
pub struct Alignment<'a> {
    /// Sorted by time; events of the same time in the order of the input.
    pub events: Vec<Placed<'a>>,
    /// Intervals without power, on the host's clock.
    pub outages: Vec<(i128, i128)>,
    /// What a reader should know, for instance clocks that had no anchor.
    pub notes: Vec<String>,
}

/// Offsets within a session that differ by less are delivery times, not another clock rate.
const DELIVERY_NS: i128 = 100_000_000;

type SegmentKey<'a> = (Clock, usize, &'a str);

/// The cycle that an event names: in `detail.cycle`, or as the begin of the span `cycle N`.
fn named_cycle(event: &Event) -> Option<u64> {
    let in_detail = || event.detail.get("cycle")?.as_u64();
    let begins_one = event.phase == "cycle" && event.kind == Kind::Begin;
    let in_name = || event.name.strip_prefix("cycle ")?.parse().ok();
    in_detail().or_else(|| begins_one.then(in_name).flatten())
}

/// Whether an event of the reset clock was seen too soon after power-on to be of that session;
/// five in a hundred for a clock that runs fast, and what a process takes to start.
fn is_of_earlier_session(t_ns: u64, since_power_on_ns: u64) -> bool {
    i128::from(t_ns) > i128::from(since_power_on_ns) * 105 / 100 + DELIVERY_NS
}

/// Smallest delivery offset and smallest time of a segment's events.
#[derive(Clone, Copy)]
struct Segment {
    first_t_ns: u64,
    offset_ns: Option<i128>,
}

impl Segment {
    const NONE: Segment = Segment {
        first_t_ns: u64::MAX,
        offset_ns: None,
    };

    fn add(&mut self, t_ns: u64, offset_ns: Option<i128>) {
        self.first_t_ns = self.first_t_ns.min(t_ns);
        self.offset_ns = match (self.offset_ns, offset_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

fn is_power_on(event: &Event) -> bool {
    event.clock == Clock::Host && event.name == "power-on" && event.kind != Kind::End
}

fn is_power_off(event: &Event) -> bool {
    event.clock == Clock::Host
        && event.kind != Kind::Begin
        && matches!(
            event.name.as_str(),
            "power-off" | "power-cut" | "power-lost"
        )
}

/// Firmware restores an image, or has.
fn is_restoring(event: &Event) -> bool {
    event.clock == Clock::Firmware
        && event.phase == "resume"
        && matches!(event.name.as_str(), "restore-copy" | "wake")
}

fn host_stamp(event: &Event) -> Option<u64> {
    HOST_STAMPS
        .iter()
        .find_map(|key| event.detail.get(*key)?.as_u64())
}

/// Places every event; see the module's text for how.
///
/// A segment without any anchor goes where the input has it: its first event at the time of
/// the event before. That is noted.
pub fn align(events: &[Event]) -> Alignment<'_> {
    let mut power_on_ns: Vec<u64> = events
        .iter()
        .filter(|event| is_power_on(event))
        .map(|event| event.t_ns)
        .collect();
    power_on_ns.sort_unstable();
    power_on_ns.dedup();
    let session_at = |host_ns: u64| power_on_ns.partition_point(|&on_ns| on_ns <= host_ns);

    // First pass: session and cycle of each event, and what anchors each segment.
    let (mut session, mut cycle) = (0, 1);
    let mut places = Vec::with_capacity(events.len());
    let mut segments: BTreeMap<SegmentKey, Segment> = BTreeMap::new();
    let mut streams: BTreeMap<(Clock, usize), Segment> = BTreeMap::new();
    for event in events {
        let lane = Lane::of(event);
        let stamp = if lane == Lane::Host {
            Some(event.t_ns)
        } else {
            host_stamp(event)
        };
        if let Some(host_ns) = stamp {
            session = session_at(host_ns);
        }
        cycle = named_cycle(event).unwrap_or(cycle);
        let seen_late = match (event.clock, stamp, session) {
            (Clock::Firmware, Some(host_ns), 2..) => {
                is_of_earlier_session(event.t_ns, host_ns - power_on_ns[session - 1])
            }
            _ => false,
        };
        let own_session = if seen_late { session - 1 } else { session };
        let stamp = stamp.filter(|_| !seen_late);
        places.push((lane, own_session, cycle));
        if lane != Lane::Host {
            let offset_ns = stamp.map(|host_ns| i128::from(host_ns) - i128::from(event.t_ns));
            let key = (event.clock, own_session, event.phase.as_str());
            segments
                .entry(key)
                .or_insert(Segment::NONE)
                .add(event.t_ns, offset_ns);
            let stream = streams
                .entry((event.clock, own_session))
                .or_insert(Segment::NONE);
            stream.add(event.t_ns, offset_ns);
        }
    }
    let power_on_of = |session: usize| {
        session
            .checked_sub(1)
            .map(|index| i128::from(power_on_ns[index]))
    };

    let anchored_offset = |key: SegmentKey| -> Option<i128> {
        let (clock, session, _) = key;
        let (segment, stream) = (segments.get(&key)?, streams.get(&(clock, session))?);
        let stamped = match (segment.offset_ns, stream.offset_ns) {
            (Some(own), Some(common)) if own - common > DELIVERY_NS => Some(own),
            (_, common) => common,
        };
        if clock != Clock::Firmware {
            return stamped;
        }
        // This clock starts at power-on, so nothing of it lies before.
        match (stamped, power_on_of(session)) {
            (Some(offset), Some(on)) => Some(offset.max(on - i128::from(segment.first_t_ns))),
            (stamped, power_on) => stamped.or(power_on),
        }
    };

    let restored: BTreeSet<usize> = events
        .iter()
        .zip(&places)
        .filter(|(event, _)| is_restoring(event))
        .map(|(_, &(_, session, _))| session)
        .collect();

    // Second pass: times. Segments without an anchor are placed as they come.
    let has_anchors = events
        .iter()
        .any(|e| e.clock == Clock::Host || host_stamp(e).is_some());
    let mut floating: BTreeMap<SegmentKey, i128> = BTreeMap::new();
    let mut unanchored: BTreeSet<&'static str> = BTreeSet::new();
    let mut last_ns: Option<i128> = None;
    let mut placed = Vec::with_capacity(events.len());
    for (event, &(lane, session, cycle)) in events.iter().zip(&places) {
        let key = (event.clock, session, event.phase.as_str());
        let t_ns = i128::from(event.t_ns);
        let at_ns = if lane == Lane::Host {
            t_ns
        } else if let Some(offset) = anchored_offset(key) {
            t_ns + offset
        } else if !has_anchors && event.clock == Clock::Guest {
            // A machine that recorded itself: its own clock is the axis.
            t_ns
        } else {
            unanchored.insert(lane.as_str());
            let first_ns = i128::from(segments[&key].first_t_ns);
            t_ns + *floating
                .entry(key)
                .or_insert(last_ns.unwrap_or(first_ns) - first_ns)
        };
        last_ns = Some(at_ns);
        let boots = event.clock == Clock::Firmware
            && event.phase == "resume"
            && !restored.contains(&session);
        let phase = if boots { "boot" } else { event.phase.as_str() };
        placed.push(Placed {
            event,
            lane,
            phase,
            at_ns,
            session,
            cycle,
        });
    }
    placed.sort_by_key(|place| place.at_ns);

    let notes = unanchored
        .into_iter()
        .map(|lane| format!("Some {lane} events had no anchor; they stand in the order recorded."))
        .collect();
    Alignment {
        outages: outages(&placed),
        events: placed,
        notes,
    }
}

/// From each power-off to the power-on that follows it.
fn outages(placed: &[Placed]) -> Vec<(i128, i128)> {
    let mut outages = Vec::new();
    let mut off_since = None;
    for place in placed {
        if is_power_off(place.event) {
            off_since.get_or_insert(place.at_ns);
        } else if is_power_on(place.event) {
            outages.extend(off_since.take().map(|begin| (begin, place.at_ns)));
        }
    }
    outages
}

#[cfg(test)]
mod tests {
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
        let kernel = Event::new(7_000, Clock::Guest, "suspend", "prepare", Kind::Mark)
            .with("source", "kernel");
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
}
