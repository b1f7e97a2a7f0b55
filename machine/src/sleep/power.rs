//! Enters S3: chooses `deep`, writes `mem`, and turns what came back into an outcome.

use dormouse_system::Root;

use crate::error::SleepError;
use crate::system::module::Status;

const STATE: &str = "sys/power/state";
const MEM_SLEEP: &str = "sys/power/mem_sleep";

/// The selected word of `s2idle [deep]`.
pub fn selected(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

/// Checks that the kernel can enter S3.
///
/// # Errors
/// [`SleepError::Lacks`] with what the kernel offers instead.
pub fn check(root: &Root) -> Result<(), SleepError> {
    let states = root.read(STATE).unwrap_or_default();
    if !states.split_ascii_whitespace().any(|state| state == "mem") {
        return Err(SleepError::Lacks {
            what: "suspend",
            path: root.path(STATE),
            found: states,
            next: "the kernel needs CONFIG_SUSPEND and firmware with S3",
        });
    }
    let kinds = root.read(MEM_SLEEP).unwrap_or_default();
    if !kinds.split([' ', '[', ']']).any(|kind| kind == "deep") {
        return Err(SleepError::Lacks {
            what: "enter S3",
            path: root.path(MEM_SLEEP),
            found: kinds,
            next: "enable S3 (not only S0ix) in the firmware setup",
        });
    }
    Ok(())
}

/// Selects `deep`; returns what was selected before, if it was another.
///
/// # Errors
/// The kernel refuses the write.
pub fn select_deep(root: &Root) -> Result<Option<String>, SleepError> {
    let kinds = root.read(MEM_SLEEP).unwrap_or_default();
    let before = selected(&kinds).unwrap_or("").to_owned();
    if before == "deep" {
        return Ok(None);
    }
    write_mem_sleep(root, "deep")?;
    Ok((!before.is_empty()).then_some(before))
}

/// Selects the kind of `mem` sleep.
///
/// # Errors
/// The kernel refuses the write.
pub fn write_mem_sleep(root: &Root, kind: &str) -> Result<(), SleepError> {
    root.write(MEM_SLEEP, kind).map_err(SleepError::write(
        "choose S3",
        root.path(MEM_SLEEP),
        "run this as root",
    ))
}

/// Sleeps; returns when the machine runs again, or when the sleep was refused.
///
/// # Errors
/// Linux did not get as far as the module: a device or a wake-up event was in the way.
pub fn enter(root: &Root) -> Result<(), SleepError> {
    root.write(STATE, "mem")
        .map_err(|source| SleepError::NotEntered {
            source,
            suspect: last_failed(root),
        })
}

fn last_failed(root: &Root) -> Option<String> {
    let parts: Vec<String> = ["last_failed_dev", "last_failed_step"]
        .iter()
        .filter_map(|name| root.read(&format!("sys/power/suspend_stats/{name}")).ok())
        .filter(|text| !text.is_empty())
        .collect();
    (!parts.is_empty()).then(|| parts.join(", step "))
}

/// Whether the machine slept, from the module's status before and after. The write to
/// /sys/power/state does not show it: Linux drops the error of its very last step.
///
/// # Errors
/// [`SleepError::Refused`] with the module's reason.
pub fn judge(before: &Status, after: &Status) -> Result<(), SleepError> {
    if after.resume_count > before.resume_count && after.last_outcome == "resumed" {
        return Ok(());
    }
    let reason = match after.last_outcome.as_str() {
        // The header still describes an earlier sleep: this one never reached firmware.
        "refused" if !after.last_reason.is_empty() => after.last_reason.clone(),
        _ => "no-answer".to_owned(),
    };
    Err(SleepError::Refused {
        reason,
        detail: after.last_detail.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(resume_count: u64, last_outcome: &str, last_reason: &str) -> Status {
        Status {
            resume_count,
            last_outcome: last_outcome.into(),
            last_reason: last_reason.into(),
            ..Status::default()
        }
    }

    #[test]
    fn the_selected_kind_of_sleep_is_read_from_its_brackets() {
        assert_eq!(selected("s2idle [deep]"), Some("deep"));
        assert_eq!(selected("s2idle"), None);
    }

    #[test]
    fn only_a_new_resume_counts_as_resumed() {
        assert!(judge(&status(3, "resumed", "ok"), &status(4, "resumed", "ok")).is_ok());
        let error = judge(&status(3, "resumed", "ok"), &status(3, "resumed", "ok")).unwrap_err();
        assert_eq!(error.reason(), "no-answer");
    }

    #[test]
    fn a_refusal_keeps_the_firmware_s_reason() {
        let error = judge(
            &status(3, "resumed", "ok"),
            &status(3, "refused", "no-space"),
        )
        .unwrap_err();
        assert_eq!(error.reason(), "no-space");
    }
}
