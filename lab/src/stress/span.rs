//! Estimates the duration of a cycle from earlier ones, so that power cuts are uniform over it.

use serde::{Deserialize, Serialize};

/// Seconds of one cycle's parts; None where it did not come to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// From the request to sleep until the machine was off.
    pub down: Option<f64>,
    /// Without power.
    pub off: f64,
    /// From power-on until user space ran.
    pub up: Option<f64>,
    /// From there until all pages were back in DRAM.
    pub home: Option<f64>,
}

/// Before anything was measured: an idle host.
const FIRST_GUESS_S: [f64; 3] = [4.0, 0.6, 2.0];
/// Fewer points make no line.
const MIN_POINTS: usize = 5;
/// The machine and the host's load change; older cycles say less about the next.
const MAX_POINTS: usize = 40;
/// Half of the estimates are a little too short; cuts must also reach the end of a cycle.
const MARGIN: f64 = 1.1;

/// What was measured, with the bytes that were filled.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    down: Vec<(f64, f64)>,
    up: Vec<(f64, f64)>,
    home: Vec<(f64, f64)>,
}

impl Estimate {
    pub fn learn(&mut self, fill_bytes: u64, span: &Span) {
        let parts = [
            (&mut self.down, span.down),
            (&mut self.up, span.up),
            (&mut self.home, span.home),
        ];
        for (points, seconds) in parts {
            if let Some(seconds) = seconds {
                points.push((fill_bytes as f64, seconds));
                if points.len() > MAX_POINTS {
                    points.remove(0);
                }
            }
        }
    }

    /// Seconds from the request to sleep until everything is over.
    pub fn total_s(&self, fill_bytes: u64, off_s: f64) -> f64 {
        let bytes = fill_bytes as f64;
        let parts = [&self.down, &self.up, &self.home];
        let seconds: f64 = parts
            .into_iter()
            .zip(FIRST_GUESS_S)
            .map(|(points, guess)| predicted(points, bytes).unwrap_or(guess))
            .sum();
        seconds * MARGIN + off_s
    }
}

/// The least-squares line through the points, which never falls; their mean where they are few.
fn predicted(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let count = points.len() as f64;
    if points.is_empty() {
        return None;
    }
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let variance: f64 = points.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
    if points.len() < MIN_POINTS || variance <= f64::EPSILON {
        return Some(mean_y);
    }
    let covariance: f64 = points
        .iter()
        .map(|point| (point.0 - mean_x) * (point.1 - mean_y))
        .sum();
    let slope = (covariance / variance).max(0.0);
    Some((mean_y + slope * (x - mean_x)).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_with_more_memory_is_expected_to() {
        let mut estimate = Estimate::default();
        for fill in [10u64, 20, 30, 40, 50, 60] {
            estimate.learn(
                fill,
                &Span {
                    down: Some(1.0 + fill as f64 / 10.0),
                    off: 0.0,
                    up: Some(0.5),
                    home: Some(fill as f64 / 20.0),
                },
            );
        }
        let expected = (1.0 + 10.0 + 0.5 + 5.0) * MARGIN + 2.0;
        assert!((estimate.total_s(100, 2.0) - expected).abs() < 1e-9);
        assert!(estimate.total_s(10, 2.0) < estimate.total_s(100, 2.0));
    }

    #[test]
    fn a_guess_serves_until_something_was_measured() {
        let mut estimate = Estimate::default();
        let guess = estimate.total_s(1 << 20, 0.0);
        assert!(guess > 1.0);
        estimate.learn(
            1 << 20,
            &Span {
                down: Some(30.0),
                ..Span::default()
            },
        );
        assert!(estimate.total_s(1 << 20, 0.0) > 30.0);
    }
}
