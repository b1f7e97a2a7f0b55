//! Comparisons when the machine runs again, after a wake or a cold boot.

use dormouse_guest::protocol::stress::{Durable, StressCall, StressVerdict};
use dormouse_report::event::Kind;
use serde_json::Value;

use super::Driver;
use crate::stress::class::Class;
use crate::stress::load::{LOAD_TIMEOUT, Running, check_file_systems, stress};
use crate::stress::plan::CyclePlan;
use crate::stress::trouble::{Stage, Stop, Trouble};
use crate::stress::watch::stop;

/// e2fsck takes seconds in an emulated machine: undisturbed cycles have it now and then.
const CHECK_EVERY: u64 = 8;

impl Driver {
    pub(super) fn injected(&self, running: &mut Running, plan: &CyclePlan) -> Result<(), Stop> {
        let Some(injection) = plan.inject else {
            return Ok(());
        };
        match running.power.shell(injection.shell, LOAD_TIMEOUT) {
            Ok(result) if result.status == 0 => Ok(()),
            Ok(result) => Err(Trouble::new(
                Class::Lab,
                format!(
                    "injecting {} failed: {}",
                    injection.name,
                    result.stderr.trim()
                ),
            )
            .into()),
            Err(error) => Err(stop(Stage::Awake, error, &mut running.power)),
        }
    }

    /// Everything, on a machine that went on where it stood; then the load ends.
    pub(super) fn compare(
        &mut self,
        running: &mut Running,
        plan: &CyclePlan,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Stop> {
        self.lab.setting.mark("workload", "verify", Kind::Begin);
        let verdict = match running.power.verify(plan.fill.0) {
            Ok(verdict) => verdict,
            Err(error) => return Err(stop(Stage::Awake, error, &mut running.power)),
        };
        let complaints = verdict.complaints().into_iter();
        troubles.extend(complaints.map(|why| Trouble::new(Class::DataDiffers, why)));
        let verdict: StressVerdict = stress(running, StressCall::Verify)?;
        troubles.extend(Trouble::all(&verdict));
        let verdict: StressVerdict = stress(running, StressCall::Stop)?;
        troubles.extend(Trouble::all(&verdict));
        self.lab.setting.mark("workload", "verify", Kind::End);
        if plan.cycle.is_multiple_of(CHECK_EVERY) {
            check_file_systems(running, troubles)?;
        }
        Ok(())
    }

    /// What must be there after a cold boot: sound file systems, with all that was durable.
    pub(super) fn check_after_boot(
        &mut self,
        running: &mut Running,
        plan: &CyclePlan,
        durable: &Durable,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Stop> {
        stress::<Value>(running, StressCall::Mount)?;
        check_file_systems(running, troubles)?;
        let call = StressCall::VerifyDurable {
            plan: plan.load.clone(),
            durable: durable.clone(),
        };
        let verdict: StressVerdict = stress(running, call)?;
        troubles.extend(Trouble::all(&verdict));
        Ok(())
    }
}
