//! The way up: until user space runs, through a power cut if one is asked for.

use std::time::Duration;

use dormouse_guest::protocol::{FromGuest, Hello};

use super::method::{Moment, SleepMethod};
use super::run::{Cycles, Woken};
use crate::emulator::lab::BOOT_TIMEOUT;
use crate::emulator::limit::Limit;
use crate::emulator::power::{PowerOn, What, reply_to};
use crate::error::LabError;
use crate::faults::power_cut::Fault;

/// From power-on to a running user space, or to the agent after a cold boot.
const WAKE_TIMEOUT: Duration = BOOT_TIMEOUT;
/// After the first sign of life the processes run within this time.
const THAW_TIMEOUT: Duration = Duration::from_secs(30);

impl Cycles<'_> {
    /// Powers on, through a fault on the way up if one is asked for, until user space runs.
    pub(super) fn wake(
        &mut self,
        cycle: u64,
        method: &mut dyn SleepMethod,
        before: &Hello,
        request: u64,
    ) -> Result<(PowerOn, Woken), LabError> {
        if let Some(fault) = self.options.fault
            && fault.is_on_the_way_up()
        {
            self.cut_on_the_way_up(cycle, fault, request)?;
        }
        let mut power = self.lab.power_on(None)?;
        method.reached(Moment::PowerOn, power.started_ns);
        let limit = Limit::of_silence(WAKE_TIMEOUT);
        let mut woken = power.wait("waking or a boot", limit, |signal| {
            method.receive_up(signal);
            match &signal.what {
                What::Agent(FromGuest::Ready(hello)) => Some(Woken::ColdBoot {
                    hello: hello.clone(),
                }),
                What::Agent(FromGuest::Awake { boot_id, .. }) if *boot_id == before.boot_id => {
                    Some(Woken::Resumed)
                }
                _ if method.is_running() => Some(Woken::Resumed),
                _ => None,
            }
        })?;
        if matches!(woken, Woken::Resumed) && !method.is_running() {
            // Whoever froze user space says when it runs again; the wake alone is the fallback.
            let thawed = power.wait("user space to run again", THAW_TIMEOUT, |signal| {
                method.receive_up(signal);
                match signal.what {
                    What::Agent(FromGuest::Ready(_)) => Some(false),
                    _ => method.is_running().then_some(true),
                }
            });
            match thawed {
                Ok(true) | Err(LabError::Timeout { .. }) => {}
                Ok(false) => {
                    woken = Woken::ColdBoot {
                        hello: before.clone(),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        Ok((power, woken))
    }

    /// Powers on, and cuts the power where the machine stops on its way up.
    pub(super) fn cut_on_the_way_up(
        &mut self,
        cycle: u64,
        fault: Fault,
        request: u64,
    ) -> Result<(), LabError> {
        let mut power = self.lab.power_on(fault.for_power_on(true))?;
        let what = format!("fault point {}", fault.name);
        let reached = power.wait(
            &what,
            Limit::of_silence(WAKE_TIMEOUT),
            |signal| match &signal.what {
                What::Console(line) if fault.is_reached(line) => Some(true),
                What::Agent(FromGuest::Ready(_)) => Some(false),
                _ => reply_to(signal, request).map(|_| false),
            },
        )?;
        if !reached {
            return Err(fault.passed());
        }
        self.cut(cycle, &mut power);
        Ok(())
    }
}
