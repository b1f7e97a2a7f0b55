//! The kernel features that each check needs, and which of them a kernel's configuration lacks.

use std::fs;
use std::path::Path;

use super::results::Check;

/// Options of the kernel's configuration; one of several where there are alternatives.
fn needed(check: Check) -> &'static [&'static [&'static str]] {
    match check {
        Check::Module | Check::Sleep => &[
            &["CONFIG_MODULES"],
            &["CONFIG_ACPI_SLEEP"],
            &["CONFIG_SUSPEND"],
            &["CONFIG_KPROBES"],
            &["CONFIG_SPARSEMEM_VMEMMAP"],
            &["CONFIG_MIGRATION"],
            &["CONFIG_MEMORY_HOTPLUG"],
            &["CONFIG_DEV_DAX_HMEM"],
            &["CONFIG_DEV_DAX_KMEM"],
            &["CONFIG_CGROUPS"],
        ],
        Check::Process => &[
            &["CONFIG_CHECKPOINT_RESTORE"],
            &["CONFIG_PROC_PAGE_MONITOR"],
            &["CONFIG_PTE_MARKER_UFFD_WP", "CONFIG_MEM_SOFT_DIRTY"],
        ],
        Check::Scheduler => &[
            &["CONFIG_SCHED_CLASS_EXT"],
            &["CONFIG_BPF_SYSCALL"],
            &["CONFIG_BPF_JIT"],
            &["CONFIG_DEBUG_INFO_BTF"],
        ],
        Check::Devices => &[&["CONFIG_SUSPEND"], &["CONFIG_EVENT_TRACING"]],
        Check::Order => &[
            &["CONFIG_SUSPEND"],
            &["CONFIG_LIVEPATCH"],
            &["CONFIG_KALLSYMS_ALL"],
            &["CONFIG_KPROBES"],
            &["CONFIG_DEBUG_INFO_BTF"],
        ],
    }
}

/// The first thing that this configuration lacks for a check.
pub fn lacks(check: Check, config: &str) -> Option<String> {
    let has = |option: &str| {
        config.lines().any(|line| {
            let value = line.strip_prefix(option);
            matches!(value, Some("=y" | "=m"))
        })
    };
    let missing = needed(check)
        .iter()
        .find(|alternatives| !alternatives.iter().any(|option| has(option)))?;
    Some(format!(
        "{} is not set in its configuration",
        missing.join(" or ")
    ))
}

/// The configuration that came with the kernel; empty where it cannot be read.
pub fn config(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_is_not_set_is_named_and_one_that_is_set_is_not() {
        let config = "CONFIG_BPF_SYSCALL=y\nCONFIG_BPF_JIT=y\nCONFIG_DEBUG_INFO_BTF=y\n\
                      # CONFIG_SCHED_CLASS_EXT is not set\n";
        let lack = lacks(Check::Scheduler, config).unwrap();
        assert!(lack.contains("CONFIG_SCHED_CLASS_EXT"), "{lack}");
        let with = format!("{config}CONFIG_SCHED_CLASS_EXT=y\n");
        assert_eq!(lacks(Check::Scheduler, &with), None);
    }

    #[test]
    fn one_of_two_alternatives_is_enough() {
        let without = "CONFIG_CHECKPOINT_RESTORE=y\nCONFIG_PROC_PAGE_MONITOR=y\n";
        let with = [without, "CONFIG_MEM_SOFT_DIRTY=y\n"].concat();
        let lacking = [without, &with].map(|config| lacks(Check::Process, config).is_some());
        assert_eq!(lacking, [true, false]);
    }

    #[test]
    fn an_option_is_not_found_in_a_longer_name() {
        let config = "CONFIG_SUSPEND_FREEZER=y\nCONFIG_EVENT_TRACING=y\n";
        assert!(lacks(Check::Devices, config).is_some());
    }
}
