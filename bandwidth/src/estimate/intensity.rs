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
    /// Bytes per CPU second.
    rate: f64,
    alive: bool,
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
        self.columns.get(&id).map(|column| column.rate)
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

    fn solve(&mut self) {
        let weights = self.weights();
        let mut columns: Vec<(&TaskId, &mut Column)> = self.columns.iter_mut().collect();
        // In an order that is the same in each run.
        columns.sort_by_key(|(id, _)| **id);
        let mut columns: Vec<&mut Column> = columns.into_iter().map(|(_, column)| column).collect();

        // The rates by memory alone.
        let all: f64 = weights.iter().sum();
        let bytes = dot(&weights, &self.bytes);
        let weighted_cpu_s: f64 = columns
            .iter()
            .map(|column| column.prior * dot(&weights, &column.cpu_s))
            .sum();
        let scale = if weighted_cpu_s > 0.0 {
            bytes.max(0.0) / weighted_cpu_s
        } else {
            0.0
        };
        for column in &mut columns {
            if !column.rate.is_finite() || self.filled == 0 {
                column.rate = scale * column.prior;
            }
        }
        if all <= 0.0 || scale <= 0.0 {
            return;
        }

        let mut left = self.bytes;
        for column in &columns {
            add(&mut left, -column.rate, &column.cpu_s);
        }
        let squared: f64 = weights.iter().zip(left).map(|(w, e)| w * e * e).sum();
        let min = MIN_ERROR * bytes / all;
        let variance = (squared / all).max(min * min);

        let work = columns.len().max(1) * ROWS;
        for _ in 0..(MAX_WORK / work).clamp(1, MAX_SWEEPS) {
            for column in &mut columns {
                let expected = scale * column.prior;
                if expected <= 0.0 {
                    add(&mut left, column.rate, &column.cpu_s);
                    column.rate = 0.0;
                    continue;
                }
                let belief = 1.0 / (PRIOR_SPREAD * expected).powi(2);
                let (mut slope, mut curvature) = (0.0, 0.0);
                for ((w, e), x) in weights.iter().zip(&left).zip(column.cpu_s.iter()) {
                    slope += w * e * x;
                    curvature += w * x * x;
                }
                let slope = slope / variance + belief * (expected - column.rate);
                let curvature = curvature / variance + belief;
                let rate = (column.rate + slope / curvature).max(0.0);
                add(&mut left, column.rate - rate, &column.cpu_s);
                column.rate = rate;
            }
        }
    }
}

fn dot(a: &[f64; ROWS], b: &[f64; ROWS]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64; ROWS], factor: f64, what: &[f64; ROWS]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += factor * what;
    }
}
