//! The kernel module's files in /sys/power/dormouse.

use std::collections::BTreeMap;

use dormouse_system::Root;

use crate::error::SleepError;

/// The module's directory below the root of the machine's files.
pub const DIRECTORY: &str = "sys/power/dormouse";

/// How the last sleep ended, and the image's history, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Whether sleeping is switched on.
    pub enabled: bool,
    /// State of the image on the device.
    pub state: String,
    /// How the last attempt to sleep and wake ended.
    pub last_outcome: String,
    /// Name of its reason.
    pub last_reason: String,
    /// Detail of its reason.
    pub last_detail: String,
    /// Resumes since the device was first used.
    pub resume_count: u64,
    /// Bytes of the kernel's pages that were saved.
    pub saved_bytes: u64,
    /// Bytes that were restored.
    pub restored_bytes: u64,
    /// Physical address of the CXL window.
    pub cxl_base: u64,
    /// Bytes of the CXL window.
    pub cxl_bytes: u64,
    /// What firmware states: `armed`, `not-armed`, `absent`, `unknown`.
    pub global_persistent_flush: String,
    /// Whether firmware can read the count of failed flushes.
    pub counts_dirty_shutdowns: bool,
    /// As firmware found them.
    pub device_serial: u64,
    /// Count of failed flushes, as firmware read it.
    pub dirty_shutdown_count: u64,
    /// What vouches for the device at the next sleep.
    pub persistence: String,
    /// Which user pages get a digest at the next sleep.
    pub verify_user_pages: String,
}

/// The result of a trial run of the kernel's marking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// What would be saved by firmware now, user pages in DRAM included.
    pub save_bytes: u64,
    /// Room for saved pages now.
    pub free_bytes: u64,
}

/// Begin and end of a phase, ns since that power cycle's reset.
pub type Phases = BTreeMap<String, (u64, u64)>;

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or(0),
        None => text.parse().unwrap_or(0),
    }
}

/// Reads the module's directory.
///
/// # Errors
/// The module is not there.
pub fn status(root: &Root) -> Result<Status, SleepError> {
    if !root.exists(DIRECTORY) {
        return Err(SleepError::NoModule {
            path: root.path(DIRECTORY),
        });
    }
    let text = |name: &str| {
        root.read(&format!("{DIRECTORY}/{name}"))
            .unwrap_or_default()
    };
    Ok(Status {
        enabled: text("enabled") != "0",
        state: text("state"),
        last_outcome: text("last_outcome"),
        last_reason: text("last_reason"),
        last_detail: text("last_detail"),
        resume_count: number(&text("resume_count")),
        saved_bytes: number(&text("saved_bytes")),
        restored_bytes: number(&text("restored_bytes")),
        cxl_base: number(&text("cxl_base")),
        cxl_bytes: number(&text("cxl_bytes")),
        global_persistent_flush: text("global_persistent_flush"),
        counts_dirty_shutdowns: text("dirty_shutdowns_counted") == "1",
        device_serial: number(&text("device_serial")),
        dirty_shutdown_count: number(&text("dirty_shutdown_count")),
        persistence: text("persistence"),
        verify_user_pages: text("verify_user_pages"),
    })
}

/// Writes one of the module's settings.
///
/// # Errors
/// The module does not take it, or is of a version that does not have it.
pub fn set(root: &Root, name: &str, value: &str) -> Result<(), SleepError> {
    let path = format!("{DIRECTORY}/{name}");
    root.write(&path, value).map_err(SleepError::write(
        "set the kernel module up for this sleep",
        root.path(&path),
        "load the module that belongs to this command",
    ))
}

/// Parses `name bytes` lines; `None` where a needed one is missing.
pub fn parse_estimate(text: &str) -> Option<Estimate> {
    let value = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.split_ascii_whitespace().next() == Some(name))?;
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    Some(Estimate {
        save_bytes: value("save_bytes")?,
        free_bytes: value("free_bytes")?,
    })
}

/// Asks for a dry marking.
pub fn estimate(root: &Root) -> Option<Estimate> {
    parse_estimate(&root.read(&format!("{DIRECTORY}/estimate")).ok()?)
}

/// Parses `name begin_ns end_ns` lines; others are skipped.
pub fn parse_phases(text: &str) -> Phases {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let name = words.next()?.to_owned();
            Some((
                name,
                (words.next()?.parse().ok()?, words.next()?.parse().ok()?),
            ))
        })
        .collect()
}

/// The phases of the last sleep and wake.
pub fn phases(root: &Root) -> Phases {
    parse_phases(
        &root
            .read(&format!("{DIRECTORY}/phases"))
            .unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_estimate_needs_both_numbers() {
        let text = "dram_used_bytes 9\nsave_bytes 100\ncxl_used_bytes 3\nfree_bytes 70\n";
        let estimate = Estimate {
            save_bytes: 100,
            free_bytes: 70,
        };
        assert_eq!(parse_estimate(text), Some(estimate));
        assert_eq!(parse_estimate("save_bytes 100\n"), None);
    }

    #[test]
    fn phases_are_read_by_name() {
        let phases = parse_phases("prepare 10 20\nrestore-copy 5 7\nbroken 1\n");
        assert_eq!(phases.len(), 2);
        assert_eq!(phases["prepare"], (10, 20));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "([ -~]|\n){0,200}") {
            let _ = parse_estimate(&text);
            let _ = parse_phases(&text);
            let _ = number(&text);
        }
    }
}
