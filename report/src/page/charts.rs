//! The plots of a report, from runs and cases; each is left out where it has nothing to show.

use crate::compare::Case;
use crate::cycle::{Cycle, Way};
use crate::energy::{CaseEnergy, Energy, PauseCost, Share, WayEnergy};
use crate::format;
use crate::plot::{self, Axis, Frame, Line, Marker, PlotError, Sample, Stack};
use crate::timeline::Timeline;
use crate::timeline::memory;

/// More lines cannot be distinguished.
const MAX_LINES: usize = 6;
const MIB: f64 = 1024.0 * 1024.0;

fn axis_of_memory() -> Axis {
    Axis::new("user memory [MiB]")
}

fn in_mib(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points
        .iter()
        .map(|(at_s, bytes)| (*at_s, bytes / MIB))
        .collect()
}

/// The ways of the first cycles of a run that have one, with the number of their cycle.
fn first_ways<W>(timeline: &Timeline, of: impl Fn(&Timeline, u64) -> Option<W>) -> Vec<(u64, W)> {
    timeline
        .cycles()
        .into_iter()
        .filter_map(|cycle| Some((cycle, of(timeline, cycle)?)))
        .take(MAX_LINES)
        .collect()
}

/// Memory on its way to the CXL node, for the first cycles of a run.
pub fn way_down(timeline: &Timeline) -> Result<Option<String>, PlotError> {
    let is_alone = timeline.cycles().len() == 1;
    let ways = first_ways(timeline, memory::way_down);
    let line = |(cycle, way): &(u64, memory::WayDown)| {
        let name = match is_alone {
            true => "on CXL memory".to_owned(),
            false => format!("cycle {cycle}"),
        };
        Line::new(name, in_mib(&way.on_cxl))
    };
    let lines: Vec<Line> = ways.iter().map(line).collect();
    let steps = ways.iter().filter(|_| is_alone);
    let markers: Vec<Marker> = steps
        .flat_map(|(_, way)| &way.steps)
        .map(|(x, name)| Marker {
            x: *x,
            name: (*name).to_owned(),
        })
        .collect();
    let frame = Frame::new(
        "Going to sleep: user memory on the CXL node",
        Axis::new("time since the request [s]"),
        axis_of_memory(),
    );
    drawn(!lines.is_empty(), || plot::lines(&frame, &lines, &markers))
}

/// Memory on its way home, for the first cycles of a run.
pub fn way_home(timeline: &Timeline) -> Result<Option<String>, PlotError> {
    let ways = first_ways(timeline, memory::way_home);
    let mut markers = Vec::new();
    let (title, lines) = match ways.as_slice() {
        [(_, way)] if timeline.cycles().len() == 1 => {
            markers.extend(way.offline_s.map(|x| Marker {
                x,
                name: "node offline".to_owned(),
            }));
            let lines = vec![
                Line::new("still on CXL memory", in_mib(&way.on_cxl)),
                Line::new("home", in_mib(&way.home)),
            ];
            ("Migrating back: user memory", lines)
        }
        some => {
            let line = |(cycle, way): &(u64, memory::WayHome)| {
                Line::new(format!("cycle {cycle}"), in_mib(&way.on_cxl))
            };
            let title = "Migrating back: user memory still on the CXL node";
            (title, some.iter().map(line).collect())
        }
    };
    let frame = Frame::new(title, Axis::new("time since waking [s]"), axis_of_memory());
    drawn(!lines.is_empty(), || plot::lines(&frame, &lines, &markers))
}

/// Memory still on the CXL node, a line for each case: that of its first cycle.
pub fn ways_home(cases: &[Case], timelines: &[Timeline]) -> Result<Option<String>, PlotError> {
    let line = |case: &Case| {
        let cycle = case.cycles.first()?.cycle;
        let way = memory::way_home(timelines.get(case.run)?, cycle)?;
        Some(Line::new(case.label.clone(), in_mib(&way.on_cxl)))
    };
    let lines: Vec<Line> = cases.iter().filter_map(line).take(MAX_LINES).collect();
    let frame = Frame::new(
        "Migrating back: user memory still on the CXL node",
        Axis::new("time since waking [s]"),
        axis_of_memory(),
    );
    drawn(!lines.is_empty(), || plot::lines(&frame, &lines, &[]))
}

/// How the totals of a way spread, by case.
pub fn spread(
    title: &str,
    cases: &[Case],
    of: impl Fn(&Cycle) -> Option<f64>,
) -> Result<Option<String>, PlotError> {
    let sample = |case: &Case| {
        let values: Vec<f64> = case.cycles.iter().filter_map(&of).collect();
        Sample::new(&case.group, &case.series, &values)
    };
    let samples: Vec<Sample> = cases.iter().map(sample).collect();
    let frame = Frame::new(title, Axis::new(""), Axis::new("time [s]"));
    let has_values = samples.iter().any(|sample| !sample.values.is_empty());
    drawn(has_values, || plot::violins(&frame, &samples))
}

/// What a way is made of, by case: medians of parts that do not overlap.
pub fn breakdown(
    title: &str,
    cases: &[Case],
    of: impl Fn(&Cycle) -> &Way,
) -> Result<Option<String>, PlotError> {
    let stack = |case: &Case| {
        let parts = crate::energy::median_parts(case, &|cycle| of(cycle).disjoint_parts());
        let total_s: f64 = parts.iter().map(|part| part.1).sum();
        let named = parts.iter().map(|(name, part_s)| (name.as_str(), *part_s));
        (!parts.is_empty()).then(|| Stack::new(&case.label, named).text(format::seconds(total_s)))
    };
    let stacks: Vec<Stack> = cases.iter().filter_map(stack).collect();
    let frame = Frame::new(title, Axis::new("median time [s]"), Axis::new(""));
    drawn(!stacks.is_empty(), || plot::stacked_bars(&frame, &stacks))
}

/// Joules by phase, by case.
pub fn energy_breakdown(energy: &Energy) -> Result<Option<String>, PlotError> {
    // A colour for each phase, or, where that would be too many, for each way.
    let phases = |case: &CaseEnergy| -> Vec<(String, f64)> {
        let of_way = |way: &WayEnergy| -> Vec<(String, f64)> {
            let named = |part: &Share| {
                let name = match part.part == way.way {
                    true => way.way.to_owned(),
                    false => format!("{}: {}", way.way, part.part),
                };
                (name, part.joules.unwrap_or(0.0))
            };
            way.parts.iter().map(named).collect()
        };
        case.ways.iter().flat_map(of_way).collect()
    };
    let ways = |case: &CaseEnergy| -> Vec<(String, f64)> {
        let joules = |way: &WayEnergy| way.parts.iter().filter_map(|part| part.joules).sum();
        let named = |way: &WayEnergy| (way.way.to_owned(), joules(way));
        case.ways
            .iter()
            .filter(|way| !way.parts.is_empty())
            .map(named)
            .collect()
    };
    let mut names: Vec<String> = energy
        .cases
        .iter()
        .flat_map(phases)
        .map(|part| part.0)
        .collect();
    names.sort_unstable();
    names.dedup();
    let stack = |case: &CaseEnergy| {
        let parts = if names.len() <= plot::COLOURS {
            phases(case)
        } else {
            ways(case)
        };
        let named = parts.iter().map(|(name, joules)| (name.as_str(), *joules));
        let text = case.total_j.map(|total| format::joules(total.median));
        Stack::new(&case.label, named).text(text.unwrap_or_else(|| "not all known".to_owned()))
    };
    let stacks: Vec<Stack> = energy.cases.iter().map(stack).collect();
    let has_joules = stacks
        .iter()
        .any(|s| s.parts.iter().any(|part| part.1 > 0.0));
    let frame = Frame::new("Energy of a cycle", Axis::new("energy [J]"), Axis::new(""));
    drawn(has_joules, || plot::stacked_bars(&frame, &stacks))
}

/// Joules over the length of a pause: idling, S3 and every case, crossing where they break even.
pub fn pauses(energy: &Energy) -> Result<Option<String>, PlotError> {
    let constant = |name: &str, shown: &str| {
        let power = energy.profile.exactly(name)?;
        Some((shown.to_owned(), PauseCost::constant(power.watts)))
    };
    let of_cases: Vec<(String, PauseCost)> = energy
        .cases
        .iter()
        .filter_map(|case| Some((case.label.clone(), case.pause?)))
        .take(MAX_LINES - 2)
        .collect();
    if of_cases.is_empty() {
        return Ok(None);
    }
    let mut shown: Vec<(String, PauseCost)> = Vec::new();
    shown.extend(constant("idle", "idle"));
    shown.extend(constant("s3", "S3, ideal"));
    shown.extend(of_cases);
    let breaks = energy.cases.iter().flat_map(|case| &case.break_even);
    let crossings: Vec<f64> = breaks
        .filter_map(|b| b.pause_s)
        .filter(|s| *s > 0.0)
        .collect();
    let longest = crossings.iter().copied().fold(3600.0, f64::max) * 3.0;
    let shortest = crossings.iter().copied().fold(10.0, f64::min).max(1e-3) / 3.0;
    let line = |(name, cost): &(String, PauseCost)| {
        let begin = cost.busy_s.max(shortest);
        const STEPS: i32 = 160;
        let ratio = (longest / begin).max(1.0);
        let points = (0..=STEPS).filter_map(|step| {
            let pause_s = begin * ratio.powf(f64::from(step) / f64::from(STEPS));
            Some((pause_s, cost.joules(pause_s)?))
        });
        Line::new(name.clone(), points.collect())
    };
    let lines: Vec<Line> = shown.iter().map(line).collect();
    let markers: Vec<Marker> = energy
        .cases
        .first()
        .map(|case| {
            let first = case.break_even.iter().filter(|b| b.pays == "after").take(4);
            let marker = |b: &crate::energy::Opponent| {
                let x = b.pause_s?;
                Some(Marker {
                    x,
                    name: format!("{}: {}", b.name(), format::duration_of_pause(x)),
                })
            };
            first.filter_map(marker).collect()
        })
        .unwrap_or_default();
    let frame = Frame::new(
        "Energy of a pause",
        Axis::new("from the request to sleep until programs run again")
            .logarithmic()
            .durations(),
        Axis::new("energy [J]").logarithmic(),
    );
    plot::lines(&frame, &lines, &markers).map(Some)
}

fn drawn(
    has_content: bool,
    draw: impl FnOnce() -> Result<String, PlotError>,
) -> Result<Option<String>, PlotError> {
    has_content.then(draw).transpose()
}
