//! Options of a run of cycles, and the expected outcome that follows from them.

use dormouse_guest::protocol::HardToMovePlan;

use crate::cycle::cxl::CxlSleep;
use crate::cycle::hibernation::HibernationSleep;
use crate::cycle::hibernation_options::Hibernation;
use crate::cycle::line::{CycleLine, Outcome};
use crate::cycle::method::SleepMethod;
use crate::cycle::seal::Seal;
use crate::emulator::qemu::Parts;
use crate::faults::power_cut::{Expected, Fault};
use crate::faults::tamper::Tamper;
use crate::machine::gpf::Gpf;
use dormouse_system::arguments::Size;

/// The option of `dormouse sleep` that takes the risk.
const ACCEPT_VOLATILE: &str = "--accept-volatile";

/// What to do in each cycle.
#[derive(Clone, Debug)]
pub struct CycleOptions {
    pub cycles: u64,
    pub fill: Size,
    pub seed: u64,
    pub redis_keys: u64,
    /// Processes with hard-to-move memory that sleep too.
    pub hard_to_move: Vec<HardToMovePlan>,
    pub fault: Option<Fault>,
    pub tamper: Option<Tamper>,
    pub gpf: Gpf,
    /// Whose key seals the images; none: they are in plain text.
    pub seal: Option<Seal>,
    /// What the machine boots from when it wakes, where that is another kernel.
    pub parts_after: Option<Parts>,
    /// DRAM of the machine at the next power-on.
    pub dram_after: Option<Size>,
    /// Hibernate; None: sleep in CXL memory.
    pub hibernation: Option<Hibernation>,
    /// Further arguments for `dormouse sleep`.
    pub sleep_arguments: Vec<String>,
    /// Line of shell, run in the machine when memory is filled.
    pub before: Option<String>,
    /// Line of shell, run in the machine when all pages are back in DRAM; its output is kept.
    pub after: Option<String>,
}

impl CycleOptions {
    /// One cycle without a service and without a fault, asleep in CXL memory in plain text.
    pub(crate) fn plain(fill: Size) -> CycleOptions {
        CycleOptions {
            cycles: 1,
            fill,
            seed: 1,
            redis_keys: 0,
            hard_to_move: Vec::new(),
            fault: None,
            tamper: None,
            gpf: Gpf::default(),
            seal: None,
            parts_after: None,
            dram_after: None,
            hibernation: None,
            sleep_arguments: Vec::new(),
            before: None,
            after: None,
        }
    }

    /// The way to sleep, for one cycle of a machine of this size.
    pub(crate) fn method(&self, dram_bytes: u64) -> Box<dyn SleepMethod> {
        match &self.hibernation {
            None => {
                let mut arguments = self.sleep_arguments.clone();
                arguments.extend(self.seal.map(Seal::sleep_arguments).unwrap_or_default());
                Box::new(CxlSleep::new(&arguments))
            }
            Some(options) => Box::new(HibernationSleep::new(options, dram_bytes)),
        }
    }

    /// Whether an outcome is as it must be: awake with the same data; where power was cut or the
    /// image is unusable, a cold boot that says why; where the device may forget, a refusal.
    pub fn is_ok(&self, line: &CycleLine) -> bool {
        let loses = self.gpf == Gpf::Fails;
        // The first image of a replay is the one that is put back later.
        let tampered = match self.tamper {
            Some(Tamper::Replay) => line.cycle > 1,
            other => other.is_some(),
        };
        let changed = self.dram_after.is_some() || self.parts_after.is_some();
        let spoiled = tampered || changed || loses;
        let accepted = self
            .sleep_arguments
            .iter()
            .any(|one| one == ACCEPT_VOLATILE);
        if self.gpf == Gpf::Absent && !accepted {
            return line.outcome == Outcome::Refused
                && line.verified
                && line.reason.starts_with("volatile");
        }
        let expected = match self.fault {
            _ if spoiled => Expected::ColdBoot,
            Some(fault) => fault.expected,
            None => Expected::Resume,
        };
        match line.outcome {
            Outcome::Resumed => line.verified && expected == Expected::Resume,
            Outcome::ColdBoot => !line.reason.is_empty() && expected == Expected::ColdBoot,
            Outcome::Refused | Outcome::Failed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(fault: Option<&str>, tamper: Option<Tamper>) -> CycleOptions {
        CycleOptions {
            fault: fault.map(|name| Fault::by_name(name).unwrap()),
            tamper,
            ..CycleOptions::plain(Size::mib(1))
        }
    }

    fn line(outcome: Outcome, verified: bool, reason: &str) -> CycleLine {
        let mut line = CycleLine::new(1, 1, 1);
        line.outcome = outcome;
        line.verified = verified;
        line.reason = reason.to_owned();
        line
    }

    #[test]
    fn a_plain_cycle_must_resume_with_the_same_data() {
        let plain = options(None, None);
        assert!(plain.is_ok(&line(Outcome::Resumed, true, "")));
        assert!(!plain.is_ok(&line(Outcome::Resumed, false, "pages differ")));
        assert!(!plain.is_ok(&line(Outcome::ColdBoot, false, "no-image")));
        assert!(!plain.is_ok(&line(Outcome::Refused, true, "no-space")));
    }

    #[test]
    fn after_a_power_cut_a_cold_boot_must_say_why() {
        let cut = options(Some("saving"), None);
        assert!(cut.is_ok(&line(Outcome::ColdBoot, false, "incomplete")));
        assert!(!cut.is_ok(&line(Outcome::ColdBoot, false, "")));
        assert!(!cut.is_ok(&line(Outcome::Failed, false, "hung")));
    }

    #[test]
    fn after_a_power_cut_only_a_committed_image_that_nobody_resumed_is_resumed() {
        for (point, resumes) in [
            ("migrating", false),
            ("before-commit", false),
            ("after-commit", true),
            ("before-consume", true),
            ("after-consume", false),
            ("before-thaw", false),
        ] {
            let cut = options(Some(point), None);
            let resumed = cut.is_ok(&line(Outcome::Resumed, true, ""));
            assert_eq!(resumed, resumes, "{point}");
            let booted = cut.is_ok(&line(Outcome::ColdBoot, false, "incomplete"));
            assert_eq!(booted, !resumes, "{point}");
        }
    }

    #[test]
    fn a_device_that_forgets_is_refused_or_found_out() {
        let mut absent = options(None, None);
        absent.gpf = Gpf::Absent;
        assert!(absent.is_ok(&line(Outcome::Refused, true, "volatile: no flush")));
        assert!(!absent.is_ok(&line(Outcome::Refused, true, "no-space")));
        assert!(!absent.is_ok(&line(Outcome::Refused, false, "volatile")));
        assert!(!absent.is_ok(&line(Outcome::Resumed, true, "")));
        absent.sleep_arguments = vec![ACCEPT_VOLATILE.into()];
        assert!(absent.is_ok(&line(Outcome::Resumed, true, "")));

        let mut fails = options(None, None);
        fails.gpf = Gpf::Fails;
        assert!(fails.is_ok(&line(Outcome::ColdBoot, false, "dirty-shutdown")));
        assert!(!fails.is_ok(&line(Outcome::Resumed, true, "")));
    }

    #[test]
    fn of_a_replay_the_first_image_resumes_and_no_later_one() {
        let replay = options(None, Some(Tamper::Replay));
        let mut resumed = line(Outcome::Resumed, true, "");
        assert!(replay.is_ok(&resumed));
        resumed.cycle = 2;
        assert!(!replay.is_ok(&resumed));
        let mut refused = line(Outcome::ColdBoot, false, "older");
        refused.cycle = 2;
        assert!(replay.is_ok(&refused));
    }

    #[test]
    fn a_damaged_image_must_never_be_resumed() {
        let damaged = options(None, Some(Tamper::Page));
        assert!(!damaged.is_ok(&line(Outcome::Resumed, true, "")));
        assert!(damaged.is_ok(&line(Outcome::ColdBoot, false, "saved-digest")));
    }
}
