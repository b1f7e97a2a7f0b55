//! The moment of sleep, by firmware or by the kernel's snapshot; both return when the machine runs
//! again.

use dormouse_report::Kind;
use dormouse_system::Root;

use super::kernel_steps::{self as steps, KernelSteps};
use super::power;
use super::preflight::Ready;
use super::step::Events;
use super::times::{DOWN, Instants, UP, devices_s, kernel_step, mark_with_clocks, resume_kernel_s};
use crate::error::SleepError;
use crate::report::SleepReport;
use crate::snapshot::save;
use crate::system::clock::{ResetClock, boottime_ns, event, seconds};
use crate::system::module::{self, Status};
use crate::target::Machine;

/// Sleeps by firmware.
pub fn by_firmware(
    root: &Root,
    ready: &Ready,
    status: &Status,
    reset_clock: &mut ResetClock,
    begin_ns: u64,
    report: &mut SleepReport,
    events: Events<'_>,
) -> Result<(), SleepError> {
    let prepare_before = module::phases(root).get("prepare").copied();
    reset_clock.calibrate();
    let mark = mark_with_clocks(DOWN, "enter", reset_clock);
    report.suspend_s = seconds(begin_ns, mark.t_ns);
    events(&mark.with("saved_state", "S3").with("node", ready.cxl.node));
    let kernel_steps = KernelSteps::watch(root);
    let entered_at = Instants::now(reset_clock);
    let entered = power::enter(root);
    let resumed_at = Instants::now(reset_clock);
    let resumed = mark_with_clocks(UP, "resumed", reset_clock);
    for mark in kernel_steps.map(KernelSteps::finish).unwrap_or_default() {
        let at = match mark.way {
            steps::Way::Down => entered_at,
            steps::Way::Up => resumed_at,
        };
        if let Some(event) = at.and_then(|at| kernel_step(&mark, at)) {
            events(&event);
        }
    }
    events(&resumed);
    entered?;
    let phases = module::phases(root);
    let enter_ns = entered_at.map(|at| at.since_reset_ns);
    report.devices_s = devices_s(&phases, prepare_before, enter_ns);
    let after = module::status(root)?;
    power::judge(status, &after)?;
    report.saved_bytes = after.saved_bytes;
    report.restored_bytes = after.restored_bytes;
    let resumed_ns = resumed_at.map(|at| at.since_reset_ns);
    report.resume_kernel_s = resume_kernel_s(&module::phases(root), resumed_ns);
    Ok(())
}

/// Sleeps by the kernel's snapshot.
pub fn by_snapshot(
    machine: &Machine<'_>,
    request: &save::Request<'_>,
    begin_ns: u64,
    report: &mut SleepReport,
    events: Events<'_>,
) -> Result<(), SleepError> {
    let mark = event(DOWN, "enter", Kind::Mark);
    report.suspend_s = seconds(begin_ns, mark.t_ns);
    let node = request.setup.node.node;
    events(&mark.with("saved_state", "snapshot").with("node", node));
    let slept = save::enter(machine, request);
    events(&event(UP, "resumed", Kind::Mark).with("boottime_ns", boottime_ns()));
    let slept = slept?;
    report.saved_bytes = slept.saved_bytes;
    report.restored_bytes = slept.restored_bytes;
    Ok(())
}
