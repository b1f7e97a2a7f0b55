//! What the phases take on the big core alone: the board runs one suspend and resume by itself, and a plugin of the
//! emulator counts its instructions, those in delay loops apart.

use crate::energy::{BigRun, SmallRun, Span};
use crate::error::OffloadError;
use crate::parts::Parts;
use crate::suspend::FUNCTIONS;
use crate::suspend::kernel::{COUNTER_MHZ, Kernel};
use crate::suspend::phase::Phase;

/// `-icount shift=0`: an instruction takes a nanosecond of the board's time.
const INSTRUCTIONS_PER_US: f64 = 1000.0;
/// When the board stops for its debugger, its clock goes on to the timer's next interrupt (`sleep=off`, HZ_100): what
/// is between two stops is up to this much too long.
const STOP_US: f64 = 10_000.0;

/// Without what so many stops have added, and with it.
fn without_stops(us: f64, stops: u32) -> Span {
    Span((us - f64::from(stops) * STOP_US).max(0.0), us.max(0.0))
}

/// What was counted between two instants, in instructions and ticks of the board's counter.
fn run_between(before: ([u64; 2], u32), after: ([u64; 2], u32)) -> BigRun {
    let [all, waiting] = [0, 1].map(|at| after.0[at].saturating_sub(before.0[at]));
    let us = f64::from(after.1.wrapping_sub(before.1)) / f64::from(COUNTER_MHZ);
    BigRun {
        instructions: all - waiting.min(all),
        busy_wait_us: waiting as f64 / INSTRUCTIONS_PER_US,
        // The counter's tick is longer than an instruction.
        idle_us: without_stops(us - all as f64 / INSTRUCTIONS_PER_US, 1),
    }
}

/// Each phase of one suspend and resume, on the big core alone.
///
/// # Errors
/// The emulator is missing or has no plugins, or the kernel does not come through.
pub(super) fn measure(parts: &Parts, kernel: &Kernel) -> Result<Vec<BigRun>, OffloadError> {
    let mut running = kernel.boot_counted(&parts.file("count.so"))?;
    FUNCTIONS
        .iter()
        .map(|(function, _)| {
            let arrival = running.run_to(function)?;
            let before = (running.counted()?, arrival.clocks[0]);
            let back = running.run_to_frame(arrival.registers[14], arrival.registers[13])?;
            Ok(run_between(before, (running.counted()?, back.clocks[0])))
        })
        .collect()
}

/// The mean of a function's runs in the executor; none if one was not counted.
pub(super) fn mean(phases: &[Phase], function: &str) -> Option<SmallRun> {
    let mut runs = 0;
    let mut sum = SmallRun::default();
    for phase in phases.iter().filter(|phase| phase.function == function) {
        runs += 1;
        let delays = phase.counters.get("waited_us").copied().unwrap_or_default() as f64;
        let idle = without_stops(phase.idle_us as f64, phase.idle_waits);
        sum = sum.plus(SmallRun {
            cycles: phase.cycles?,
            waited_us: Span(delays + idle.0, delays + idle.1),
            big_core_us: without_stops(phase.big_core_us as f64, phase.waits),
        });
    }
    (runs > 0).then(|| sum.mean(runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_executed_nor_a_delay_loop_is_idle() {
        // 50 µs by the counter, which has wrapped; 30,000 instructions, 10,000 of them in delay loops.
        let run = run_between(([1000, 500], u32::MAX - 99), ([31_000, 10_500], 1100));
        assert_eq!(run.instructions, 20_000);
        assert!((run.busy_wait_us - 10.0).abs() < 1e-9, "{run:?}");
        assert!((run.idle_us.1 - 20.0).abs() < 1e-9, "{run:?}");
        // All of that may be the stop's.
        assert!(run.idle_us.0.abs() < 1e-9, "{run:?}");
        let run = run_between(([0, 0], 0), ([1000, 0], COUNTER_MHZ * 30_000));
        assert!((run.idle_us.0 - 19_999.0).abs() < 1e-9, "{run:?}");
        assert!((run.idle_us.1 - 29_999.0).abs() < 1e-9, "{run:?}");
    }
}
