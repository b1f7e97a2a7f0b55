//! The device phases of a suspend and a resume, in the kernel's order.

use serde::{Deserialize, Serialize};

/// Down or up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Children and consumers first.
    Suspend,
    /// Parents and suppliers first.
    Resume,
}

/// One of the eight passes that the kernel makes over its list of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DevicePhase {
    /// `dpm_prepare`
    Prepare,
    /// `dpm_suspend`
    Suspend,
    /// `dpm_suspend_late`
    SuspendLate,
    /// `dpm_suspend_noirq`
    SuspendNoirq,
    /// `dpm_resume_noirq`
    ResumeNoirq,
    /// `dpm_resume_early`
    ResumeEarly,
    /// `dpm_resume`
    Resume,
    /// `dpm_complete`
    Complete,
}

impl DevicePhase {
    /// All, in the order in which a suspend and its resume pass through them.
    pub const ALL: [DevicePhase; 8] = [
        DevicePhase::Prepare,
        DevicePhase::Suspend,
        DevicePhase::SuspendLate,
        DevicePhase::SuspendNoirq,
        DevicePhase::ResumeNoirq,
        DevicePhase::ResumeEarly,
        DevicePhase::Resume,
        DevicePhase::Complete,
    ];

    /// Those that the kernel can run asynchronously; `prepare` and `complete` never are.
    pub const SCHEDULED: [DevicePhase; 6] = {
        let [_, scheduled @ .., _] = DevicePhase::ALL;
        scheduled
    };

    /// The name in recordings and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            DevicePhase::Prepare => "prepare",
            DevicePhase::Suspend => "suspend",
            DevicePhase::SuspendLate => "suspend_late",
            DevicePhase::SuspendNoirq => "suspend_noirq",
            DevicePhase::ResumeNoirq => "resume_noirq",
            DevicePhase::ResumeEarly => "resume_early",
            DevicePhase::Resume => "resume",
            DevicePhase::Complete => "complete",
        }
    }

    /// The kernel's name for the pass, in the event `suspend_resume`.
    pub fn span_name(self) -> &'static str {
        match self {
            DevicePhase::Prepare => "dpm_prepare",
            DevicePhase::Suspend => "dpm_suspend",
            DevicePhase::SuspendLate => "dpm_suspend_late",
            DevicePhase::SuspendNoirq => "dpm_suspend_noirq",
            DevicePhase::ResumeNoirq => "dpm_resume_noirq",
            DevicePhase::ResumeEarly => "dpm_resume_early",
            DevicePhase::Resume => "dpm_resume",
            DevicePhase::Complete => "dpm_complete",
        }
    }

    /// The phase of a pass by the kernel's name.
    pub fn from_span_name(name: &str) -> Option<DevicePhase> {
        Self::ALL
            .into_iter()
            .find(|phase| phase.span_name() == name)
    }

    /// `prepare` walks the list as a resume does, `complete` as a suspend does; the rest as they
    /// are called.
    pub fn direction(self) -> Direction {
        match self {
            DevicePhase::Suspend
            | DevicePhase::SuspendLate
            | DevicePhase::SuspendNoirq
            | DevicePhase::Complete => Direction::Suspend,
            DevicePhase::Prepare
            | DevicePhase::ResumeNoirq
            | DevicePhase::ResumeEarly
            | DevicePhase::Resume => Direction::Resume,
        }
    }
}

impl std::fmt::Display for DevicePhase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.as_str())
    }
}
