//! After waking: until all pages have migrated back.

use std::time::Duration;

use dormouse_guest::protocol::{Call, RunPlan, RunResult};

use super::Driver;
use crate::emulator::power::{PowerOn, Signal, reply_to};
use crate::stress::class::Class;
use crate::stress::line::StressLine;
use crate::stress::plan::{CyclePlan, Home};
use crate::stress::trouble::{Stage, Stop, Trouble};
use crate::stress::watch::{Watch, stop, wait_or_cut};

const HOME_TIMEOUT: Duration = Duration::from_secs(420);
/// With `--home never` the machine runs so long on CXL pages.
const ON_CXL: Duration = Duration::from_millis(400);

/// Awake and migrated back, DRAM is the only node with memory.
const NODES_WITH_MEMORY: &str = "nodes=$(cat /sys/devices/system/node/has_memory); \
    [ \"$nodes\" = 0 ] || { dormouse home --json; echo \"memory on nodes $nodes\" >&2; exit 1; }";

impl Driver {
    /// Waits until all pages are back in DRAM; false if power was cut meanwhile.
    pub(super) fn migrate_back(
        &mut self,
        power: &mut PowerOn,
        request: u64,
        plan: &CyclePlan,
        watch: &mut Watch,
        line: &mut StressLine,
    ) -> Result<bool, Stop> {
        let Some(slept) =
            self.answer(power, request, "the end of `dormouse sleep`", watch, line)?
        else {
            return Ok(false);
        };
        expect_success("`dormouse sleep` after waking", &slept)?;
        let shell = match plan.home {
            Home::Wait => None,
            Home::Background => Some("while pgrep -x dormouse >/dev/null; do sleep 0.05; done"),
            Home::Later => Some("exec dormouse home --json"),
        };
        if plan.home == Home::Later {
            std::thread::sleep(ON_CXL.min(watch.until_cut()));
        }
        for shell in shell.into_iter().chain([NODES_WITH_MEMORY]) {
            let call = Call::Run(RunPlan {
                argv: ["/bin/sh", "-c", shell].map(String::from).to_vec(),
                stdin: String::new(),
                cgroup: None,
                timeout_s: HOME_TIMEOUT.as_secs(),
            });
            let request = match power.send(call) {
                Ok(request) => request,
                Err(error) => return Err(stop(Stage::Home, error, power)),
            };
            let Some(result) = self.answer(power, request, "pages to migrate back", watch, line)?
            else {
                return Ok(false);
            };
            expect_success(shell, &result)?;
        }
        Ok(true)
    }

    /// A program's end in the machine; None if power was cut meanwhile.
    pub(super) fn answer(
        &mut self,
        power: &mut PowerOn,
        request: u64,
        what: &str,
        watch: &mut Watch,
        line: &mut StressLine,
    ) -> Result<Option<RunResult>, Stop> {
        let seen = wait_or_cut(power, Stage::Home, what, HOME_TIMEOUT, watch, |signal| {
            reply_to(signal, request)
        })?;
        match seen {
            None => {
                self.cut(power, watch, line);
                Ok(None)
            }
            Some(Ok(value)) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| Trouble::new(Class::Lab, error.to_string()).into()),
            Some(Err(error)) => Err(Trouble::new(Class::NoWayHome, error).into()),
        }
    }

    pub(super) fn wait_for_cut(
        &mut self,
        power: &mut PowerOn,
        watch: &mut Watch,
        line: &mut StressLine,
    ) -> Result<(), Stop> {
        let never = |_: &Signal| None::<()>;
        wait_or_cut(
            power,
            Stage::Awake,
            "the power cut",
            HOME_TIMEOUT,
            watch,
            never,
        )?;
        self.cut(power, watch, line);
        Ok(())
    }
}

fn expect_success(what: &str, result: &RunResult) -> Result<(), Stop> {
    if result.status == 0 {
        return Ok(());
    }
    Err(Trouble::new(
        Class::NoWayHome,
        format!("{what} ended with {}: {}", result.status, refusal(result)),
    )
    .into())
}

/// The last line of each stream of a program, on one line.
pub(super) fn refusal(result: &RunResult) -> String {
    let said = |text: &str| {
        text.lines()
            .rfind(|line| !line.trim().is_empty())
            .map(str::to_owned)
    };
    [said(&result.stdout), said(&result.stderr)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" | ")
}
