//! Energy of a suspend and resume on the big core and on the small one: the formula of Zhai et al. 2017 with what
//! was executed and waited here, the manual's cycles of a Cortex-M3 (`timing`), and the powers and the ratio of
//! cycles that the paper prints. Every result is a range.

pub mod count;
pub mod timing;

use serde::Serialize;

use crate::energy::count::Cycles;

/// Power of a core in milliwatts: table 1 of the paper, OMAP4.
struct Core {
    mhz: f64,
    busy: f64,
    idle: f64,
}

const BIG: Core = Core {
    mhz: 1200.0,
    busy: 672.0,
    idle: 25.2,
};
/// Its clock is not printed; 200 MHz is that of OMAP4's Cortex-M3.
const SMALL: Core = Core {
    mhz: 200.0,
    busy: 21.1,
    idle: 3.8,
};
/// Cycles of the big core for one of a Cortex-M3 in the same code, each in its own: section 3.3 of the paper, "often
/// differ by less than 2 ×".
const BIG_TO_SMALL: Span = Span(0.5, 1.0);

/// At least and at most.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Span(pub f64, pub f64);

impl Span {
    fn map(self, change: impl Fn(f64) -> f64) -> Span {
        Span(change(self.0), change(self.1))
    }

    fn plus(self, other: Span) -> Span {
        Span(self.0 + other.0, self.1 + other.1)
    }
}

/// What a phase took on the big core alone.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct BigRun {
    /// Instructions, without those in delay loops.
    pub instructions: u64,
    /// Microseconds in delay loops.
    pub busy_wait_us: f64,
    /// Microseconds without an instruction.
    pub idle_us: Span,
}

/// What the same phase took in the executor.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct SmallRun {
    /// Executed by the small core, translation included.
    pub cycles: Cycles,
    /// Microseconds in which it waited and executed nothing.
    pub waited_us: Span,
    /// Microseconds in which the big core was on for a thread that waits.
    pub big_core_us: Span,
}

/// Microjoules of a phase, or of all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Energy {
    /// Name of the phase, or `all`.
    pub function: String,
    /// Measured on the big core.
    pub big: BigRun,
    /// Measured on the small core.
    pub small: SmallRun,
    /// X of the formula: cycles of the small core over the big core's.
    pub cycle_ratio: Span,
    /// The formula's `E_cpu`: all of it on the big core.
    pub big_uj: Span,
    /// The formula's `E_pm`: the same waiting, on the small core.
    pub small_uj: Span,
    /// As it ran: the small core waits where it did, and the big core is on, idle at least, where it was.
    pub as_run_uj: Span,
    /// Share of energy that the formula saves; negative: it costs more.
    pub saving: Span,
    /// The share that was saved as it ran.
    pub as_run_saving: Span,
    /// Milliseconds of idle waiting from which on the formula saves energy, executing as here.
    pub break_even_ms: Span,
}

/// 1 µs at 1 mW is 1 nJ.
fn microjoules(us: Span, milliwatts: f64) -> Span {
    us.map(|us| us * milliwatts / 1000.0)
}

fn saving(big: Span, small: Span) -> Span {
    Span(1.0 - small.1 / big.0, 1.0 - small.0 / big.1)
}

/// The formula, with what was measured; `own` are the small core's cycles for an instruction of compiled code.
pub fn energy(function: &str, big: BigRun, small: SmallRun, own: Span) -> Energy {
    let cpi = Span(own.0 * BIG_TO_SMALL.0, own.1 * BIG_TO_SMALL.1);
    let big_cycles = cpi.map(|cpi| cpi * big.instructions as f64);
    let small_cycles = Span(small.cycles.low as f64, small.cycles.high as f64);
    let big_exec = microjoules(big_cycles.map(|cycles| cycles / BIG.mhz), BIG.busy);
    let small_exec = microjoules(small_cycles.map(|cycles| cycles / SMALL.mhz), SMALL.busy);
    let both = |us: f64| Span(us, us);
    let (waits, idles) = (both(big.busy_wait_us), big.idle_us);
    let waiting = |core: &Core| microjoules(waits, core.busy).plus(microjoules(idles, core.idle));
    let big_uj = big_exec.plus(waiting(&BIG));
    let small_uj = small_exec.plus(waiting(&SMALL));
    let on = Span(
        small.big_core_us.0 * BIG.idle / 1000.0,
        small.big_core_us.1 * BIG.busy / 1000.0,
    );
    let as_run_uj = small_exec
        .plus(microjoules(small.waited_us, SMALL.idle))
        .plus(on);
    // The overhead of executing, less what busy waiting saves, is saved again by idling in this time.
    let rest = |more: f64, less: f64| {
        let more = more - less - big.busy_wait_us * (BIG.busy - SMALL.busy) / 1000.0;
        (more / (BIG.idle - SMALL.idle)).max(0.0)
    };
    Energy {
        function: function.to_owned(),
        big,
        small,
        cycle_ratio: Span(small_cycles.0 / big_cycles.1, small_cycles.1 / big_cycles.0),
        big_uj,
        small_uj,
        as_run_uj,
        saving: saving(big_uj, small_uj),
        as_run_saving: saving(big_uj, as_run_uj),
        break_even_ms: Span(
            rest(small_exec.0, big_exec.1),
            rest(small_exec.1, big_exec.0),
        ),
    }
}

impl BigRun {
    /// Both.
    pub fn plus(self, other: BigRun) -> BigRun {
        BigRun {
            instructions: self.instructions + other.instructions,
            busy_wait_us: self.busy_wait_us + other.busy_wait_us,
            idle_us: self.idle_us.plus(other.idle_us),
        }
    }
}

impl SmallRun {
    /// Both.
    pub fn plus(self, other: SmallRun) -> SmallRun {
        SmallRun {
            cycles: self.cycles.plus(other.cycles),
            waited_us: self.waited_us.plus(other.waited_us),
            big_core_us: self.big_core_us.plus(other.big_core_us),
        }
    }

    /// Of the sum of so many.
    pub fn mean(self, runs: u32) -> SmallRun {
        SmallRun {
            cycles: self.cycles.mean(runs),
            waited_us: self.waited_us.map(|us| us / f64::from(runs)),
            big_core_us: self.big_core_us.map(|us| us / f64::from(runs)),
        }
    }
}

/// Each phase, then all of them; none if nothing of the executor's own code was executed.
pub fn of_phases(phases: &[(String, BigRun, SmallRun)]) -> Vec<Energy> {
    let (big, small) = phases.iter().fold(
        (BigRun::default(), SmallRun::default()),
        |(big, small), phase| (big.plus(phase.1), small.plus(phase.2)),
    );
    let Some(own) = small.cycles.own_cpi() else {
        return Vec::new();
    };
    phases
        .iter()
        .map(|(function, big, small)| energy(function, *big, *small, own))
        .chain([energy("all", big, small, own)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(low: u64, high: u64) -> Cycles {
        Cycles {
            low,
            high,
            ..Cycles::default()
        }
    }

    fn near(found: Span, expected: (f64, f64)) {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-3;
        assert!(
            close(found.0, expected.0) && close(found.1, expected.1),
            "{found:?}, not {expected:?}"
        );
    }

    #[test]
    fn the_formula_gives_what_is_computed_by_hand() {
        let big = BigRun {
            instructions: 1_200_000,
            busy_wait_us: 1000.0,
            idle_us: Span(8_000.0, 10_000.0),
        };
        let small = SmallRun {
            cycles: cycles(4_000_000, 8_000_000),
            waited_us: Span(500.0, 600.0),
            big_core_us: Span(50.0, 100.0),
        };
        // An instruction of the big core takes 0.5 to 2 cycles: 500 to 2,000 µs.
        let energy = energy("one", big, small, Span(1.0, 2.0));
        // 0.5 or 2 ms × 672 mW + 1 ms × 672 mW + 8 or 10 ms × 25.2 mW
        near(energy.big_uj, (336.0 + 873.6, 1344.0 + 924.0));
        // 20 or 40 ms × 21.1 mW + 1 ms × 21.1 mW + 8 or 10 ms × 3.8 mW
        near(energy.small_uj, (422.0 + 51.5, 844.0 + 59.1));
        // 0.5 or 0.6 ms × 3.8 mW, and 0.05 ms × 25.2 mW or 0.1 ms × 672 mW
        near(energy.as_run_uj, (422.0 + 1.9 + 1.26, 844.0 + 2.28 + 67.2));
        near(energy.saving, (1.0 - 903.1 / 1209.6, 1.0 - 473.5 / 2268.0));
        near(energy.cycle_ratio, (4.0 / 2.4, 8.0 / 0.6));
        // 844 − 336 − 650.9 is below 0: it saves without any idle time.
        near(energy.break_even_ms, (0.0, 0.0));
        let without = BigRun {
            busy_wait_us: 0.0,
            ..big
        };
        let energy = super::energy("one", without, small, Span(1.0, 2.0));
        near(energy.break_even_ms, (0.0, (844.0 - 336.0) / 21.4));
    }

    #[test]
    fn the_whole_is_the_sum_of_its_phases() {
        let big = BigRun {
            instructions: 100,
            busy_wait_us: 1.0,
            idle_us: Span(1.0, 2.0),
        };
        let mut small = SmallRun {
            cycles: cycles(1000, 2000),
            ..SmallRun::default()
        };
        let phase = |small: SmallRun| ("p".to_owned(), big, small);
        assert!(of_phases(&[phase(small)]).is_empty());
        small.cycles.instructions = 10;
        small.cycles.own_low = 11;
        small.cycles.own_high = 13;
        let energies = of_phases(&[phase(small), phase(small)]);
        assert_eq!(energies.len(), 3);
        near(
            energies[2].big_uj,
            (2.0 * energies[0].big_uj.0, 2.0 * energies[0].big_uj.1),
        );
        assert_eq!(energies[2].function, "all");
    }
}
