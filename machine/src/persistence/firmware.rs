//! Firmware's statement, for a device that Linux cannot query: two properties of its ACPI device,
//! which the module shows.

use dormouse_image::Persistence;
use dormouse_system::Root;

use super::{Answer, Source};
use crate::system::module::Status;

/// What firmware states in its ACPI device DORM0001.
pub struct FirmwareStatement;

impl Source for FirmwareStatement {
    fn persistence(&self) -> Persistence {
        Persistence::FIRMWARE
    }

    fn ask(&self, _root: &Root, status: &Status) -> Answer {
        judge_statement(
            &status.global_persistent_flush,
            status.counts_dirty_shutdowns,
        )
    }
}

/// `flush`: `armed`, `not-armed`, `absent`; anything else is no statement.
pub fn judge_statement(flush: &str, counts_dirty_shutdowns: bool) -> Answer {
    let bad = |reason: &str| Answer::Bad(vec![reason.to_owned()]);
    match (flush, counts_dirty_shutdowns) {
        ("armed", true) => Answer::Good(
            "firmware states that Global Persistent Flush is armed and its failures are counted"
                .to_owned(),
        ),
        ("armed", false) => bad(
            "firmware states that Global Persistent Flush is armed, but its failures are not \
             counted",
        ),
        ("not-armed", _) => bad("firmware states that Global Persistent Flush is not armed"),
        ("absent", _) => bad("firmware states that there is no Global Persistent Flush"),
        _ => Answer::CannotTell(vec![
            "firmware does not state whether Global Persistent Flush works".to_owned(),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_armed_flush_whose_failures_are_counted_is_good() {
        assert!(matches!(judge_statement("armed", true), Answer::Good(_)));
        for (flush, counted) in [
            ("armed", false),
            ("not-armed", true),
            ("absent", true),
            ("absent", false),
        ] {
            let answer = judge_statement(flush, counted);
            assert!(matches!(answer, Answer::Bad(_)), "{flush} {counted}");
        }
        for flush in ["", "unknown", "ARMED", "works"] {
            let answer = judge_statement(flush, true);
            assert!(matches!(answer, Answer::CannotTell(_)), "{flush}");
        }
    }
}
