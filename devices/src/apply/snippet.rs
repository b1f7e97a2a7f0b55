//! Files that keep the changes over a reboot: a udev rule for devices, tmpfiles.d for the rest.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::Change;

/// The device's directory of a change to `power/async`.
fn device_of(change: &Change) -> Option<&str> {
    change
        .path
        .strip_prefix("devices/")?
        .strip_suffix("/power/async")
}

/// A udev rules file; empty where no device is changed. Devices without a subsystem have no udev
/// events and are listed in a comment.
pub fn udev_rules(sys: &Path, changes: &[Change]) -> String {
    let mut rules = String::new();
    let mut without = Vec::new();
    for change in changes {
        let Some(device) = device_of(change) else {
            continue;
        };
        let folder = sys.join("devices").join(device);
        if fs::read_link(folder.join("subsystem")).is_err() {
            without.push(device);
            continue;
        }
        // Quotes cannot be written in a rule, and `*?[` would match others.
        let devpath: String = format!("/devices/{device}")
            .chars()
            .map(|c| {
                if matches!(c, '"' | '*' | '?' | '[' | ']' | '|' | '\\') {
                    '?'
                } else {
                    c
                }
            })
            .collect();
        let _ = writeln!(
            rules,
            "ACTION==\"add\", DEVPATH==\"{devpath}\", ATTR{{power/async}}=\"{}\"",
            change.to
        );
    }
    if !without.is_empty() {
        let _ = writeln!(
            rules,
            "# No subsystem, so no event to act on: {}",
            without.join(", ")
        );
    }
    if rules.is_empty() {
        return rules;
    }
    format!("# /etc/udev/rules.d/90-dormouse-devices.rules\n{rules}")
}

/// A tmpfiles.d file for everything else; empty where nothing else is changed.
pub fn tmpfiles(changes: &[Change]) -> String {
    let lines: String = changes
        .iter()
        .filter(|change| device_of(change).is_none())
        .map(|change| format!("w /sys/{} - - - - {}\n", change.path, change.to))
        .collect();
    if lines.is_empty() {
        return lines;
    }
    format!("# /etc/tmpfiles.d/dormouse-devices.conf\n{lines}")
}
