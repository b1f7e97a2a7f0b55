//! The expected outcome of a cycle, as a pure function.

use super::class::Class;
use super::phase::Phase;
use crate::cycle::line::Outcome;

/// A power cut, by what it left behind. When it was meant to happen plays no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The last phase that the machine reported before it lost its power. It may have been in a
    /// later one, never in an earlier one.
    pub phase: Phase,
    /// The header on CXL memory says that this cycle's image is committed and not consumed.
    pub resumable: bool,
}

impl Cut {
    /// Whether the machine must resume. User space that was seen running decides against it,
    /// whatever the header says; a machine that had switched itself off must wake.
    fn must_resume(self) -> bool {
        !self.phase.has_run_on() && (self.resumable || self.phase == Phase::Off)
    }
}

/// What must not be, if the outcome is not what the promise says.
///
/// Undisturbed, a machine resumes. After a power cut it resumes if and only if firmware had
/// committed an image of this cycle and not consumed it; else it boots, and firmware says why.
pub fn judge(outcome: Outcome, reason: &str, cut: Option<Cut>) -> Result<(), (Class, String)> {
    let in_phase = cut.map_or("", |cut| cut.phase.name());
    let must_resume = cut.is_none_or(Cut::must_resume);
    match (outcome, cut) {
        (Outcome::Resumed, _) if must_resume => Ok(()),
        (Outcome::Resumed, Some(cut)) if cut.phase.has_run_on() => Err((
            Class::ResumedTwice,
            format!("resumed although power was cut while {in_phase}"),
        )),
        (Outcome::Resumed, _) => Err((
            Class::ResumedTwice,
            format!("resumed without a committed image: power was cut while {in_phase}"),
        )),
        (Outcome::ColdBoot, _) if reason.is_empty() => Err((
            Class::ColdBootWithoutReason,
            "firmware gave no reason for the cold boot".to_owned(),
        )),
        (Outcome::ColdBoot, _) if must_resume => {
            Err((Class::UnexpectedColdBoot, reason.to_owned()))
        }
        (Outcome::ColdBoot, _) => Ok(()),
        (Outcome::Refused, _) => Err((Class::Refused, reason.to_owned())),
        (Outcome::Failed, _) => Err((Class::Lab, reason.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(outcome: Outcome, reason: &str, cut: Option<Cut>) -> Option<Class> {
        judge(outcome, reason, cut).err().map(|(class, _)| class)
    }

    fn cut(phase: Phase, resumable: bool) -> Option<Cut> {
        Some(Cut { phase, resumable })
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
    fn without_a_committed_image_only_a_cold_boot_with_a_reason_is_right() {
        for phase in Phase::ALL {
            let lost = cut(phase, false);
            let off = phase == Phase::Off;
            let expected = off.then_some(Class::UnexpectedColdBoot);
            assert_eq!(class(Outcome::ColdBoot, "incomplete", lost), expected);
            let silent = class(Outcome::ColdBoot, "", lost);
            assert_eq!(silent, Some(Class::ColdBootWithoutReason), "{phase:?}");
            let expected = (!off).then_some(Class::ResumedTwice);
            assert_eq!(class(Outcome::Resumed, "", lost), expected, "{phase:?}");
        }
    }

    #[test]
    fn a_committed_image_that_nobody_consumed_is_resumed_however_late_the_host_heard() {
        for phase in Phase::ALL.into_iter().filter(|phase| !phase.has_run_on()) {
            let kept = cut(phase, true);
            assert_eq!(class(Outcome::Resumed, "", kept), None, "{phase:?}");
            let cold = class(Outcome::ColdBoot, "user-digest", kept);
            assert_eq!(cold, Some(Class::UnexpectedColdBoot), "{phase:?}");
        }
    }

    #[test]
    fn user_space_that_ran_on_is_never_resumed_again_whatever_the_header_says() {
        for phase in Phase::ALL.into_iter().filter(|phase| phase.has_run_on()) {
            for resumable in [false, true] {
                let resumed = class(Outcome::Resumed, "", cut(phase, resumable));
                assert_eq!(resumed, Some(Class::ResumedTwice), "{phase:?}");
                let cold = class(Outcome::ColdBoot, "consumed", cut(phase, resumable));
                assert_eq!(cold, None, "{phase:?}");
            }
        }
    }
}
