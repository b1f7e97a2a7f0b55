//! Which outcome of a cycle is right: the promise, as a pure function.

use super::class::Class;
use super::phase::Phase;
use crate::line::Outcome;

/// What must not be, if the outcome is not what the promise says; `cut` is the phase in which
/// power was cut.
///
/// Undisturbed, a machine resumes. After a power cut it resumes if firmware had committed an
/// image and user space has not run since; else it boots, and firmware says why. In the phases
/// between, where the host cannot know on which side of the commit power was cut, both are right.
pub fn judge(outcome: Outcome, reason: &str, cut: Option<Phase>) -> Result<(), (Class, String)> {
    let in_phase = cut.map_or("", Phase::name);
    match (outcome, cut) {
        (Outcome::Resumed, Some(phase)) if phase.has_run_on() => Err((
            Class::ResumedTwice,
            format!("resumed although power was cut while {in_phase}"),
        )),
        (Outcome::Resumed, Some(phase)) if phase <= Phase::Migrating => Err((
            Class::ResumedTwice,
            format!("resumed from an older image: power was cut while {in_phase}"),
        )),
        (Outcome::Resumed, _) => Ok(()),
        (Outcome::ColdBoot, _) if reason.is_empty() => Err((
            Class::ColdBootWithoutReason,
            "firmware gave no reason for the cold boot".to_owned(),
        )),
        // Cutting the power of a machine that is off does nothing.
        (Outcome::ColdBoot, None | Some(Phase::Off)) => {
            Err((Class::UnexpectedColdBoot, reason.to_owned()))
        }
        (Outcome::ColdBoot, Some(_)) => Ok(()),
        (Outcome::Refused, _) => Err((Class::Refused, reason.to_owned())),
        (Outcome::Failed, _) => Err((Class::Lab, reason.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(outcome: Outcome, reason: &str, cut: Option<Phase>) -> Option<Class> {
        judge(outcome, reason, cut).err().map(|(class, _)| class)
    }

    #[test]
    fn undisturbed_only_a_resume_is_right() {
        assert_eq!(class(Outcome::Resumed, "", None), None);
        let cold = class(Outcome::ColdBoot, "saved-digest", None);
        assert_eq!(cold, Some(Class::UnexpectedColdBoot));
        let refused = class(Outcome::Refused, "no-space", None);
        assert_eq!(refused, Some(Class::Refused));
    }

    #[test]
    fn after_a_power_cut_a_reasoned_cold_boot_is_right_in_every_phase_but_off() {
        for phase in Phase::ALL {
            let right = class(Outcome::ColdBoot, "incomplete", Some(phase));
            let expected = (phase == Phase::Off).then_some(Class::UnexpectedColdBoot);
            assert_eq!(right, expected, "{phase:?}");
            let silent = class(Outcome::ColdBoot, "", Some(phase));
            assert_eq!(silent, Some(Class::ColdBootWithoutReason), "{phase:?}");
        }
    }

    #[test]
    fn what_ran_on_or_was_never_saved_is_not_resumed() {
        for (phase, right) in [
            (Phase::Preparing, false),
            (Phase::Migrating, false),
            (Phase::FirmwareDown, true),
            (Phase::Off, true),
            (Phase::FirmwareUp, true),
            (Phase::KernelUp, true),
            (Phase::ComingHome, false),
            (Phase::Awake, false),
        ] {
            let expected = (!right).then_some(Class::ResumedTwice);
            assert_eq!(
                class(Outcome::Resumed, "", Some(phase)),
                expected,
                "{phase:?}"
            );
        }
    }
}
