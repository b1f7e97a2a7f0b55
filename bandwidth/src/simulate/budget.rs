//! The CPU-time budget of one task under the sched_ext scheduler (`bpf/dormouse.bpf.c`).

/// Period of the scheduler's timer.
pub(super) const TIMER_NS: i64 = 1_000_000;

/// CPU time of a limited task (`struct limit` and `struct state` of `bpf/budget.h`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    pub ns_per_ms: i64,
    /// Negative: debt.
    pub(super) left_ns: i64,
}

impl Budget {
    /// A limit in CPUs that begins with a debt.
    pub fn new(cpu: f64, debt_ns: i64) -> Self {
        let mut budget = Self {
            ns_per_ms: 0,
            left_ns: -debt_ns,
        };
        budget.write(cpu);
        budget
    }

    /// Changes the limit, in CPUs; budget or debt stays.
    pub fn write(&mut self, cpu: f64) {
        self.ns_per_ms = (cpu * TIMER_NS as f64) as i64;
    }
}
