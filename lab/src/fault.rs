//! The points at which power can be cut, and who stops the machine there.

use crate::error::LabError;

/// Who notices that the point is reached, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The host, at some moment after the guest said that it migrates.
    Migrating,
    /// Firmware stops on the way down.
    Suspend,
    /// Firmware stops on the way up.
    Resume,
}

/// A point at which power can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub name: &'static str,
    pub kind: FaultKind,
    pub meaning: &'static str,
}

/// In the order in which a sleep and a wake reach them.
pub const FAULTS: [Fault; 8] = [
    fault(
        "migrating",
        FaultKind::Migrating,
        "user pages are on their way to CXL memory",
    ),
    fault(
        "prepared",
        FaultKind::Suspend,
        "firmware has the request, nothing is changed yet",
    ),
    fault(
        "saving",
        FaultKind::Suspend,
        "half of the kernel's pages are saved",
    ),
    fault(
        "before-commit",
        FaultKind::Suspend,
        "all pages are saved, the image is not committed",
    ),
    fault(
        "after-commit",
        FaultKind::Suspend,
        "the image is committed, power is still on",
    ),
    fault(
        "restoring",
        FaultKind::Resume,
        "half of the kernel's pages are restored",
    ),
    fault(
        "before-consume",
        FaultKind::Resume,
        "all pages are restored, the image is not consumed",
    ),
    fault(
        "after-consume",
        FaultKind::Resume,
        "the image is consumed, the kernel does not run yet",
    ),
];

const fn fault(name: &'static str, kind: FaultKind, meaning: &'static str) -> Fault {
    Fault {
        name,
        kind,
        meaning,
    }
}

impl Fault {
    /// The point of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn by_name(name: &str) -> Result<Fault, LabError> {
        FAULTS
            .into_iter()
            .find(|fault| fault.name == name)
            .ok_or_else(|| {
                LabError::Usage(format!(
                    "{name:?} is no point at which power can be cut; --fault list prints them"
                ))
            })
    }

    /// What firmware is told on a power-on that leads down (or that wakes the machine).
    pub fn for_firmware(&self, waking: bool) -> Option<&'static str> {
        match self.kind {
            FaultKind::Suspend if !waking => Some(self.name),
            FaultKind::Resume if waking => Some(self.name),
            _ => None,
        }
    }

    /// Whether this console line says that firmware stopped here.
    pub fn is_reached(&self, line: &str) -> bool {
        line.contains(&format!("dormouse: fault point {} reached", self.name))
    }
}

/// A delay below `limit_ms` that depends on seed and cycle only: a failed run can be repeated.
pub fn delay_ms(seed: u64, cycle: u64, limit_ms: u64) -> u64 {
    let mut word = seed ^ cycle.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word ^ (word >> 27)) % limit_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_on_the_way_up_does_not_stop_the_way_down() {
        let fault = Fault::by_name("restoring").unwrap();
        assert_eq!(fault.for_firmware(false), None);
        assert_eq!(fault.for_firmware(true), Some("restoring"));
        let fault = Fault::by_name("saving").unwrap();
        assert_eq!(fault.for_firmware(false), Some("saving"));
        assert_eq!(fault.for_firmware(true), None);
    }

    #[test]
    fn an_unknown_point_is_a_usage_error() {
        assert_eq!(Fault::by_name("nowhere").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn only_its_own_line_reaches_a_point() {
        let fault = Fault::by_name("saving").unwrap();
        assert!(fault.is_reached("[NOTE ]  dormouse: fault point saving reached"));
        assert!(!fault.is_reached("dormouse: fault point restoring reached"));
    }
}
