//! A model of CFS bandwidth control of one cgroup (kernel/sched/fair.c).
//!
//! ```text
//!  pool ◀── refilled to the quota each period          by a timer
//!    │ up to 5 ms at a time
//!    ▼
//!  local ── CPU time is subtracted                     checked on ticks only, so a task overruns
//!    │ ≤ 0, and the pool is empty: throttled           by up to a tick; the debt is kept
//!    ▼
//!  the next period pays the debt first; above 0 the task continues
//!  writing cpu.max: pool = quota, local = 0, unthrottled: grants a quota and forgives all debt
//! ```

/// The amount that the pool hands out at a time (`sched_cfs_bandwidth_slice_us`).
const SLICE_NS: i64 = 5_000_000;

/// The state of one cgroup with one task.
#[derive(Clone, Debug)]
pub struct Quota {
    pub quota_ns: i64,
    pub period_ns: i64,
    pool_ns: i64,
    local_ns: i64,
    next_ns: i64,
    pub throttled: bool,
    /// Periods in which it was throttled (`nr_throttled`).
    pub nr_throttled: u64,
}

impl Quota {
    /// The state after the first write of `cpu.max`.
    pub fn new(now_ns: i64, quota_ns: i64, period_ns: i64) -> Self {
        Self {
            quota_ns,
            period_ns,
            pool_ns: quota_ns,
            local_ns: 0,
            next_ns: now_ns + period_ns,
            throttled: false,
            nr_throttled: 0,
        }
    }

    /// A later write: the running period ends as before, and everything else is reset.
    pub fn write(&mut self, quota_ns: i64, period_ns: i64) {
        self.quota_ns = quota_ns;
        self.period_ns = period_ns;
        self.pool_ns = quota_ns;
        self.local_ns = 0;
        self.throttled = false;
    }

    /// Charges CPU time.
    pub fn charge(&mut self, ns: i64) {
        self.local_ns -= ns;
    }

    /// The check on a tick, and when the task leaves the processor. Returns whether the task is
    /// throttled now.
    pub fn check(&mut self) -> bool {
        if !self.throttled && self.local_ns <= 0 {
            let wanted = (SLICE_NS - self.local_ns).min(self.pool_ns).max(0);
            self.pool_ns -= wanted;
            self.local_ns += wanted;
            if self.local_ns <= 0 {
                self.throttled = true;
                self.nr_throttled += 1;
            }
        }
        self.throttled
    }

    /// The period timer. Returns whether a throttled task continues.
    pub fn timer(&mut self, now_ns: i64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        while self.next_ns <= now_ns {
            self.next_ns += self.period_ns;
        }
        self.pool_ns = self.quota_ns;
        if !self.throttled {
            return false;
        }
        let paid = (1 - self.local_ns).min(self.pool_ns);
        self.pool_ns -= paid;
        self.local_ns += paid;
        self.throttled = self.local_ns <= 0;
        !self.throttled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// CPU time of a task that always runs, in steps of 0.1 ms; every `write_every` steps the same
    /// limit is written again.
    fn used(quota_ns: i64, period_ns: i64, tick: i64, total: i64, write_every: i64) -> i64 {
        let mut quota = Quota::new(0, quota_ns, period_ns);
        let step = MS / 10;
        let mut used = 0;
        for at in 1..total / step {
            quota.timer(at * step);
            if !quota.throttled {
                quota.charge(step);
                used += step;
            }
            if at % tick == 0 {
                quota.check();
            }
            if at % write_every == 0 {
                quota.write(quota_ns, period_ns);
            }
        }
        used
    }

    #[test]
    fn over_time_a_task_gets_its_quota_although_ticks_are_coarse() {
        for (quota, period, tick) in [(1, 4, 40), (1, 4, 10), (2, 10, 40), (1, 100, 40)] {
            let used = used(quota * MS, period * MS, tick, 20_000 * MS, i64::MAX) as f64;
            let fair = (20_000 * MS * quota / period) as f64;
            assert!(
                (used / fair - 1.0).abs() < 0.02,
                "{quota}/{period}: {}",
                used / fair
            );
        }
    }

    #[test]
    fn each_write_gives_time_away() {
        let plain = used(MS, 10 * MS, 40, 20_000 * MS, i64::MAX);
        let often = used(MS, 10 * MS, 40, 20_000 * MS, 1500);
        assert!(often as f64 > 1.02 * plain as f64, "{often} {plain}");
    }
}
