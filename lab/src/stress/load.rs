//! The load in the machine: starting, checking and comparing it.

use std::time::Duration;

use dormouse_guest::protocol::stress::{Durable, StressCall};
use dormouse_guest::protocol::{Call, Hello, WorkloadPlan};
use serde_json::Value;

use super::class::Class;
use super::plan::CyclePlan;
use super::trouble::{Stage, Stop, Trouble};
use super::watch::stop;
use crate::emulator::power::PowerOn;

/// Starting, comparing and ending the load; e2fsck of two small disks.
pub(super) const LOAD_TIMEOUT: Duration = Duration::from_secs(600);
const COUNTERS: usize = 4;

/// The machine while it is switched on.
pub(super) struct Running {
    pub power: PowerOn,
    pub hello: Hello,
}

/// Fills memory, starts the load, and asks what of it is durable.
pub(super) fn start_load(running: &mut Running, plan: &CyclePlan) -> Result<Durable, Stop> {
    let workload = WorkloadPlan {
        fill_bytes: plan.fill.0,
        threads: running.hello.cpus,
        counters: COUNTERS,
        seed: plan.load.seed,
        redis_keys: 0,
    };
    if let Err(error) = running.power.start_workload(workload) {
        return Err(stop(Stage::Load, error, &mut running.power));
    }
    stress::<Value>(running, StressCall::Start(plan.load.clone()))?;
    std::thread::sleep(Duration::from_millis(plan.warm_up_ms));
    stress(running, StressCall::Durable)
}

/// What e2fsck has to say.
pub(super) fn check_file_systems(
    running: &mut Running,
    troubles: &mut Vec<Trouble>,
) -> Result<(), Stop> {
    let complaints: Vec<String> = stress(running, StressCall::CheckFileSystems)?;
    let complaints = complaints.into_iter();
    troubles.extend(complaints.map(|why| Trouble::new(Class::FileSystem, why)));
    Ok(())
}

/// Asks the guest's load something.
pub(super) fn stress<T: for<'de> serde::Deserialize<'de>>(
    running: &mut Running,
    call: StressCall,
) -> Result<T, Stop> {
    match running.power.query(Call::Stress(call), LOAD_TIMEOUT) {
        Ok(answer) => Ok(answer),
        Err(error) => Err(stop(Stage::Load, error, &mut running.power)),
    }
}
