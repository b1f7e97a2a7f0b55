//! Validation of the counters of one monitoring group. Counters are untrusted: they may stop,
//! wrap, jump back or report impossible values.
//!
//! A difference that the device cannot have carried in the interval is rejected, whatever its
//! sign, so a wrapping counter is followed and a reset is detected. A counter that stands still
//! while its users run has stopped; while no user runs, standing still is correct.

/// The counters of a group, in bytes since an arbitrary start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Bytes read.
    pub read_bytes: u64,
    /// The read that allocates the cache line of a write is part of the reads already: devices
    /// count it.
    pub write_bytes: u64,
}

/// Why a reading was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It could not be read.
    Unreadable,
    /// It decreased, and did not wrap.
    JumpedBack,
    /// It increased by more than the device can carry.
    Implausible,
    /// It stands still although its users run.
    Stopped,
}

impl Fault {
    /// A description for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "cannot be read",
            Self::JumpedBack => "jumped back",
            Self::Implausible => "grew by more than the device can carry",
            Self::Stopped => "stands still although its users run",
        }
    }
}

/// The known properties of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CounterSpec {
    /// Bits until it wraps: 64, or fewer.
    pub bits: u32,
    /// An upper bound of the device's bandwidth in each direction, in bytes a second.
    pub max_bytes_s: f64,
    /// A counter that stands still for this long while users run has stopped.
    pub stopped_after_ms: f64,
}

impl CounterSpec {
    /// A counter of a simulated device: it does not wrap, and stops for a second at most.
    pub fn simulated() -> Self {
        Self {
            bits: 64,
            max_bytes_s: 1e12,
            stopped_after_ms: 1000.0,
        }
    }
}

/// Validates the readings of one group.
#[derive(Clone, Debug)]
pub struct Follower {
    counter_spec: CounterSpec,
    last: Option<(u64, Counts)>,
    still_ms: f64,
}

/// The traffic between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    pub interval_ms: f64,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Flow {
    /// In both directions.
    pub fn bytes(&self) -> f64 {
        self.read_bytes as f64 + self.write_bytes as f64
    }

    /// Without these bytes of both directions.
    pub fn without(self, bytes: f64) -> Self {
        match bytes > 0.0 {
            false => self,
            true => Self {
                read_bytes: (self.bytes() - bytes).max(0.0) as u64,
                write_bytes: 0,
                ..self
            },
        }
    }

    /// In both directions, in bytes a second.
    pub fn bytes_s(&self) -> f64 {
        self.bytes() * 1000.0 / self.interval_ms
    }
}

impl Follower {
    pub fn new(counter_spec: CounterSpec) -> Self {
        Self {
            counter_spec,
            last: None,
            still_ms: 0.0,
        }
    }

    /// The traffic since the last valid reading; `None` for the first one, and when no time has
    /// passed. `busy`: whether users of the group ran meanwhile.
    ///
    /// # Errors
    /// The reading is invalid; the next one starts anew.
    pub fn follow(
        &mut self,
        t_ns: u64,
        counts: Option<Counts>,
        busy: bool,
    ) -> Result<Option<Flow>, Fault> {
        let Some(counts) = counts else {
            self.last = None;
            return Err(Fault::Unreadable);
        };
        let Some((since, before)) = self.last else {
            self.last = Some((t_ns, counts));
            return Ok(None);
        };
        if t_ns <= since {
            return Ok(None);
        }
        self.last = Some((t_ns, counts));
        let interval_ms = (t_ns - since) as f64 / 1e6;
        let read_bytes = self.grown(interval_ms, before.read_bytes, counts.read_bytes)?;
        let write_bytes = self.grown(interval_ms, before.write_bytes, counts.write_bytes)?;
        self.still_ms = if busy && read_bytes == 0 && write_bytes == 0 {
            self.still_ms + interval_ms
        } else {
            0.0
        };
        if self.still_ms >= self.counter_spec.stopped_after_ms {
            return Err(Fault::Stopped);
        }
        Ok(Some(Flow {
            interval_ms,
            read_bytes,
            write_bytes,
        }))
    }

    fn grown(&self, interval_ms: f64, before: u64, now: u64) -> Result<u64, Fault> {
        let mask = u64::MAX >> (64 - self.counter_spec.bits.clamp(1, 64));
        let grown = now.wrapping_sub(before) & mask;
        let most = self.counter_spec.max_bytes_s * interval_ms / 1000.0;
        if grown as f64 <= most {
            Ok(grown)
        } else if now < before {
            Err(Fault::JumpedBack)
        } else {
            Err(Fault::Implausible)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn follower(bits: u32) -> Follower {
        Follower::new(CounterSpec {
            bits,
            max_bytes_s: 20e9,
            stopped_after_ms: 500.0,
        })
    }

    fn counts(read_bytes: u64, write_bytes: u64) -> Option<Counts> {
        Some(Counts {
            read_bytes,
            write_bytes,
        })
    }

    #[test]
    fn reads_and_writes_both_count() {
        let mut follower = follower(64);
        assert_eq!(follower.follow(0, counts(5, 7), true), Ok(None));
        let flow = follower.follow(100 * MS, counts(5 + 400, 7 + 100), true);
        assert!((flow.unwrap().unwrap().bytes_s() - 5000.0).abs() < 1e-9);
        assert_eq!(follower.follow(100 * MS, counts(999, 999), true), Ok(None));
    }

    #[test]
    fn an_invalid_reading_is_rejected_and_the_next_ones_are_used() {
        let mut follower = follower(64);
        let _ = follower.follow(0, counts(1 << 40, 0), true);
        let back = follower.follow(10 * MS, counts(0, 0), true);
        assert_eq!(back, Err(Fault::JumpedBack));
        let flow = follower.follow(20 * MS, counts(1000, 0), true);
        assert_eq!(flow.unwrap().unwrap().read_bytes, 1000);
        let lie = follower.follow(30 * MS, counts(1 << 50, 0), true);
        assert_eq!(lie, Err(Fault::Implausible));
        let unreadable = follower.follow(40 * MS, None, true);
        assert_eq!(unreadable, Err(Fault::Unreadable));
        assert_eq!(follower.follow(50 * MS, counts(1 << 50, 0), true), Ok(None));
    }

    #[test]
    fn a_counter_may_stand_still_while_no_user_runs() {
        let mut follower = follower(64);
        let _ = follower.follow(0, counts(9, 9), false);
        for step in 1..20 {
            assert!(
                follower
                    .follow(step * 100 * MS, counts(9, 9), false)
                    .is_ok()
            );
        }
        let found: Vec<_> = (20..26)
            .map(|step| follower.follow(step * 100 * MS, counts(9, 9), true))
            .collect();
        assert!(found[..4].iter().all(Result::is_ok));
        assert_eq!(found[4], Err(Fault::Stopped));
        assert!(follower.follow(2600 * MS, counts(10, 9), true).is_ok());
    }

    proptest! {
        #[test]
        fn wrapping_loses_nothing(
            start in any::<u64>(), steps in prop::collection::vec(0u64..100_000_000, 1..50),
            bits in prop_oneof![Just(48u32), Just(56), Just(64)],
        ) {
            let mask = u64::MAX >> (64 - bits);
            let mut follower = follower(bits);
            let mut value = start & mask;
            let _ = follower.follow(0, counts(value, 0), true);
            for (step, grown) in steps.iter().enumerate() {
                value = value.wrapping_add(*grown) & mask;
                let t_ns = (step as u64 + 1) * 10 * MS;
                if let Ok(Some(flow)) = follower.follow(t_ns, counts(value, 0), true) {
                    prop_assert_eq!(flow.read_bytes, *grown);
                } else {
                    prop_assert_eq!(*grown, 0);
                }
            }
        }
    }
}
