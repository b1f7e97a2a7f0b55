//! Estimates the bytes per CPU second of each task where no samples of its accesses exist, from
//! how the group's counter follows the tasks' CPU times.
//!
//! ```text
//!  bytes of the group in an interval ≈ Σ  rate of a task × its CPU time in the interval
//! ```
//!
//! CPU times vary from interval to interval because tasks share processors, sleep and are limited.
//! This makes the rates distinguishable: a linear regression with non-negative rates over the last
//! intervals, weighted by age. A prior covers what the data do not determine: the rate of a task
//! is proportional to the share of its memory on the device, with a relative standard deviation of
//! [`PRIOR_SPREAD`]. Tasks whose CPU times only rise and fall together are therefore distinguished
//! by their memory alone, as in the fallback of Kämmerer 2025.
//!
//! The estimate is the maximum of the posterior probability with normal errors (ridge regression
//! towards the prior). Cyclic coordinate descent finds it, starting from the last solution
//! (Friedman, Hastie and Tibshirani, *Regularization paths for generalized linear models via
//! coordinate descent*, 2010; each step is clamped to non-negative rates). The error variance is
//! that of the present residuals.
//!
//! Errors of successive intervals are alike: what a neighbour on the core computes, or the
//! device's latency, changes in seconds. Taken for independent, such errors would be learned as
//! rates. So each interval counts with what does not follow from the one before (generalized least
//! squares with errors of first order, Cochrane and Orcutt 1949); the correlation is that of the
//! present residuals.
//!
//! Limitation: a saturated device carries the same traffic whichever task runs, so the data say
//! nothing and the prior dominates.

use std::collections::HashMap;

use super::types::TaskId;

/// Intervals in the regression.
const ROWS: usize = 128;
/// Minimum length of an interval: shorter ones are merged, because the kernel updates the CPU time
/// of running tasks on ticks only (4 ms).
const ROW_MS: f64 = 40.0;
/// Standard deviation of the prior, relative to its rate.
const PRIOR_SPREAD: f64 = 1.0;
/// Maximum correlation of the errors of two intervals. At 1, levels would say nothing at all.
const MAX_CORRELATION: f64 = 0.95;
/// A rate within this many standard errors of the believed one does not differ from it (95 %).
const CONFIDENCE: f64 = 2.0;
/// A rate with a smaller relative error is known.
const KNOWN: f64 = 0.1;
/// Bounds of a rate relative to the prior's.
const MAX_RATIO: f64 = 1000.0;
/// Standard errors take into account how alike the CPU times of this many tasks are.
const MAX_JOINT: usize = 64;
/// Minimum standard deviation of an interval's bytes, relative to their mean.
const MIN_ERROR: f64 = 0.02;
/// Upper bounds of the sweeps over all tasks in one step and of their multiplications.
const MAX_SWEEPS: usize = 40;
const MAX_WORK: usize = 200_000;

/// One task in the regression.
#[derive(Clone, Debug)]
struct Column {
    /// CPU seconds in each row.
    cpu_s: Box<[f64; ROWS]>,
    /// In the interval that is not complete yet.
    pending_s: f64,
    /// The share of its memory on the device, or any other measure proportional to its prior rate.
    prior: f64,
    /// Bytes per CPU second, according to the data.
    rate: f64,
    /// The same, as far as the data rule out the prior.
    charged: f64,
    /// Its standard error, relative; 0 once it is known.
    error: f64,
    is_known: bool,
    /// What is believed, relative to the prior.
    ratio: f64,
    alive: bool,
}

impl Column {
    /// A measure proportional to its rate as it was believed before.
    fn believed(&self) -> f64 {
        self.prior * self.ratio
    }

    /// Decides what to charge, given the rate that was believed and the standard error of the
    /// present one. Once it is known well enough it is believed until the data rule it out, also
    /// while they say nothing.
    fn settle(&mut self, expected: f64, error: f64) {
        self.charged = shrunk(expected, self.rate, CONFIDENCE * error);
        let larger = self.rate.max(expected);
        if larger <= 0.0 || expected <= 0.0 {
            self.error = 0.0;
            return;
        }
        if error / larger < KNOWN {
            self.is_known = true;
            // One that was found to differ from its prior once is charged with what is known.
            if self.charged != expected || self.ratio != 1.0 {
                let ratio = self.ratio * self.rate / expected;
                self.ratio = ratio.clamp(1.0 / MAX_RATIO, MAX_RATIO);
                self.charged = self.rate;
            }
        } else if self.charged == self.rate {
            self.is_known = false;
        }
        self.error = match self.is_known {
            true => 0.0,
            false => error / larger,
        };
    }
}

/// One task in one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    pub id: TaskId,
    pub cpu_s: f64,
    /// A measure proportional to its prior rate.
    pub prior: f64,
}

/// Estimates the rates of one group's tasks.
#[derive(Clone, Debug)]
pub struct IntensityEstimator {
    half_life_ms: f64,
    columns: HashMap<TaskId, Column>,
    /// Bytes of each interval that the known tasks explain.
    bytes: [f64; ROWS],
    length_ms: [f64; ROWS],
    filled: usize,
    next: usize,
    pending_bytes: f64,
    pending_ms: f64,
}

impl IntensityEstimator {
    /// Data of this age have half of the weight.
    pub fn new(half_life_ms: f64) -> Self {
        Self {
            half_life_ms,
            columns: HashMap::new(),
            bytes: [0.0; ROWS],
            length_ms: [0.0; ROWS],
            filled: 0,
            next: 0,
            pending_bytes: 0.0,
            pending_ms: 0.0,
        }
    }

    /// Bytes per CPU second of a task; `None`: unknown task.
    pub fn rate(&self, id: TaskId) -> Option<f64> {
        self.columns.get(&id).map(|column| column.charged)
    }

    /// The standard error of a task's bytes per CPU second, relative to the larger of its rate and
    /// the believed one; 0 once it is known. `None`: unknown task.
    pub fn error(&self, id: TaskId) -> Option<f64> {
        self.columns.get(&id).map(|column| column.error)
    }

    /// Adds an interval in which the group moved `bytes`. Tasks that are not among the parts have
    /// ended.
    pub fn learn(&mut self, interval_ms: f64, bytes: f64, parts: &[Part]) {
        for column in self.columns.values_mut() {
            column.alive = false;
        }
        for part in parts {
            let column = self.columns.entry(part.id).or_insert_with(|| Column {
                cpu_s: Box::new([0.0; ROWS]),
                pending_s: 0.0,
                prior: 0.0,
                rate: f64::NAN,
                charged: 0.0,
                error: PRIOR_SPREAD,
                is_known: false,
                ratio: 1.0,
                alive: true,
            });
            column.alive = true;
            if part.cpu_s > 0.0 {
                column.prior = part.prior.max(0.0);
            }
            column.pending_s += part.cpu_s;
        }
        self.pending_bytes += bytes;
        self.pending_ms += interval_ms;
        if self.pending_ms >= ROW_MS {
            self.close();
        }
        self.forget();
        self.solve();
    }

    /// Drops an interval without a valid counter reading.
    pub fn skip(&mut self) {
        (self.pending_bytes, self.pending_ms) = (0.0, 0.0);
        for column in self.columns.values_mut() {
            column.pending_s = 0.0;
        }
    }

    fn close(&mut self) {
        let at = self.next;
        self.bytes[at] = self.pending_bytes;
        self.length_ms[at] = self.pending_ms;
        for column in self.columns.values_mut() {
            column.cpu_s[at] = column.pending_s;
        }
        self.next = (at + 1) % ROWS;
        self.filled = (self.filled + 1).min(ROWS);
        self.skip();
    }

    /// A task that has ended takes its explained traffic out of the past intervals.
    fn forget(&mut self) {
        let (bytes, pending) = (&mut self.bytes, &mut self.pending_bytes);
        self.columns.retain(|_, column| {
            if !column.alive && column.rate.is_finite() {
                for (bytes, cpu_s) in bytes.iter_mut().zip(column.cpu_s.iter()) {
                    *bytes -= column.rate * cpu_s;
                }
                *pending -= column.rate * column.pending_s;
            }
            column.alive
        });
    }

    /// The weight of each interval, by age; 0 for empty ones.
    fn weights(&self) -> [f64; ROWS] {
        let mut weights = [0.0; ROWS];
        let mut age_ms = 0.0;
        for back in 1..=self.filled {
            let at = (self.next + ROWS - back) % ROWS;
            weights[at] = (-age_ms / self.half_life_ms).exp2();
            age_ms += self.length_ms[at];
        }
        weights
    }

    /// The filled rows, from the oldest one on.
    fn rows(&self) -> Vec<usize> {
        let oldest = self.next + ROWS - self.filled;
        (oldest..self.next + ROWS).map(|at| at % ROWS).collect()
    }

    fn solve(&mut self) {
        let weights = self.weights();
        let rows = self.rows();
        let mut columns: Vec<(&TaskId, &mut Column)> = self.columns.iter_mut().collect();
        // In an order that is the same in each run.
        columns.sort_by_key(|(id, _)| **id);
        let mut columns: Vec<&mut Column> = columns.into_iter().map(|(_, column)| column).collect();

        // The rates by memory alone.
        let all: f64 = weights.iter().sum();
        let bytes = dot(&weights, &self.bytes);
        let weighted_cpu_s: f64 = columns
            .iter()
            .map(|column| column.believed() * dot(&weights, &column.cpu_s))
            .sum();
        let scale = if weighted_cpu_s > 0.0 {
            bytes.max(0.0) / weighted_cpu_s
        } else {
            0.0
        };
        for column in &mut columns {
            if !column.rate.is_finite() || self.filled == 0 {
                column.rate = scale * column.believed();
                column.charged = column.rate;
            }
        }
        if all <= 0.0 || scale <= 0.0 {
            return;
        }

        let mut left = self.bytes;
        for column in &columns {
            add(&mut left, -column.rate, &column.cpu_s);
        }
        let correlation = correlation(&rows, &weights, &left);
        let mut left = whitened(&left, &rows, correlation);
        let squared = dot3(&weights, &left, &left);
        let min = MIN_ERROR * bytes / all;
        let variance = (squared / all).max(min * min);

        let changes: Vec<[f64; ROWS]> = columns
            .iter()
            .map(|column| whitened(&column.cpu_s, &rows, correlation))
            .collect();
        let work = columns.len().max(1) * ROWS;
        for _ in 0..(MAX_WORK / work).clamp(1, MAX_SWEEPS) {
            for (column, change) in columns.iter_mut().zip(&changes) {
                let expected = scale * column.believed();
                if expected <= 0.0 {
                    add(&mut left, column.rate, change);
                    column.rate = 0.0;
                    continue;
                }
                let belief = 1.0 / (PRIOR_SPREAD * expected).powi(2);
                let slope =
                    dot3(&weights, &left, change) / variance + belief * (expected - column.rate);
                let curvature = dot3(&weights, change, change) / variance + belief;
                let rate = (column.rate + slope / curvature).max(0.0);
                add(&mut left, column.rate - rate, change);
                column.rate = rate;
            }
        }
        let beliefs = columns.iter().map(|column| {
            let expected = scale * column.believed();
            1.0 / (PRIOR_SPREAD * expected.max(f64::MIN_POSITIVE)).powi(2)
        });
        let errors = standard_errors(&changes, &weights, variance, beliefs.collect());
        for (column, error) in columns.iter_mut().zip(errors) {
            let expected = scale * column.believed();
            column.settle(expected, error);
        }
    }
}

/// The rate to charge: the prior's as long as the data do not rule it out, theirs where they rule
/// out half of the difference as well, and in between in between (firm shrinkage, Gao and Bruce
/// 1997).
fn shrunk(prior: f64, rate: f64, distance: f64) -> f64 {
    let difference = rate - prior;
    let kept = match distance > 0.0 {
        true => (difference.abs() / distance - 1.0).clamp(0.0, 1.0),
        false => 1.0,
    };
    prior + kept * difference
}

/// The standard error of each rate, given how well the CPU times tell tasks apart: the diagonal of
/// the inverse of the normal matrix.
fn standard_errors(
    changes: &[[f64; ROWS]],
    weights: &[f64; ROWS],
    variance: f64,
    beliefs: Vec<f64>,
) -> Vec<f64> {
    let count = changes.len();
    let product = |a: usize, b: usize| dot3(weights, &changes[a], &changes[b]) / variance;
    if count > MAX_JOINT {
        let alone = |(at, belief): (usize, f64)| 1.0 / (product(at, at) + belief).sqrt();
        return beliefs.into_iter().enumerate().map(alone).collect();
    }
    // The Cholesky factor, row by row, scaled so that the diagonal of the matrix is 1.
    let scales: Vec<f64> = (0..count)
        .map(|at| (product(at, at) + beliefs[at]).sqrt())
        .collect();
    let mut factor = vec![vec![0.0; count]; count];
    for row in 0..count {
        for column in 0..=row {
            let matrix = match row == column {
                true => 1.0,
                false => product(row, column) / (scales[row] * scales[column]),
            };
            let done: f64 = (0..column)
                .map(|at| factor[row][at] * factor[column][at])
                .sum();
            factor[row][column] = match row == column {
                true => (matrix - done).max(f64::EPSILON).sqrt(),
                false => (matrix - done) / factor[column][column],
            };
        }
    }
    // Column by column of the inverse factor; its squares add up to the inverse's diagonal.
    let error = |at: usize| {
        let mut inverse = vec![0.0; count];
        for row in at..count {
            let unit = f64::from(u8::from(row == at));
            let done: f64 = (at..row)
                .map(|other| factor[row][other] * inverse[other])
                .sum();
            inverse[row] = (unit - done) / factor[row][row];
        }
        inverse
            .iter()
            .map(|value| value * value)
            .sum::<f64>()
            .sqrt()
            / scales[at]
    };
    (0..count).map(error).collect()
}

/// The correlation of an interval's error with that of the interval before.
fn correlation(rows: &[usize], weights: &[f64; ROWS], errors: &[f64; ROWS]) -> f64 {
    let (mut both, mut own) = (0.0, 0.0);
    for two in rows.windows(2) {
        both += weights[two[1]] * errors[two[0]] * errors[two[1]];
        own += weights[two[1]] * errors[two[0]] * errors[two[0]];
    }
    match own > 0.0 {
        true => (both / own).clamp(0.0, MAX_CORRELATION),
        false => 0.0,
    }
}

/// What of each interval does not follow from the one before. The oldest row has none before it
/// and keeps the part of its variance that is its own.
fn whitened(values: &[f64; ROWS], rows: &[usize], correlation: f64) -> [f64; ROWS] {
    let mut out = [0.0; ROWS];
    if let Some(&first) = rows.first() {
        out[first] = values[first] * (1.0 - correlation * correlation).sqrt();
    }
    for two in rows.windows(2) {
        out[two[1]] = values[two[1]] - correlation * values[two[0]];
    }
    out
}

fn dot3(a: &[f64; ROWS], b: &[f64; ROWS], c: &[f64; ROWS]) -> f64 {
    a.iter().zip(b).zip(c).map(|((a, b), c)| a * b * c).sum()
}

fn dot(a: &[f64; ROWS], b: &[f64; ROWS]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64; ROWS], factor: f64, what: &[f64; ROWS]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += factor * what;
    }
}
