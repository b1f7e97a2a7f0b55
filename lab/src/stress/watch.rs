//! Waiting for a machine whose power may be cut at any instant.

use std::time::{Duration, Instant};

use super::line::StressLine;
use super::phase::{Phase, Tracker};
use super::trouble::{Stage, Stop};
use crate::emulator::limit::Limit;
use crate::emulator::power::{PowerOn, Signal};
use crate::error::LabError;

/// What is watched while the machine sleeps and wakes.
pub(super) struct Watch {
    pub tracker: Tracker,
    pub requested: Instant,
    /// Seconds after `requested`; None when power was cut, or is not to be.
    pub cut_at: Option<Duration>,
    pub cut_phase: Option<Phase>,
}

impl Watch {
    /// Whether the instant of the cut has come.
    pub fn is_due(&self) -> bool {
        self.cut_at.is_some_and(|at| self.requested.elapsed() >= at)
    }

    /// How long it is until the instant of the cut.
    pub fn until_cut(&self) -> Duration {
        self.cut_at.map_or(Duration::MAX, |at| {
            at.saturating_sub(self.requested.elapsed())
        })
    }

    /// Notes that power was cut, after everything that the machine had sent until then was read.
    pub fn cut(&mut self, line: &mut StressLine) {
        self.cut_at = None;
        self.cut_phase = Some(self.tracker.phase());
        line.cut.phase = self.cut_phase;
        line.cut.step = self.tracker.step().to_owned();
    }
}

/// What is picked, or None when it is time to cut the power.
pub(super) fn wait_or_cut<T>(
    power: &mut PowerOn,
    stage: Stage,
    what: &str,
    limit: impl Into<Limit>,
    watch: &mut Watch,
    mut pick: impl FnMut(&Signal) -> Option<T>,
) -> Result<Option<T>, Stop> {
    let limit = limit.into().no_later(watch.until_cut());
    let follows = watch.cut_phase.is_none();
    let tracker = &mut watch.tracker;
    let result = power.wait(what, limit, |signal| {
        // After the cut the phase says where it was.
        if follows {
            tracker.receive(signal);
        }
        pick(signal)
    });
    match result {
        Ok(picked) => Ok(Some(picked)),
        Err(LabError::Timeout { .. }) if watch.is_due() => Ok(None),
        Err(error) => Err(stop(stage, error, power)),
    }
}

/// Why a step came to no end; a machine that hangs is examined first.
pub(super) fn stop(stage: Stage, error: LabError, power: &mut PowerOn) -> Stop {
    let cause = match error {
        LabError::Stopped { .. } => power.stop_cause(),
        LabError::Timeout { .. } => {
            power.examine();
            None
        }
        _ => None,
    };
    Stop::at(stage, error, cause)
}
