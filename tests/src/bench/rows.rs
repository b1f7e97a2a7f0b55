//! The rows of a result: a measured value beside its peer's, and the goal.

use dormouse_report::stats::Summary;
use serde_json::{Value, json};

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Times.
    Less,
    /// Throughputs.
    More,
}

/// Ours beside a peer, or beside the reason why there is none.
pub fn row(
    metric: &str,
    case: &str,
    unit: &str,
    better: Better,
    ours: &Summary,
    peer: Result<(&Summary, &str), &str>,
) -> Value {
    let mut row = json!({
        "metric": metric, "case": case, "unit": unit,
        "ours": ours.median, "n": ours.n,
        "spread": [ours.min, ours.median, ours.max], "mad": ours.mad,
    });
    match peer {
        Ok((peer, name)) => {
            row["peer"] = json!(peer.median);
            row["peer_name"] = json!(name);
            row["peer_n"] = json!(peer.n);
            row["peer_spread"] = json!([peer.min, peer.median, peer.max]);
            row["peer_mad"] = json!(peer.mad);
            row["ratio"] = json!(match better {
                Better::Less => peer.median / ours.median,
                Better::More => ours.median / peer.median,
            });
        }
        Err(why) => {
            row["peer"] = Value::Null;
            row["why"] = json!(why);
        }
    }
    row
}

/// The row must have this ratio at least.
pub fn with_goal(mut row: Value, goal: f64) -> Value {
    row["goal"] = json!(format!("ratio >= {goal:.3}"));
    row["met"] = json!(row["ratio"].as_f64().is_some_and(|ratio| ratio >= goal));
    row
}

/// Our value must be at most (or, where more is better, at least) this.
pub fn with_bar(mut row: Value, better: Better, bar: f64) -> Value {
    let unit = row["unit"].as_str().unwrap_or_default().to_owned();
    let (sign, met): (_, fn(f64, f64) -> bool) = match better {
        Better::Less => ("<=", |value, bar| value <= bar),
        Better::More => (">=", |value, bar| value >= bar),
    };
    let met_before = row["met"].as_bool().unwrap_or(true);
    let goal = format!("{sign} {bar} {unit}");
    row["goal"] = json!(match row["goal"].as_str() {
        Some(other) => format!("{goal}, {other}"),
        None => goal,
    });
    row["met"] = json!(met_before && row["ours"].as_f64().is_some_and(|value| met(value, bar)));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64) -> Summary {
        Summary::of([value]).unwrap()
    }

    #[test]
    fn a_ratio_says_how_many_times_better_ours_is() {
        let peer = of(6.0);
        let time = row("t", "c", "ms", Better::Less, &of(2.0), Ok((&peer, "other")));
        assert_eq!(time["ratio"], 3.0);
        let speed = row("s", "c", "/s", Better::More, &of(3.0), Ok((&peer, "other")));
        assert_eq!(speed["ratio"], 0.5);
        let none = row("s", "c", "/s", Better::More, &of(3.0), Err("it crashed"));
        assert_eq!(
            (&none["peer"], &none["why"]),
            (&Value::Null, &json!("it crashed"))
        );
        assert_eq!(with_goal(none, 1.0)["met"], false);
    }

    #[test]
    fn a_row_with_two_goals_meets_both_or_none() {
        let peer = of(6.0);
        let row = |ours| {
            row(
                "t",
                "c",
                "ms",
                Better::Less,
                &of(ours),
                Ok((&peer, "other")),
            )
        };
        for (ours, met) in [(1.0, true), (2.5, false), (1.9, true)] {
            let row = with_bar(with_goal(row(ours), 3.0), Better::Less, 2.0);
            assert_eq!(row["met"], met, "{row}");
            assert_eq!(row["goal"], "<= 2 ms, ratio >= 3.000");
        }
    }
}
