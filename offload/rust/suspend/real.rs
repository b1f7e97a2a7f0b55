//! A phase with the board's own devices: the executor's small core has the board's memory mapped, and what it
//! accesses of devices is done on the board, which stands still meanwhile. Where the thread must wait, the kernel's
//! scheduler runs in the executor as everything else: other threads, and in the idle thread the board goes on until
//! it has an interrupt, whose handler the executor runs, too. Or the big core does all that until the thread has
//! waited ([`Settings::scheduler`]).

use crate::error::OffloadError;
use crate::guest::Guest;
use crate::guest::natives::hand_back_at;
use crate::machine;
use crate::machine::job::Device;
use crate::machine::kept::Kept;
use crate::parts::Parts;
use crate::suspend::big_core::Idle;
use crate::suspend::board::{Board, Window};
use crate::suspend::cuts::Cuts;
use crate::suspend::kernel::{COUNTER_MHZ, Kernel, Running};
use crate::suspend::phase::{Frame, Phase, Scheduler, Settings, job_to_go_on};

/// Where a thread gives up the processor; each returns when it has it again. The second is for kernel code that
/// only offers it.
const WAITS: [&str; 2] = ["schedule", "__schedule"];
/// What of the pruner's list is the scheduler's: in its place, threads would not change.
const SCHEDULING: [&str; 5] = [
    "schedule",
    "preempt_schedule",
    "__cond_resched",
    "msleep",
    "usleep_range_state",
];
/// The kernel's handler of every interrupt; it gets what was interrupted.
const INTERRUPT_HANDLER: &str = "generic_handle_arch_irq";
/// Everything that is not memory: `target/device_forward.c` takes physical addresses.
const EVERYTHING: Device = Device {
    physical: 0,
    bytes: u32::MAX,
    host: 0,
};

/// Addresses of those functions that the kernel has.
fn addresses(guest: &Guest, names: &[&str]) -> Vec<u32> {
    let known = names.iter().filter_map(|name| guest.symbols.get(*name));
    known.map(|address| address & !1).collect()
}

/// Runs one; the big core goes on behind it, with the next function that is run to.
///
/// # Errors
/// The board or the small core does not do what it must.
pub(super) fn one_phase(
    parts: &Parts,
    kernel: &Kernel,
    running: &mut Running,
    (settings, windows, kept, cuts): (&Settings<'_>, &[Window], Option<&Kept>, &mut Option<Cuts>),
    (cycle, function): (u32, &str),
) -> Result<Phase, OffloadError> {
    let mut arrival = running.run_to(function)?;
    let frame = Frame::of(&arrival);
    let mut phase = Phase::of(cycle, function);
    loop {
        let guest = kernel.guest(&arrival.memory)?;
        let mut job = job_to_go_on(&guest, &arrival, frame, settings)?;
        job.devices = vec![EVERYTHING];
        job.presets.clear();
        job.dump = (0, 0);
        let (waits, idle) = match settings.scheduler {
            Scheduler::Small => {
                let own = addresses(&guest, &SCHEDULING);
                job.natives.retain(|(at, _)| !own.contains(&(at & !1)));
                job.irq_handler = guest.address(INTERRUPT_HANDLER)?;
                (Vec::new(), Some(Idle::of(&guest)?))
            }
            Scheduler::Big => (addresses(&guest, &WAITS), None),
        };
        job.natives.extend(waits.iter().map(|at| hand_back_at(*at)));
        phase.cut_after = cuts.as_mut().and_then(|cuts| cuts.cut(function, &mut job));
        let memory = running.memory();
        let mut board = Board::new(running.gdb(), windows, idle)?;
        let wanted = (kept, settings.energy);
        let outcome = machine::run_on_board(parts, &guest, &job, &memory, &mut board, wanted);
        board.leave()?;
        for (name, count) in &board.accesses {
            *phase.accesses.entry((*name).to_owned()).or_default() += count;
        }
        phase.idle_waits += board.waits.0;
        phase.idle_us += board.waits.1;
        let refused = board.refused.take();
        let (outcome, cycles) = outcome?;
        phase.cycles = match (phase.cycles, cycles) {
            (Some(before), Some(cycles)) => Some(before.plus(cycles)),
            (before, cycles) => before.or(cycles),
        };
        phase.add(frame, &outcome);
        if let (Some(refused), true) = (refused, outcome.stop.starts_with("unmapped-")) {
            "refused-access".clone_into(&mut phase.end.stop);
            phase.end.explanation = refused;
        }
        if let (Some(cuts), false) = (cuts.as_mut(), phase.is_cut()) {
            cuts.ran(function, &outcome);
        }
        if !phase.goes_on() {
            return Ok(phase);
        }
        running.take_over(&guest, &arrival, &outcome)?;
        if phase.end.stop != "fallback" || !waits.contains(&outcome.registers[15]) {
            return Ok(phase);
        }
        let since = arrival.clocks[0];
        arrival = running.run_to_frame(outcome.registers[14], outcome.registers[13])?;
        phase.waits += 1;
        phase.big_core_us += u64::from(arrival.clocks[0].wrapping_sub(since) / COUNTER_MHZ);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::natives::native_names;

    #[test]
    fn what_the_scheduler_has_itself_is_in_the_pruners_list() {
        let pruned = native_names();
        for name in SCHEDULING {
            assert!(pruned.iter().any(|known| known == name), "{name}");
        }
    }
}
