//! The clocks of a sleep: aligning the kernel's and firmware's times with those of user space.

use dormouse_report::{Clock, Event, Kind};

use super::kernel_steps::{Mark, Way};
use crate::system::clock::{ResetClock, boottime_ns, event, monotonic_ns};
use crate::system::module::Phases;

/// The phase of events on the way down, and of those on the way up.
pub const DOWN: &str = "suspend";
pub const UP: &str = "resume";

/// The same instant on two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Instants {
    pub monotonic_ns: u64,
    pub since_reset_ns: u64,
}

impl Instants {
    pub fn now(reset_clock: &ResetClock) -> Option<Instants> {
        Some(Instants {
            monotonic_ns: monotonic_ns(),
            since_reset_ns: reset_clock.now_ns()?,
        })
    }
}

/// A step of the kernel on the clock of its module's and firmware's times, from an instant
/// of the same power cycle.
pub fn kernel_step(mark: &Mark, at: Instants) -> Option<Event> {
    let since_ns = mark.t_ns as i128 - i128::from(at.monotonic_ns);
    let t_ns = u64::try_from(i128::from(at.since_reset_ns) + since_ns).ok()?;
    let phase = match mark.way {
        Way::Down => DOWN,
        Way::Up => UP,
    };
    let event = Event::new(t_ns, Clock::Firmware, phase, mark.name, mark.kind);
    Some(event.with("source", "kernel"))
}

/// A mark with the other clocks beside, so that a report can align them.
pub fn mark_with_clocks(phase: &str, name: &str, reset_clock: &ResetClock) -> Event {
    let mark = event(phase, name, Kind::Mark).with("boottime_ns", boottime_ns());
    match reset_clock.now_ns() {
        Some(since_reset_ns) => mark.with("since_reset_ns", since_reset_ns),
        None => mark,
    }
}

/// From the write to /sys/power/state to the module's last step. Both count from the reset of the
/// power cycle in which the machine went to sleep.
pub fn devices_s(
    phases: &Phases,
    prepare_before: Option<(u64, u64)>,
    enter_ns: Option<u64>,
) -> Option<f64> {
    let prepare = *phases.get("prepare")?;
    if Some(prepare) == prepare_before {
        return None;
    }
    plausible_s(enter_ns?, prepare.0)
}

/// From the end of firmware's restore to user space. Both count from the reset that woke it.
pub fn resume_kernel_s(phases: &Phases, resumed_ns: Option<u64>) -> Option<f64> {
    plausible_s(phases.get("restore-copy")?.1, resumed_ns?)
}

/// A difference that two clocks which disagree would not give.
fn plausible_s(begin_ns: u64, end_ns: u64) -> Option<f64> {
    let difference_ns = end_ns.checked_sub(begin_ns)?;
    (begin_ns > 0 && difference_ns < 600_000_000_000).then(|| difference_ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_time_needs_a_prepare_phase_of_this_sleep() {
        let phases = Phases::from([("prepare".to_owned(), (3_500_000_000, 3_600_000_000))]);
        assert_eq!(devices_s(&phases, None, Some(3_000_000_000)), Some(0.5));
        assert_eq!(
            devices_s(&phases, Some((3_500_000_000, 3_600_000_000)), Some(1)),
            None
        );
        assert_eq!(devices_s(&phases, None, None), None);
    }

    #[test]
    fn clocks_that_disagree_give_no_number() {
        assert_eq!(plausible_s(5, 4), None);
        assert_eq!(plausible_s(0, 4), None);
        assert_eq!(plausible_s(1, u64::MAX), None);
    }
}
