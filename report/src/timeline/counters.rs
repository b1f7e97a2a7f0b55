//! Marks that repeat and carry a number of bytes become counters.

use std::collections::BTreeMap;

use super::Counter;
use super::align::{Lane, Placed};
use crate::event::Kind;

/// How often a mark must repeat within a cycle to count as progress.
const MIN_COUNTER_SAMPLES: usize = 3;

/// Details `*bytes` of marks that repeat and change within a cycle: each becomes a counter.
pub fn counters(events: &[Placed], axis: impl Fn(i128) -> u64) -> Vec<Counter> {
    type SeriesKey<'a> = (Lane, &'a str, &'a str, &'a str);
    /// Cycle, time and value of each sample.
    type Series = Vec<(u64, u64, u64)>;
    let mut all: BTreeMap<SeriesKey, Series> = BTreeMap::new();
    for place in events.iter().filter(|place| place.event.kind == Kind::Mark) {
        for (key, value) in &place.event.detail {
            if let (true, Some(bytes)) = (key.ends_with("bytes"), value.as_u64()) {
                let id = (
                    place.lane,
                    place.phase,
                    place.event.name.as_str(),
                    key.as_str(),
                );
                all.entry(id)
                    .or_default()
                    .push((place.cycle, axis(place.at_ns), bytes));
            }
        }
    }
    let tells_of_progress = |series: &Series| {
        series.chunk_by(|a, b| a.0 == b.0).any(|cycle| {
            cycle.len() >= MIN_COUNTER_SAMPLES && cycle.iter().any(|sample| sample.2 != cycle[0].2)
        })
    };
    all.into_iter()
        .filter(|(_, series)| tells_of_progress(series))
        .map(|((lane, phase, name, key), series)| {
            let what = if phase == name {
                name.to_owned()
            } else {
                format!("{phase} {name}")
            };
            Counter {
                lane,
                name: format!("{what}: {}", key.replace('_', " ")),
                samples: series
                    .into_iter()
                    .map(|(_, at_ns, bytes)| (at_ns, bytes))
                    .collect(),
            }
        })
        .collect()
}
