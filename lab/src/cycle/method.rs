//! What differs between the ways to sleep: the request, the signs of progress, the answer.

use dormouse_guest::protocol::Call;
use dormouse_report::event::Event;
use serde_json::Value;

use crate::cycle::line::{CycleLine, ResumeTimes, SuspendTimes};
use crate::emulator::power::{PowerOn, Signal};
use crate::error::LabError;

/// What the host itself knows of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The request to sleep was sent.
    Requested,
    /// The emulator had ended.
    Off,
    /// The emulator was started again.
    PowerOn,
}

/// One way to sleep, for one cycle.
pub(crate) trait SleepMethod {
    /// Sets up in the running system what it would have anyway; not a part of any time.
    ///
    /// # Errors
    /// The agent's, or what this system lacks.
    fn prepare(&mut self, _power: &mut PowerOn) -> Result<(), LabError> {
        Ok(())
    }

    /// The request to the agent. The reply comes after waking, or when sleep did not happen.
    fn request(&self) -> Call;

    fn reached(&mut self, moment: Moment, at_ns: u64);

    /// Hears everything on the way down.
    fn receive_down(&mut self, signal: &Signal);

    /// Hears everything on the way up.
    fn receive_up(&mut self, signal: &Signal);

    /// Whether user space has reported that it runs again.
    fn is_running(&self) -> bool;

    fn suspend_times(&self) -> SuspendTimes;

    fn resume_times(&self) -> ResumeTimes;

    /// What the timeline does not know yet of the way down.
    fn events_down(&self) -> Vec<Event> {
        Vec::new()
    }

    /// And of the way up.
    fn events_up(&self) -> Vec<Event> {
        Vec::new()
    }

    /// Takes the answer after waking into the line.
    ///
    /// # Errors
    /// It says that something failed, or is no such answer.
    fn woken(&mut self, answer: Value, line: &mut CycleLine) -> Result<(), LabError>;

    /// Why sleep did not happen, from the answer of a system whose power was never gone.
    ///
    /// # Errors
    /// It claims success, or is no such answer.
    fn refusal(&self, answer: Value) -> Result<String, LabError>;

    /// Why the machine booted instead of waking, from the console of that power-on.
    fn cold_boot_reason(&self, console: &str) -> Option<String>;

    /// Whether the console of that power-on agrees that the machine woke.
    ///
    /// # Errors
    /// What is missing.
    fn proof(&self, _console: &str) -> Result<(), String> {
        Ok(())
    }
}
