//! Whether the kernel lets this machine hibernate, what forbids it otherwise, and its guard over CXL
//! memory.
//!
//! Linux refuses hibernation (and S3) while the driver of a CXL memory device is bound, because nobody would
//! program the decoders again. Here the initramfs does ([`cxl_regions`]), where every region is recorded; so
//! `dormouse_snapshot.ko` lets the process that sleeps or wakes pass.

use std::io;

use dormouse_system::Root;

use crate::snapshot::cxl_regions;
use crate::snapshot::kernel::Snapshot;

const STATES: &str = "sys/power/state";
const LOCKDOWN: &str = "sys/kernel/security/lockdown";
/// `none` (no such guard in this kernel), `hold` or `pass`.
const GUARD: &str = "sys/module/dormouse_snapshot/parameters/cxl_guard";

/// What forbids it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forbidden {
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub next: &'static str,
}

/// What forbids this machine's kernel to hibernate; none where nothing does, or what does can be passed.
pub(crate) fn forbidden(root: &Root) -> Option<Forbidden> {
    forbidden_beside(root, states_past_the_guard)
}

/// `/sys/power/state` as the kernel shows it to a process that passes the guard; none where this process
/// may not pass it, or another one does, which sleeps.
fn states_past_the_guard(root: &Root) -> Option<String> {
    let _passed = pass_guard(root).ok()?;
    root.read(STATES).ok()
}

fn offers_disk(states: &str) -> bool {
    states.split_ascii_whitespace().any(|state| state == "disk")
}

/// `past_guard`: what the kernel would offer if CXL memory did not forbid it.
fn forbidden_beside(
    root: &Root,
    past_guard: impl Fn(&Root) -> Option<String>,
) -> Option<Forbidden> {
    let states = root.read(STATES).unwrap_or_default();
    if offers_disk(&states) {
        return None;
    }
    let because = |found: String, next| Some(Forbidden { found, next });
    let line = root.read("proc/cmdline").unwrap_or_default();
    let is_off = |word: &&str| ["nohibernate", "hibernate=no"].contains(word);
    if let Some(word) = line.split_ascii_whitespace().find(is_off) {
        return because(
            format!("the kernel was booted with {word}"),
            "boot without it",
        );
    }
    let lockdown = root.read(LOCKDOWN).unwrap_or_default();
    if lockdown.contains('[') && !lockdown.contains("[none]") {
        return because(
            format!("the kernel is locked down ({lockdown})"),
            "switch Secure Boot off, or boot without lockdown=",
        );
    }
    let another_reason = || {
        because(
            format!("/{STATES} offers {states:?}"),
            "the kernel needs CONFIG_HIBERNATION, and no program may hold secret memory \
             (memfd_secret)",
        )
    };
    let memory = cxl_regions::bound_memory(root);
    // A kernel without the guard has another reason, which passing it would not remove.
    let has_no_guard = root.read(GUARD).is_ok_and(|state| state == "none");
    if memory.is_empty() || has_no_guard {
        return another_reason();
    }
    let memory = memory.join(", ");
    if !root.exists(GUARD) {
        return because(
            format!("the kernel does not hibernate while CXL memory is in use ({memory})"),
            "the loaded dormouse_snapshot is too old to pass that guard: update dormouse-dkms, and reload it",
        );
    }
    match cxl_regions::unrecorded(root) {
        Ok(None) => match past_guard(root) {
            Some(states) if !offers_disk(&states) => another_reason(),
            _ => None,
        },
        Ok(Some(region)) => because(
            format!(
                "the kernel does not hibernate while CXL memory is in use ({memory}), and {region} is not \
                 recorded in /{}, so nobody would make it again",
                cxl_regions::FILE
            ),
            "head and node must be all that CXL regions hold: take the region down, or run `dormouse \
             setup-device` again",
        ),
        Err(why) => because(why, "run `dormouse setup-device` again"),
    }
}

/// While it lives, this process passes the guard over CXL memory.
pub(crate) struct Passed<'a> {
    root: &'a Root,
}

/// Passes it; none where there is nothing to pass.
///
/// # Errors
/// The module does not take it.
pub(crate) fn pass_guard(root: &Root) -> io::Result<Option<Passed<'_>>> {
    if cxl_regions::bound_memory(root).is_empty() || !root.exists(GUARD) {
        return Ok(None);
    }
    root.write(GUARD, "pass")?;
    Ok(Some(Passed { root }))
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        // What fails leaves a guard that only this process passes.
        let _ = self.root.write(GUARD, "hold");
    }
}

/// Why this boot's kernel would take no snapshot: found out by asking it, where CXL memory may forbid
/// it.
pub(crate) fn takes_no_snapshot(root: &Root) -> Option<String> {
    let memory = cxl_regions::bound_memory(root);
    if memory.is_empty() {
        return None;
    }
    let opened = pass_guard(root).and_then(|_passed| Snapshot::open_to_restore(root).map(drop));
    opened.err().map(|error| {
        format!(
            "with CXL memory in use ({}) the kernel takes no snapshot ({error}): dormouse_snapshot is not \
             loaded at that point",
            memory.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITH_CXL: &str = "sys/bus/cxl/drivers/cxl_mem/mem0/serial";

    #[test]
    fn each_cause_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let found = || forbidden(&root).map(|why| why.found).unwrap_or_default();
        root.create(STATES, "freeze mem\n").unwrap();
        assert!(found().contains("freeze mem"), "{}", found());
        root.create(LOCKDOWN, "[none] integrity confidentiality\n")
            .unwrap();
        assert!(found().contains("freeze mem"), "{}", found());
        root.create(WITH_CXL, "1\n").unwrap();
        assert!(found().contains("(mem0)"), "{}", found());
        root.create(LOCKDOWN, "none [integrity] confidentiality\n")
            .unwrap();
        assert!(found().contains("locked down"), "{}", found());
        root.create("proc/cmdline", "ro nohibernate quiet\n")
            .unwrap();
        assert!(found().contains("nohibernate"), "{}", found());
        root.create(STATES, "freeze mem disk\n").unwrap();
        assert_eq!(forbidden(&root), None);
    }

    #[test]
    fn the_guard_over_cxl_memory_is_passed_where_every_region_is_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        root.create(STATES, "freeze mem\n").unwrap();
        root.create(GUARD, "hold\n").unwrap();
        assert!(pass_guard(&root).unwrap().is_none());
        root.create(WITH_CXL, "1\n").unwrap();
        assert_eq!(
            forbidden_beside(&root, |_| Some("freeze mem disk\n".into())),
            None
        );
        // Without the right to ask, nothing is known against it.
        assert_eq!(forbidden_beside(&root, |_| None), None);
        // Secret memory forbids it, too, and is named although CXL memory alone could be passed.
        let why = forbidden(&root).unwrap();
        assert!(why.next.contains("memfd_secret"), "{}", why.next);
        let guard = || root.read(GUARD).unwrap();
        let passed = pass_guard(&root).unwrap();
        assert_eq!(guard(), "pass");
        drop(passed);
        assert_eq!(guard(), "hold");
        // In a kernel without the guard it is not CXL memory that forbids hibernation.
        root.create(GUARD, "none\n").unwrap();
        let why = forbidden(&root).unwrap();
        assert!(why.found.contains("freeze mem"), "{}", why.found);
        root.create(GUARD, "hold\n").unwrap();
        // A region that is nobody's.
        root.create("sys/bus/cxl/devices/region0/uuid", "\n")
            .unwrap();
        let why = forbidden(&root).unwrap();
        assert!(why.found.contains("region0"), "{}", why.found);
    }
}
