//! A model of the device: the traffic of the running tasks.
//!
//! A task that waits for memory keeps a number of cache lines in flight. Its rate is lines ÷
//! (latency + its own time for each line), and the latency depends on the rates of all tasks. The
//! system is closed and has one solution, because latency never decreases with load.

use crate::curve::Curve;

/// Bytes of a cache line.
const LINE_BYTES: f64 = 64.0;

/// The memory access behaviour of a running task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessProfile {
    /// Cache lines in flight.
    pub lines: f64,
    /// The processor's own time for each line, in nanoseconds.
    pub own_ns: f64,
}

impl AccessProfile {
    /// Its rate at a latency, in bytes a second.
    pub fn rate(&self, latency_ns: f64) -> f64 {
        self.lines * LINE_BYTES * 1e9 / (latency_ns + self.own_ns)
    }
}

/// Latency in nanoseconds and total in bytes a second while these tasks run.
pub fn balance(curve: &Curve, running: &[AccessProfile]) -> (f64, f64) {
    if running.is_empty() {
        return (curve.latency_ns(0.0), 0.0);
    }
    let asked = |total: f64| -> f64 {
        let latency = curve.latency_ns(total);
        running.iter().map(|access| access.rate(latency)).sum()
    };
    let (mut low, mut high) = (0.0, asked(0.0));
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if asked(middle) > middle {
            low = middle;
        } else {
            high = middle;
        }
    }
    (curve.latency_ns(low), low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::GIB;

    #[test]
    fn the_total_is_consistent_with_the_resulting_latency() {
        let curve = Curve::find("kaemmerer-fpga").unwrap();
        let access = AccessProfile {
            lines: 32.0,
            own_ns: 50.0,
        };
        let mut before = 0.0;
        for count in 1..10 {
            let running = vec![access; count];
            let (latency, total) = balance(&curve, &running);
            let asked = count as f64 * access.rate(latency);
            assert!((asked / total - 1.0).abs() < 1e-6);
            assert!(total > before && total < 11.0 * GIB);
            before = total;
        }
        assert_eq!(balance(&curve, &[]).1, 0.0);
    }
}
