//! What a CPU second of each task moves on the device, where nobody samples its accesses: found from
//! how the group's counter follows the tasks' CPU times.
//!
//! ```text
//!  bytes of the group in an interval ≈ Σ  rate of a task × its CPU time in the interval
//! ```
//!
//! CPU times vary from interval to interval (tasks share processors, sleep, are limited), so the
//! rates can be told apart: a linear regression without negative rates, over the last intervals, of
//! which older ones count less. A prior keeps what the data do not tell: a task's rate is
//! proportional to the share of its memory that is on the device, give or take as much again
//! ([`PRIOR_SPREAD`]). Tasks whose CPU times go up and down together only are therefore told apart
//! by their memory alone, as in the seed's fallback.
//!
//! This is the maximum of the posterior probability with normal errors (ridge regression towards
//! the prior), found by cyclic coordinate descent, which starts where it ended the last time
//! (Friedman, Hastie, Tibshirani, *Regularization paths for generalized linear models via coordinate
//! descent*, 2010; the restriction to rates above 0 is a clamp of each step). Its variance of errors
//! is that of what the rates found so far leave unexplained.
//!
//! It needs a device that is not saturated: one that carries as much as it can carries the same
//! whoever runs, so nothing can be learnt then, and the prior counts the more.

use std::collections::HashMap;

use super::TaskId;

/// Intervals that are remembered.
const ROWS: usize = 128;
/// What an interval lasts at least: shorter ones are put together, because the kernel knows CPU
/// times of running tasks as of the last tick (4 ms).
const ROW_MS: f64 = 40.0;
/// Standard deviation of the prior, relative to its rate.
const PRIOR_SPREAD: f64 = 1.0;
/// The least standard deviation of an interval's bytes, relative to their mean.
const LEAST_ERROR: f64 = 0.02;
/// Sweeps over all tasks in one step, and the multiplications that they may take together.
const MOST_SWEEPS: usize = 40;
const MOST_WORK: usize = 200_000;

/// One task's part.
#[derive(Clone, Debug)]
struct Column {
    /// CPU seconds in each row.
    cpu_s: Box<[f64; ROWS]>,
    /// In the row that is being filled.
    pending_s: f64,
    /// Share of its memory on the device, or any measure proportional to its prior rate.
    intensity: f64,
    /// Bytes per CPU second.
    rate: f64,
    alive: bool,
}

/// What one task did in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    pub id: TaskId,
    pub cpu_s: f64,
    /// What its rate is proportional to as far as is known beforehand.
    pub intensity: f64,
}

/// Learns the rates of one group's tasks.
#[derive(Clone, Debug)]
pub struct Worth {
    half_life_ms: f64,
    columns: HashMap<TaskId, Column>,
    /// Bytes of each row that known tasks have to explain.
    bytes: [f64; ROWS],
    length_ms: [f64; ROWS],
    filled: usize,
    next: usize,
    pending_bytes: f64,
    pending_ms: f64,
}

impl Worth {
    /// Intervals that are this old count half.
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

    /// Bytes that a CPU second of a task moves; nothing for one that is not known.
    pub fn rate(&self, id: TaskId) -> Option<f64> {
        self.columns.get(&id).map(|column| column.rate)
    }

    /// An interval in which the group moved `bytes`: learns from it. Tasks that are not among the
    /// parts are gone.
    pub fn learn(&mut self, interval_ms: f64, bytes: f64, parts: &[Part]) {
        for column in self.columns.values_mut() {
            column.alive = false;
        }
        for part in parts {
            let column = self.columns.entry(part.id).or_insert_with(|| Column {
                cpu_s: Box::new([0.0; ROWS]),
                pending_s: 0.0,
                intensity: 0.0,
                rate: f64::NAN,
                alive: true,
            });
            column.alive = true;
            if part.cpu_s > 0.0 {
                column.intensity = part.intensity.max(0.0);
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

    /// An interval of which the counter says nothing: what was gathered is of no use.
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

    /// Who is gone takes his part of the past along, as far as it is known.
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

    /// What each row counts: by its age. Rows that are not filled count nothing.
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
        // In an order that does not change from run to run.
        columns.sort_by_key(|(id, _)| **id);
        let mut columns: Vec<&mut Column> = columns.into_iter().map(|(_, column)| column).collect();

        // What everybody's rate is if memory alone decides.
        let all: f64 = weights.iter().sum();
        let bytes = dot(&weights, &self.bytes);
        let intense: f64 = columns
            .iter()
            .map(|column| column.intensity * dot(&weights, &column.cpu_s))
            .sum();
        let scale = if intense > 0.0 {
            bytes.max(0.0) / intense
        } else {
            0.0
        };
        for column in &mut columns {
            if !column.rate.is_finite() || self.filled == 0 {
                column.rate = scale * column.intensity;
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
        let least = LEAST_ERROR * bytes / all;
        let variance = (squared / all).max(least * least);

        let work = columns.len().max(1) * ROWS;
        for _ in 0..(MOST_WORK / work).clamp(1, MOST_SWEEPS) {
            for column in &mut columns {
                let prior = scale * column.intensity;
                if prior <= 0.0 {
                    add(&mut left, column.rate, &column.cpu_s);
                    column.rate = 0.0;
                    continue;
                }
                let belief = 1.0 / (PRIOR_SPREAD * prior).powi(2);
                let (mut slope, mut curvature) = (0.0, 0.0);
                for ((w, e), x) in weights.iter().zip(&left).zip(column.cpu_s.iter()) {
                    slope += w * e * x;
                    curvature += w * x * x;
                }
                let slope = slope / variance + belief * (prior - column.rate);
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
