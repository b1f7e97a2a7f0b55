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

/// Where each event belongs, and what anchors each segment.
struct Sessions<'a> {
    power_on_ns: Vec<u64>,
    /// Lane, session and cycle of each event.
    places: Vec<(Lane, usize, u64)>,
    segments: BTreeMap<SegmentKey<'a>, Segment>,
    streams: BTreeMap<(Clock, usize), Segment>,
}

impl<'a> Sessions<'a> {
    fn of(events: &'a [Event]) -> Self {
        let mut power_on_ns: Vec<u64> = events
            .iter()
            .filter(|event| is_power_on(event))
            .map(|event| event.t_ns)
            .collect();
        power_on_ns.sort_unstable();
        power_on_ns.dedup();
        let mut sessions = Sessions {
            power_on_ns,
            places: Vec::with_capacity(events.len()),
            segments: BTreeMap::new(),
            streams: BTreeMap::new(),
        };
        let (mut session, mut cycle) = (0, 1);
        for event in events {
            let stamp = match Lane::of(event) {
                Lane::Host => Some(event.t_ns),
                _ => host_stamp(event),
            };
            if let Some(host_ns) = stamp {
                let power_on = &sessions.power_on_ns;
                session = power_on.partition_point(|&on_ns| on_ns <= host_ns);
            }
            cycle = named_cycle(event).unwrap_or(cycle);
            sessions.add(event, stamp, session, cycle);
        }
        sessions
    }

    fn add(&mut self, event: &'a Event, stamp: Option<u64>, session: usize, cycle: u64) {
        let seen_late = match (event.clock, stamp, session) {
            (Clock::Firmware, Some(host_ns), 2..) => {
                is_of_earlier_session(event.t_ns, host_ns - self.power_on_ns[session - 1])
            }
            _ => false,
        };
        let session = if seen_late { session - 1 } else { session };
        let stamp = stamp.filter(|_| !seen_late);
        let lane = Lane::of(event);
        self.places.push((lane, session, cycle));
        if lane == Lane::Host {
            return;
        }
        let offset_ns = stamp.map(|host_ns| i128::from(host_ns) - i128::from(event.t_ns));
        let key = (event.clock, session, event.phase.as_str());
        let segment = self.segments.entry(key).or_insert(Segment::NONE);
        segment.add(event.t_ns, offset_ns);
        let stream = (event.clock, session);
        let stream = self.streams.entry(stream).or_insert(Segment::NONE);
        stream.add(event.t_ns, offset_ns);
    }

    fn power_on_of(&self, session: usize) -> Option<i128> {
        let index = session.checked_sub(1)?;
        Some(i128::from(self.power_on_ns[index]))
    }

    fn anchored_offset(&self, key: SegmentKey) -> Option<i128> {
        let (clock, session, _) = key;
        let (segment, stream) = (
            self.segments.get(&key)?,
            self.streams.get(&(clock, session))?,
        );
        let stamped = match (segment.offset_ns, stream.offset_ns) {
            (Some(own), Some(common)) if own - common > DELIVERY_NS => Some(own),
            (_, common) => common,
        };
        if clock != Clock::Firmware {
            return stamped;
        }
        // This clock starts at power-on, so nothing of it lies before.
        match (stamped, self.power_on_of(session)) {
            (Some(offset), Some(on)) => Some(offset.max(on - i128::from(segment.first_t_ns))),
            (stamped, power_on) => stamped.or(power_on),
        }
    }
}

/// Places every event; see the module's text for how.
///
/// A segment without any anchor goes where the input has it: its first event at the time of
/// the event before. That is noted.
pub fn align(events: &[Event]) -> Alignment<'_> {
    let sessions = Sessions::of(events);
    let restored: BTreeSet<usize> = events
        .iter()
        .zip(&sessions.places)
        .filter(|(event, _)| is_restoring(event))
        .map(|(_, &(_, session, _))| session)
        .collect();
    let has_anchors = events
        .iter()
        .any(|e| e.clock == Clock::Host || host_stamp(e).is_some());
    let mut floating: BTreeMap<SegmentKey, i128> = BTreeMap::new();
    let mut unanchored: BTreeSet<&'static str> = BTreeSet::new();
    let mut last_ns: Option<i128> = None;
    let mut placed = Vec::with_capacity(events.len());
    for (event, &(lane, session, cycle)) in events.iter().zip(&sessions.places) {
        let key = (event.clock, session, event.phase.as_str());
        let t_ns = i128::from(event.t_ns);
        let at_ns = if lane == Lane::Host {
            t_ns
        } else if let Some(offset) = sessions.anchored_offset(key) {
            t_ns + offset
        } else if !has_anchors && event.clock == Clock::Guest {
            // A machine that recorded itself: its own clock is the axis.
            t_ns
        } else {
            unanchored.insert(lane.as_str());
            let first_ns = i128::from(sessions.segments[&key].first_t_ns);
            t_ns + *floating
                .entry(key)
                .or_insert(last_ns.unwrap_or(first_ns) - first_ns)
        };
        last_ns = Some(at_ns);
        let boots = event.clock == Clock::Firmware
            && event.phase == "resume"
            && !restored.contains(&session);
        placed.push(Placed {
            event,
            lane,
            phase: if boots { "boot" } else { event.phase.as_str() },
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
mod tests;
