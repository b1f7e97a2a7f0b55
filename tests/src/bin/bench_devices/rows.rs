//! The rows of the result: ours beside list order, and the goals.

use dormouse_lab::devices::{Mode, ModeTimes};
use dormouse_report::stats::Summary;
use dormouse_tests::bench::rows::{Better, row, with_goal};
use serde_json::{Value, json};

use crate::bounds::Bounds;
use crate::cases::Measured;

/// Maximum ratio of graph order to the lower bound with the handling of devices.
const TO_BOUND: f64 = 1.10;
/// Minimum ratio of list order to graph order: never above 1.02 times list order.
const OF_LIST: f64 = 1.0 / 1.02;
/// The same on the phone: 40 % faster.
const PHONE_GAIN: f64 = 1.0 / 0.6;

/// The rows of all cases; each has its bounds.
pub fn rows(all: &[Measured], bounds: &[Bounds]) -> Vec<Value> {
    let cases = all.iter().zip(bounds);
    cases
        .flat_map(|(measured, bounds)| rows_of(measured, bounds))
        .collect()
}

fn rows_of(measured: &Measured, bounds: &Bounds) -> Vec<Value> {
    let case = measured.case.name();
    let summary = |mode| measured.times.of(mode).and_then(sums);
    let (Some(ours), Some(list), Some(stock)) = (
        summary(Mode::Graph),
        summary(Mode::List),
        summary(Mode::Async),
    ) else {
        return Vec::new();
    };
    let version = measured.version();
    let case = format!("{case}, {version}");
    let goal = match measured.case.shape {
        "phone" => PHONE_GAIN,
        _ => OF_LIST,
    };
    let time = row(
        "suspend + resume",
        &case,
        "ms",
        Better::Less,
        &ours,
        Ok((&list, "list order")),
    );
    let stock_name = format!("stock async of {version}");
    let to_stock = row(
        "suspend + resume beside stock async",
        &case,
        "ms",
        Better::Less,
        &ours,
        Ok((&stock, stock_name.as_str())),
    );
    let to_bound = ours.median / bounds.handled_ms;
    vec![
        with_goal(time, goal),
        with_goal(to_stock, 1.0),
        json!({
            "metric": "suspend + resume to lower bound with handling", "case": case, "unit": "×",
            "ours": to_bound, "n": ours.n, "peer": null, "why": "no schedule is faster that handles each device as list order does",
            "goal": format!("<= {TO_BOUND:.2}"), "met": to_bound <= TO_BOUND,
        }),
    ]
}

/// Both ways of each round.
fn sums(times: &ModeTimes) -> Option<Summary> {
    let sums = times
        .down_ms
        .iter()
        .zip(&times.up_ms)
        .map(|(down, up)| down + up);
    Summary::of(sums)
}
