//! The points at which power can be cut. The machine stops at the point and reports it, and only
//! then the host cuts the power, so the speed of the machine does not matter.

use crate::error::{LabError, named};

/// What stops at the point, and on which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// `dormouse sleep`, on the way down.
    Sleep,
    /// Firmware, on the way down.
    Suspend,
    /// Firmware, on the way up.
    Resume,
    /// `dormouse sleep`, after the machine woke.
    Woken,
}

/// What must come of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// There is a committed image that was not resumed: it is resumed, with all data.
    Resume,
    /// There is none: the machine boots and says why.
    ColdBoot,
}

/// A point at which power can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub name: &'static str,
    pub kind: FaultKind,
    pub expected: Expected,
    pub meaning: &'static str,
}

use Expected::{ColdBoot, Resume};

/// In the order in which a sleep and a wake reach them.
pub const FAULTS: [Fault; 21] = [
    sleep("after-preflight", "the plan is made, nothing is changed"),
    sleep("after-node-online", "CXL memory is online, still empty"),
    sleep("after-sync", "dirty file pages are written out"),
    sleep(
        "after-sample",
        "hot pages are known (only with --sleep-argument=--policy --sleep-argument=hot-first)",
    ),
    sleep("after-freeze", "user programs are stopped"),
    sleep("before-migrate", "caches are dropped"),
    sleep("migrating", "half of the user pages are in CXL memory"),
    sleep("after-migrate", "all user pages are in CXL memory"),
    sleep("before-space-check", "caches are dropped again"),
    sleep("before-enter", "next is the write to /sys/power/state"),
    fault(
        "prepared",
        FaultKind::Suspend,
        ColdBoot,
        "firmware has the request, nothing is changed yet",
    ),
    fault(
        "saving",
        FaultKind::Suspend,
        ColdBoot,
        "half of the kernel's pages are saved",
    ),
    fault(
        "before-commit",
        FaultKind::Suspend,
        ColdBoot,
        "all pages are saved, the image is not committed",
    ),
    fault(
        "after-commit",
        FaultKind::Suspend,
        Resume,
        "the image is committed, power is still on",
    ),
    fault(
        "restoring",
        FaultKind::Resume,
        Resume,
        "half of the kernel's pages are restored",
    ),
    fault(
        "before-consume",
        FaultKind::Resume,
        Resume,
        "all pages are restored, the image is not consumed",
    ),
    fault(
        "after-consume",
        FaultKind::Resume,
        ColdBoot,
        "the image is consumed, the kernel does not run yet",
    ),
    woken("before-thaw", "the kernel runs, user programs do not yet"),
    woken("after-thaw", "user programs run on CXL memory"),
    woken("migrating-back", "half of the user pages are back in DRAM"),
    woken("after-home", "all user pages are back, the node is offline"),
];

const fn fault(
    name: &'static str,
    kind: FaultKind,
    expected: Expected,
    meaning: &'static str,
) -> Fault {
    Fault {
        name,
        kind,
        expected,
        meaning,
    }
}

const fn sleep(name: &'static str, meaning: &'static str) -> Fault {
    fault(name, FaultKind::Sleep, ColdBoot, meaning)
}

const fn woken(name: &'static str, meaning: &'static str) -> Fault {
    fault(name, FaultKind::Woken, ColdBoot, meaning)
}

impl Fault {
    /// The point of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn by_name(name: &str) -> Result<Fault, LabError> {
        let what = "point at which power can be cut";
        named(&FAULTS, |fault| fault.name, name, what, "--fault")
    }

    /// The name to hand to the machine on a power-on that leads down, or on one that wakes it.
    /// `dormouse sleep` reads it on the way down for both ways.
    pub fn for_power_on(&self, waking: bool) -> Option<&'static str> {
        let when_waking = self.kind == FaultKind::Resume;
        (waking == when_waking).then_some(self.name)
    }

    /// Whether the machine stops on its way up.
    pub fn is_on_the_way_up(&self) -> bool {
        matches!(self.kind, FaultKind::Resume | FaultKind::Woken)
    }

    /// Whether this console line reports that the machine stopped here.
    pub fn is_reached(&self, line: &str) -> bool {
        line.trim_end()
            .ends_with(&format!("dormouse: fault point {} reached", self.name))
    }

    /// The machine went past the point: there is nothing to judge.
    pub fn passed(&self) -> LabError {
        LabError::Unexpected(format!(
            "the machine did not stop at the point {}",
            self.name
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_on_the_way_up_does_not_stop_the_way_down() {
        let fault = Fault::by_name("restoring").unwrap();
        assert_eq!(fault.for_power_on(false), None);
        assert_eq!(fault.for_power_on(true), Some("restoring"));
        let fault = Fault::by_name("saving").unwrap();
        assert_eq!(fault.for_power_on(false), Some("saving"));
        assert_eq!(fault.for_power_on(true), None);
    }

    #[test]
    fn dormouse_sleep_learns_its_points_before_it_sleeps() {
        for name in ["migrating", "migrating-back"] {
            let fault = Fault::by_name(name).unwrap();
            assert_eq!(fault.for_power_on(false), Some(name));
            assert_eq!(fault.for_power_on(true), None);
        }
    }

    /// Firmware's handover has room for 31 characters.
    #[test]
    fn every_name_is_one_and_fits_into_the_handover() {
        for (index, fault) in FAULTS.iter().enumerate() {
            assert!(fault.name.len() < 32, "{}", fault.name);
            let twice = FAULTS[..index].iter().any(|other| other.name == fault.name);
            assert!(!twice, "{}", fault.name);
        }
    }

    #[test]
    fn an_unknown_point_is_a_usage_error() {
        assert_eq!(Fault::by_name("nowhere").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn only_its_own_line_reaches_a_point() {
        let fault = Fault::by_name("migrating").unwrap();
        assert!(fault.is_reached("[NOTE ]  dormouse: fault point migrating reached\r"));
        assert!(fault.is_reached("[    9.1] dormouse: fault point migrating reached"));
        assert!(!fault.is_reached("dormouse: fault point migrating-back reached"));
    }
}
