//! Classifies a failure by its error and its stage.

use dormouse_guest::protocol::stress::StressVerdict;

use super::class::Class;
use super::kernel_log::Finding;
use crate::emulator::qmp::StopCause;
use crate::error::LabError;

/// One thing that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub class: Class,
    pub reason: String,
}

/// What the machine was asked to do when something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Boot,
    Load,
    Down,
    Up,
    Home,
    Awake,
}

/// Why a cycle does not go on.
#[derive(Debug)]
pub enum Stop {
    Trouble(Trouble),
    /// Nor does the run: Ctrl-C, no emulator.
    End(LabError),
}

impl Trouble {
    pub fn new(class: Class, reason: impl Into<String>) -> Trouble {
        Trouble {
            class,
            reason: reason.into(),
        }
    }

    /// The same, of a kernel that boots: what looks like a wake that hangs is a boot that does.
    #[must_use]
    pub fn while_booting(mut self) -> Trouble {
        if self.class == Class::HangInResume {
            self.class = Class::BootFailed;
        }
        self
    }

    /// What comparing the load found.
    pub fn all(verdict: &StressVerdict) -> Vec<Trouble> {
        let of = |class, reasons: &[String]| {
            let reasons = reasons.iter().take(3).cloned();
            reasons
                .map(|reason| Trouble::new(class, reason))
                .collect::<Vec<_>>()
        };
        [
            of(Class::FilesDiffer, &verdict.files),
            of(Class::RedisLostKeys, &verdict.redis),
            of(Class::LoadDied, &verdict.load),
        ]
        .concat()
    }
}

impl From<Finding> for Trouble {
    fn from(finding: Finding) -> Trouble {
        Trouble::new(finding.class, finding.line)
    }
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Stop {
        Stop::Trouble(trouble)
    }
}

impl Stop {
    /// An error of the lab; `cause` says how the emulator ended, if it did.
    pub fn at(stage: Stage, error: LabError, cause: Option<StopCause>) -> Stop {
        let class = match &error {
            LabError::Interrupted => return Stop::End(error),
            _ if error.exit_code() != 1 => return Stop::End(error),
            LabError::Timeout { .. } => hang(stage),
            LabError::Stopped { .. } => match cause {
                Some(StopCause::Reset) => Class::CrashReset,
                // It gave up, with the reason on its console.
                Some(StopCause::PoweredOff) if stage == Stage::Boot || stage == Stage::Up => {
                    Class::BootFailed
                }
                Some(StopCause::PoweredOff) => Class::CrashReset,
                // A kernel that panicked stays where it is; the console shows that.
                Some(StopCause::Host) | None => Class::Emulator,
            },
            LabError::Guest(_) => match stage {
                Stage::Home => Class::NoWayHome,
                _ => Class::Lab,
            },
            _ => Class::Lab,
        };
        // Only the first line: the console is kept in whole.
        let text = error.to_string();
        let reason = text.lines().next().unwrap_or_default();
        Stop::Trouble(Trouble::new(class, reason))
    }
}

fn hang(stage: Stage) -> Class {
    match stage {
        Stage::Boot => Class::BootFailed,
        Stage::Down => Class::HangInSuspend,
        Stage::Up => Class::HangInResume,
        Stage::Load | Stage::Home | Stage::Awake => Class::HangAwake,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn class(stage: Stage, error: LabError, cause: Option<StopCause>) -> Class {
        match Stop::at(stage, error, cause) {
            Stop::Trouble(trouble) => trouble.class,
            Stop::End(error) => panic!("{error}"),
        }
    }

    fn timeout() -> LabError {
        LabError::Timeout {
            what: "waking".into(),
            timeout: Duration::from_secs(1),
            console: "line\nline".into(),
        }
    }

    fn stopped() -> LabError {
        LabError::Stopped {
            what: "waking".into(),
            how: "it reset itself".into(),
            console: String::new(),
        }
    }

    #[test]
    fn a_hang_is_named_after_what_was_awaited() {
        for (stage, expected) in [
            (Stage::Boot, Class::BootFailed),
            (Stage::Down, Class::HangInSuspend),
            (Stage::Up, Class::HangInResume),
            (Stage::Home, Class::HangAwake),
            (Stage::Awake, Class::HangAwake),
        ] {
            assert_eq!(class(stage, timeout(), None), expected, "{stage:?}");
        }
    }

    #[test]
    fn a_crash_is_told_from_an_emulator_that_ended() {
        let reset = Some(StopCause::Reset);
        assert_eq!(class(Stage::Up, stopped(), reset), Class::CrashReset);
        assert_eq!(class(Stage::Up, stopped(), None), Class::Emulator);
        let off = Some(StopCause::PoweredOff);
        assert_eq!(class(Stage::Up, stopped(), off), Class::BootFailed);
    }

    #[test]
    fn a_boot_that_hangs_is_no_hanging_resume() {
        let hang = Trouble::new(Class::HangInResume, "waking or a boot");
        assert_eq!(hang.while_booting().class, Class::BootFailed);
        let crash = Trouble::new(Class::CrashReset, "");
        assert_eq!(crash.while_booting().class, Class::CrashReset);
    }

    #[test]
    fn an_interruption_is_no_failure_of_the_machine() {
        let stop = Stop::at(Stage::Down, LabError::Interrupted, None);
        assert!(matches!(stop, Stop::End(LabError::Interrupted)));
    }

    #[test]
    fn what_the_load_found_keeps_its_class() {
        let verdict = StressVerdict {
            files: vec!["a".into()],
            redis: vec!["b".into()],
            load: vec!["c".into()],
        };
        let classes: Vec<Class> = Trouble::all(&verdict)
            .into_iter()
            .map(|trouble| trouble.class)
            .collect();
        let expected = [Class::FilesDiffer, Class::RedisLostKeys, Class::LoadDied];
        assert_eq!(classes, expected);
    }
}
