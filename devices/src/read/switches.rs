//! Scheduling events: how long a callback's thread was on a CPU, and how long CPUs were idle.

use std::collections::{BTreeMap, HashMap};

/// One stay of a thread off the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Away {
    from_ns: u64,
    until_ns: u64,
    /// It could have gone on: another thread had the CPU.
    preempted: bool,
}

/// What was seen of scheduling, in the order of time.
#[derive(Debug, Default)]
pub struct Switches {
    away: HashMap<u32, Vec<Away>>,
    left: HashMap<u32, (u64, bool)>,
    cpus: BTreeMap<u32, Cpu>,
    seen: bool,
}

#[derive(Debug, Default)]
struct Cpu {
    /// Since when it has been idle.
    idle_since_ns: Option<u64>,
    idle: Vec<(u64, u64)>,
    /// Its first event of any kind.
    switched: bool,
}

impl Switches {
    /// A CPU recorded something, of whatever kind.
    pub fn note_cpu(&mut self, cpu: u32) {
        self.cpus.entry(cpu).or_default();
    }

    /// A switch on a CPU; calls come in the order of time.
    pub fn switch(&mut self, t_ns: u64, cpu: u32, previous: u32, preempted: bool, next: u32) {
        self.seen = true;
        let state = self.cpus.entry(cpu).or_default();
        if previous == 0 {
            // If this is its first event, it has been idle since before the trace.
            let since_ns = match (state.idle_since_ns.take(), state.switched) {
                (Some(since_ns), _) => Some(since_ns),
                (None, false) => Some(0),
                (None, true) => None,
            };
            state.idle.extend(since_ns.map(|since_ns| (since_ns, t_ns)));
        } else {
            self.left.insert(previous, (t_ns, preempted));
        }
        if next == 0 {
            state.idle_since_ns = Some(t_ns);
        } else if let Some((from_ns, preempted)) = self.left.remove(&next) {
            self.away.entry(next).or_default().push(Away {
                from_ns,
                until_ns: t_ns,
                preempted,
            });
        }
        state.switched = true;
    }

    /// Whether the trace has scheduling events at all.
    pub fn were_seen(&self) -> bool {
        self.seen
    }

    /// Of a callback of a thread: time on a CPU, and time in which it could have run and another
    /// thread did. None without scheduling events.
    pub fn share(&self, thread: u32, begin_ns: u64, end_ns: u64) -> Option<(u64, u64)> {
        if !self.seen {
            return None;
        }
        let (mut asleep_ns, mut delayed_ns) = (0, 0);
        if let Some(list) = self.away.get(&thread) {
            let first = list.partition_point(|away| away.until_ns <= begin_ns);
            for away in list[first..]
                .iter()
                .take_while(|away| away.from_ns < end_ns)
            {
                let ns = away.until_ns.min(end_ns) - away.from_ns.max(begin_ns);
                if away.preempted {
                    delayed_ns += ns;
                } else {
                    asleep_ns += ns;
                }
            }
        }
        let whole_ns = end_ns.saturating_sub(begin_ns);
        Some((whole_ns.saturating_sub(asleep_ns + delayed_ns), delayed_ns))
    }

    /// Idle time of all CPUs within an interval. CPUs that recorded nothing do not count.
    pub fn idle_ns(&self, begin_ns: u64, end_ns: u64) -> u64 {
        let within = |from_ns: u64, until_ns: u64| {
            until_ns.min(end_ns).saturating_sub(from_ns.max(begin_ns))
        };
        self.cpus
            .values()
            .map(|cpu| {
                let first = cpu
                    .idle
                    .partition_point(|&(_, until_ns)| until_ns <= begin_ns);
                let ended: u64 = cpu.idle[first..]
                    .iter()
                    .take_while(|&&(from_ns, _)| from_ns < end_ns)
                    .map(|&(from_ns, until_ns)| within(from_ns, until_ns))
                    .sum();
                // Idle to the end of the trace; or no switch ever, and yet it recorded something:
                // then one thread had it for itself.
                let open = cpu
                    .idle_since_ns
                    .map_or(0, |since_ns| within(since_ns, u64::MAX));
                ended + open
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_off_the_cpu_is_sleep_or_delay() {
        let mut switches = Switches::default();
        assert_eq!(switches.share(5, 0, 100), None);
        switches.switch(10, 0, 5, false, 0);
        switches.switch(30, 0, 0, true, 5);
        switches.switch(40, 0, 5, true, 6);
        switches.switch(45, 0, 6, false, 5);
        assert_eq!(switches.share(5, 0, 100), Some((75, 5)));
        assert_eq!(switches.share(5, 20, 42), Some((10, 2)));
        assert_eq!(switches.share(9, 0, 10), Some((10, 0)));
    }

    #[test]
    fn a_cpu_is_idle_before_its_first_and_after_its_last_switch_if_they_say_so() {
        let mut switches = Switches::default();
        switches.switch(30, 0, 0, true, 5);
        switches.switch(50, 0, 5, false, 0);
        assert_eq!(switches.idle_ns(20, 60), 10 + 10);
        assert_eq!(switches.idle_ns(35, 45), 0);
    }
}
