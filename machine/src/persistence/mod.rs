//! Whether the CXL device keeps its contents without power, and which source states it.
//!
//! ```text
//!  source              good                 bad                cannot tell
//!  the device (sysfs)  ─► persistence       ─► refused         ─► ask firmware
//!  firmware's word     ─► persistence       ─► refused         ─► refused
//!                                              │ --accept-volatile
//!                                              ▼
//!                                           accepted, recorded in the image
//! ```
//!
//! Good is: Global Persistent Flush is there, the device's shutdown state is armed (so that it
//! counts if the flush fails), and that count can be read, because firmware compares it before it
//! restores. For a window of several interleaved devices: each of them.

mod cxl;
mod firmware;

pub use cxl::{CxlDevices, Memdev, Window, combined_count, combined_serial, judge_devices};
pub use dormouse_image::Persistence;
pub use firmware::{FirmwareStatement, judge_statement};

use crate::error::SleepError;
use crate::system::module::Status;
use dormouse_system::Root;

/// What one source states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Known good; in words.
    Good(String),
    /// Known not to be good: each reason a clause.
    Bad(Vec<String>),
    /// It does not know: each reason a clause.
    CannotTell(Vec<String>),
}

/// A source that may know.
pub trait Source {
    /// What the image records if this source states that contents are kept.
    fn persistence(&self) -> Persistence;
    /// Looks at the machine; changes nothing.
    fn ask(&self, root: &Root, status: &Status) -> Answer;
}

/// The sources in the order in which they are believed.
pub const SOURCES: [&dyn Source; 2] = [&CxlDevices, &FirmwareStatement];

/// What is recorded in the image, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// [`Persistence::UNKNOWN`]: no sleep unless the caller accepts the risk.
    pub persistence: Persistence,
    /// What was found, a clause each.
    pub reasons: Vec<String>,
}

impl Verdict {
    /// Whether the device is known to keep its contents.
    pub fn is_good(&self) -> bool {
        self.persistence != Persistence::UNKNOWN
    }
}

/// The first source that knows decides.
pub fn decide(answers: impl IntoIterator<Item = (Persistence, Answer)>) -> Verdict {
    let mut unknown = Vec::new();
    for (persistence, answer) in answers {
        match answer {
            Answer::Good(reason) => {
                return Verdict {
                    persistence,
                    reasons: vec![reason],
                };
            }
            Answer::Bad(reasons) => {
                return Verdict {
                    persistence: Persistence::UNKNOWN,
                    reasons,
                };
            }
            Answer::CannotTell(reasons) => unknown.extend(reasons),
        }
    }
    Verdict {
        persistence: Persistence::UNKNOWN,
        reasons: unknown,
    }
}

/// Asks the sources one after the other.
pub fn find(root: &Root, status: &Status) -> Verdict {
    decide(
        SOURCES
            .iter()
            .map(|source| (source.persistence(), source.ask(root, status))),
    )
}

/// Whether a sleep may begin.
///
/// # Errors
/// [`SleepError::Volatile`] with the reasons, unless the risk is accepted.
pub fn check(root: &Root, status: &Status, accept_volatile: bool) -> Result<Verdict, SleepError> {
    accept(find(root, status), accept_volatile)
}

/// As [`check`], of what was found.
///
/// # Errors
/// As above.
pub fn accept(verdict: Verdict, accept_volatile: bool) -> Result<Verdict, SleepError> {
    match (verdict.is_good(), accept_volatile) {
        (true, _) => Ok(verdict),
        (false, true) => Ok(Verdict {
            persistence: Persistence::ACCEPTED,
            ..verdict
        }),
        (false, false) => Err(SleepError::Volatile {
            reasons: verdict.reasons.join("; "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Answer {
        Answer::Good("armed".into())
    }

    fn bad() -> Answer {
        Answer::Bad(vec!["no flush".into()])
    }

    fn unknown(why: &str) -> Answer {
        Answer::CannotTell(vec![why.into()])
    }

    fn verdict(device: Answer, firmware: Answer) -> Verdict {
        decide([
            (Persistence::DEVICE, device),
            (Persistence::FIRMWARE, firmware),
        ])
    }

    #[test]
    fn the_device_is_believed_before_firmware() {
        assert_eq!(verdict(good(), bad()).persistence, Persistence::DEVICE);
        let refused = verdict(bad(), good());
        assert_eq!(refused.persistence, Persistence::UNKNOWN);
        assert_eq!(refused.reasons, ["no flush"]);
    }

    #[test]
    fn firmware_vouches_for_a_device_that_linux_cannot_ask() {
        let verdict = verdict(unknown("Linux sees no region"), good());
        assert_eq!(verdict.persistence, Persistence::FIRMWARE);
        assert_eq!(verdict.reasons, ["armed"]);
    }

    #[test]
    fn where_no_source_knows_all_reasons_are_reported() {
        let verdict = verdict(unknown("a"), unknown("b"));
        assert!(!verdict.is_good());
        assert_eq!(verdict.reasons, ["a", "b"]);
        assert!(!decide([]).is_good());
    }
}
