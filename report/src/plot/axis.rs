//! Where an axis begins and ends and what stands at its ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use crate::stats;

/// How values become distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, zero included: lengths and areas can be compared.
    FromZero,
    /// Linear, no more than what is there.
    Fitted,
    /// Logarithmic; values of zero and below have no place on it.
    Logarithmic,
}

/// What ticks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticks {
    /// Plain numbers.
    Numbers,
    /// Values are seconds, shown as `10 ms`, `1 min`, `1 d`.
    Durations,
}

/// An axis as its caller describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it shows, with the unit: `time since wake [s]`.
    pub label: String,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// The kind of tick labels.
    pub ticks: Ticks,
}

impl Axis {
    /// A linear axis from zero.
    pub fn new(label: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            scale: Scale::FromZero,
            ticks: Ticks::Numbers,
        }
    }

    /// Only as far as the values reach.
    #[must_use]
    pub fn fitted(self) -> Axis {
        let scale = Scale::Fitted;
        Axis { scale, ..self }
    }

    /// Logarithmic.
    #[must_use]
    pub fn logarithmic(self) -> Axis {
        let scale = Scale::Logarithmic;
        Axis { scale, ..self }
    }

    /// Ticks as lengths of time; values are seconds.
    #[must_use]
    pub fn durations(self) -> Axis {
        let ticks = Ticks::Durations;
        Axis { ticks, ..self }
    }

    /// The value's place on the axis, or `None` where it has none.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Logarithmic if value > 0.0 => value.log10(),
            Scale::Logarithmic => return None,
            _ => value,
        };
        // Beyond this the differences of places are no longer finite.
        (place.abs() < 1e300).then_some(place)
    }

    /// Both ends and the ticks for values that are to be shown.
    pub(super) fn plan(&self, values: impl IntoIterator<Item = f64>) -> Plan {
        let places = stats::sorted(values.into_iter().filter_map(|value| self.place(value)));
        let (mut low, mut high) = match (places.first(), places.last()) {
            (Some(&low), Some(&high)) => (low, high),
            _ => (0.0, 1.0),
        };
        match self.scale {
            Scale::FromZero => (low, high) = (low.min(0.0), high.max(0.0)),
            Scale::Fitted => {
                let room = (high - low) * 0.05;
                (low, high) = (low - room, high + room);
            }
            // A tenth of a decade, so that nothing lies on the frame.
            Scale::Logarithmic => (low, high) = (low - 0.1, high + 0.1),
        }
        if high - low <= low.abs().max(high.abs()) * 1e-9 {
            let room = low.abs().max(1.0) * 0.1;
            (low, high) = match self.scale {
                Scale::FromZero => (low.min(0.0), low.max(1.0)),
                _ => (low - room, high + room),
            };
        }
        match self.scale {
            Scale::Logarithmic => self.logarithmic_plan(low, high),
            _ => self.linear_plan(low, high),
        }
    }

    fn linear_plan(&self, low: f64, high: f64) -> Plan {
        let step = round_step((high - low) / 5.0);
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let (first, last) = match self.scale {
            // The axis ends with a tick.
            Scale::FromZero => ((low / step).floor(), (high / step - 1e-9).ceil()),
            _ => ((low / step).ceil(), (high / step).floor()),
        };
        let count = (last - first).clamp(0.0, 20.0) as usize;
        let ticks: Vec<(f64, String)> = (0..=count)
            .map(|n| (first + n as f64) * step)
            .map(|value| (value, self.text(value, decimals)))
            .collect();
        let (low, high) = match (self.scale, ticks.first(), ticks.last()) {
            (Scale::FromZero, Some(first), Some(last)) => (first.0.min(low), last.0.max(high)),
            _ => (low, high),
        };
        Plan { low, high, ticks }
    }

    fn logarithmic_plan(&self, low: f64, high: f64) -> Plan {
        let values: Vec<f64> = match self.ticks {
            Ticks::Durations => {
                let within = |value: &f64| (low..=high).contains(&value.log10());
                let coarse = || COARSE_S.into_iter().filter(within);
                match coarse().count() {
                    0..=3 => COARSE_S.into_iter().flat_map(finer).collect(),
                    _ => coarse().collect(),
                }
            }
            Ticks::Numbers => {
                let factors: &[f64] = match high - low {
                    span if span < 1.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
                    span if span < 2.0 => &[1.0, 2.0, 5.0],
                    _ => &[1.0],
                };
                let (first, last) = (low.floor() as i32, high.ceil() as i32);
                let stride = ((last - first) / 8).max(1) as usize;
                (first..=last)
                    .step_by(stride)
                    .flat_map(|decade| factors.iter().map(move |f| f * 10f64.powi(decade)))
                    .collect()
            }
        };
        let ticks = values
            .into_iter()
            .map(|value| (value.log10(), value))
            .filter(|(place, _)| (low..=high).contains(place))
            .map(|(place, value)| {
                let decimals = (-value.log10().floor()).max(0.0) as usize;
                let decimals =
                    decimals + usize::from(value * 10f64.powi(decimals as i32) % 1.0 > 0.01);
                (place, self.text(value, decimals))
            })
            .collect();
        Plan { low, high, ticks }
    }

    fn text(&self, value: f64, decimals: usize) -> String {
        match self.ticks {
            Ticks::Durations => duration(value),
            Ticks::Numbers => number(value, decimals),
        }
    }
}

/// Ticks of a logarithmic axis of time, in seconds.
const COARSE_S: [f64; 16] = [
    1e-6,
    1e-5,
    1e-4,
    1e-3,
    1e-2,
    0.1,
    1.0,
    10.0,
    60.0,
    600.0,
    3600.0,
    36_000.0,
    86_400.0,
    864_000.0,
    8_640_000.0,
    86_400_000.0,
];

/// The tick and those that follow it where there is room for more.
fn finer(tick: f64) -> impl Iterator<Item = f64> {
    let factors: &[f64] = match tick {
        // Ten seconds are followed by a minute, ten hours by a day.
        10.0 => &[1.0, 2.0, 3.0],
        36_000.0 => &[1.0],
        _ => &[1.0, 2.0, 5.0],
    };
    factors.iter().map(move |factor| factor * tick)
}

/// An axis with its numbers; places, not values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The lower end of the axis.
    pub low: f64,
    /// The upper end of the axis.
    pub high: f64,
    /// The kind of tick labels.
    pub ticks: Vec<(f64, String)>,
}

impl Plan {
    /// One place for each name, 0.5, 1.5, … from the low end.
    pub(super) fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Plan {
        let ticks: Vec<(f64, String)> = names
            .into_iter()
            .enumerate()
            .map(|(index, name)| (index as f64 + 0.5, name.to_owned()))
            .collect();
        Plan {
            low: 0.0,
            high: ticks.len().max(1) as f64,
            ticks,
        }
    }

    /// The same from the other end.
    pub(super) fn reversed(mut self) -> Plan {
        for (place, _) in &mut self.ticks {
            *place = self.high - *place;
        }
        self
    }

    /// What the tick at a place says.
    pub(super) fn label(&self, place: f64) -> String {
        let distance = |tick: &&(f64, String)| (tick.0 - place).abs();
        self.ticks
            .iter()
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .map_or_else(String::new, |(_, text)| text.clone())
    }
}

impl Ranged for Plan {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (place - self.low) / (self.high - self.low);
        first + (share.clamp(0.0, 1.0) * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|tick| tick.0).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    if !(least.is_finite() && least > f64::MIN_POSITIVE) {
        return 1.0;
    }
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(10.0 * power)
}

fn number(value: f64, decimals: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    match value.abs() {
        size if !(1e-4..1e6).contains(&size) => format!("{value:.1e}").replace(".0e", "e"),
        _ => format!("{value:.decimals$}"),
    }
}

fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds.abs() {
        0.0 => return "0 s".to_owned(),
        s if s < 0.999e-3 => (seconds * 1e6, "µs"),
        s if s < 0.999 => (seconds * 1e3, "ms"),
        s if s < 59.9 => (seconds, "s"),
        s if s < 3599.0 => (seconds / 60.0, "min"),
        s if s < 86_399.0 => (seconds / 3600.0, "h"),
        _ => (seconds / 86_400.0, "d"),
    };
    let text = format!("{value:.1}");
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(plan: &Plan) -> Vec<&str> {
        plan.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_end_the_axis() {
        let plan = Axis::new("t [s]").plan([3.2, 11.3]);
        assert_eq!((plan.low, plan.high), (0.0, 15.0));
        assert_eq!(texts(&plan), ["0", "5", "10", "15"]);
        assert_eq!(
            texts(&Axis::new("t").plan([0.42])),
            ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]
        );
    }

    #[test]
    fn a_logarithmic_axis_of_time_speaks_of_minutes_and_hours() {
        let axis = Axis::new("asleep").logarithmic().durations();
        assert_eq!(
            texts(&axis.plan([1.0, 7200.0])),
            ["1 s", "10 s", "1 min", "10 min", "1 h"]
        );
        assert_eq!(
            texts(&axis.plan([10.0, 80.0])),
            ["10 s", "20 s", "30 s", "1 min"]
        );
        assert_eq!(axis.place(0.0), None);
        let axis = Axis::new("energy [J]").logarithmic();
        assert_eq!(
            texts(&axis.plan([3.0, 3e5])),
            ["10", "100", "1000", "10000", "100000"]
        );
    }

    #[test]
    fn nothing_and_a_single_value_have_an_axis() {
        for axis in [
            Axis::new("a"),
            Axis::new("a").fitted(),
            Axis::new("a").logarithmic(),
        ] {
            for values in [vec![], vec![0.0], vec![5.0], vec![-3.0], vec![f64::NAN]] {
                let plan = axis.plan(values);
                assert!(plan.low < plan.high, "{plan:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_value_is_within_an_axis_of_few_ticks(
            values in proptest::collection::vec(-1e12..1e12, 1..20), kind in 0..3usize
        ) {
            let axis = [Axis::new("a"), Axis::new("a").fitted(), Axis::new("a").logarithmic()][kind].clone();
            let plan = axis.plan(values.iter().copied());
            prop_assert!(plan.low < plan.high);
            prop_assert!(plan.ticks.len() <= 30);
            for place in values.iter().filter_map(|v| axis.place(*v)) {
                prop_assert!(plan.low <= place && place <= plan.high);
            }
            for (place, _) in &plan.ticks {
                prop_assert!(plan.low - 1e-6 <= *place && *place <= plan.high + 1e-6);
            }
        }

        #[test]
        fn no_value_makes_an_axis_panic(values in proptest::collection::vec(any::<f64>(), 0..10)) {
            for axis in [Axis::new("a"), Axis::new("a").fitted(), Axis::new("a").logarithmic().durations()] {
                let plan = axis.plan(values.iter().copied());
                prop_assert!(plan.low < plan.high && plan.low.is_finite() && plan.high.is_finite());
            }
        }
    }
}
