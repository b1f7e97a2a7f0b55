//! Finds fault reports of the kernel in a console log.

use super::class::Class;

/// A line of a console that says that something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub class: Class,
    pub line: String,
}

/// What Linux prints where, in the order of their weight: an Oops ends as a panic, and a warning
/// has a call trace like an Oops.
const SIGNS: [(&str, Class); 40] = [
    ("Kernel panic - not syncing", Class::KernelPanic),
    ("Oops: ", Class::KernelOops),
    ("kernel BUG at ", Class::KernelOops),
    ("BUG: kernel NULL pointer", Class::KernelOops),
    ("BUG: unable to handle", Class::KernelOops),
    ("general protection fault", Class::KernelOops),
    ("invalid opcode: ", Class::KernelOops),
    ("stack segment: ", Class::KernelOops),
    ("double fault: ", Class::KernelOops),
    ("BUG: Bad page", Class::KernelOops),
    ("Bad page state", Class::KernelOops),
    ("BUG: Bad rss-counter", Class::KernelOops),
    ("list_add corruption", Class::KernelOops),
    ("list_del corruption", Class::KernelOops),
    ("BUG: scheduling while atomic", Class::KernelOops),
    ("BUG: sleeping function", Class::KernelOops),
    ("BUG: workqueue lockup", Class::KernelStall),
    ("BUG: soft lockup", Class::KernelStall),
    (
        "watchdog: Watchdog detected hard LOCKUP",
        Class::KernelStall,
    ),
    ("blocked for more than", Class::KernelStall),
    ("self-detected stall", Class::KernelStall),
    ("detected stalls on CPUs", Class::KernelStall),
    ("rcu_preempt kthread starved", Class::KernelStall),
    ("BUG: ", Class::KernelOops),
    ("EXT4-fs error", Class::FileSystem),
    ("EXT4-fs warning", Class::FileSystem),
    (
        "EXT4-fs (vda): Remounting filesystem read-only",
        Class::FileSystem,
    ),
    ("Remounting filesystem read-only", Class::FileSystem),
    ("JBD2: Error", Class::FileSystem),
    ("Aborting journal", Class::FileSystem),
    ("error: couldn't load journal", Class::FileSystem),
    ("I/O error", Class::IoError),
    ("Buffer I/O error", Class::IoError),
    ("lost async page write", Class::IoError),
    ("blk_update_request", Class::IoError),
    ("Out of memory: ", Class::OutOfMemory),
    ("Memory cgroup out of memory", Class::OutOfMemory),
    ("page allocation failure", Class::OutOfMemory),
    ("invoked oom-killer", Class::OutOfMemory),
    ("WARNING: CPU: ", Class::KernelWarning),
];

/// Everything found, in the order of the log.
pub fn findings(console: &str) -> Vec<Finding> {
    console.lines().filter_map(finding).collect()
}

fn finding(line: &str) -> Option<Finding> {
    let message = kernel_message(line)?;
    let (_, class) = SIGNS.iter().find(|(sign, _)| message.contains(sign))?;
    Some(Finding {
        class: *class,
        line: line.trim().to_owned(),
    })
}

/// What follows the time stamp of a kernel line: programs' and firmware's lines do not count.
fn kernel_message(line: &str) -> Option<&str> {
    let (stamp, message) = line.trim_start().strip_prefix('[')?.split_once("] ")?;
    let is_time = |byte: u8| byte.is_ascii_digit() || byte == b'.' || byte == b' ';
    (stamp.contains('.') && stamp.bytes().all(is_time)).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(console: &str) -> Vec<Class> {
        findings(console)
            .into_iter()
            .map(|finding| finding.class)
            .collect()
    }

    /// As Linux 6.12 prints them.
    #[test]
    fn each_kind_of_trouble_is_recognised() {
        for (line, class) in [
            (
                "[   31.400123] Kernel panic - not syncing: sysrq triggered crash",
                Class::KernelPanic,
            ),
            (
                "[    9.112233] BUG: kernel NULL pointer dereference, address: 0000000000000008",
                Class::KernelOops,
            ),
            (
                "[    9.112240] Oops: Oops: 0002 [#1] PREEMPT SMP PTI",
                Class::KernelOops,
            ),
            (
                "[   12.000001] Oops: general protection fault, probably for non-canonical address",
                Class::KernelOops,
            ),
            (
                "[   12.5] BUG: Bad page state in process stress-ng  pfn:1a2b3",
                Class::KernelOops,
            ),
            (
                "[   50.1] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [migration/1:17]",
                Class::KernelStall,
            ),
            (
                "[  242.7] INFO: task jbd2/vda-8:88 blocked for more than 120 seconds.",
                Class::KernelStall,
            ),
            (
                "[   21.0] rcu: INFO: rcu_preempt self-detected stall on CPU",
                Class::KernelStall,
            ),
            (
                "[   40.2] EXT4-fs error (device vda): ext4_lookup:1811: inode #12: bad entry",
                Class::FileSystem,
            ),
            (
                "[   40.3] JBD2: Error -5 detected when updating journal",
                Class::FileSystem,
            ),
            (
                "[   41.0] I/O error, dev vda, sector 2048 op 0x1:(WRITE) flags 0x800",
                Class::IoError,
            ),
            (
                "[   43.0] Out of memory: Killed process 311 (stress-ng-vm)",
                Class::OutOfMemory,
            ),
            (
                "[   44.0] WARNING: CPU: 0 PID: 17 at mm/migrate.c:812 migrate_folio+0x1/0x2",
                Class::KernelWarning,
            ),
        ] {
            assert_eq!(classes(line), [class], "{line}");
        }
    }

    #[test]
    fn a_healthy_boot_and_wake_say_nothing() {
        let console = "\
            [NOTE ]  coreboot-25.09 ERROR free start\n\
            [    0.000000] Linux version 6.12.117+deb12-cloud-amd64\n\
            [    0.512345] EXT4-fs (vda): mounted filesystem d0127005 r/w with ordered data mode.\n\
            [    0.600000] EXT4-fs (vda): recovery complete\n\
            [    4.000000] dormouse-guest: agent started\n\
            [    5.100000] dormouse: loading out-of-tree module taints kernel.\n\
            [   10.000000] PM: suspend entry (deep)\n\
            [   11.000000] ACPI: PM: Low-level resume complete\n\
            I/O error: a program's own line\n";
        assert_eq!(classes(console), []);
    }

    #[test]
    fn the_line_is_kept_for_the_report() {
        let found = findings("[    1.0] x\r\n[    2.0] kernel BUG at mm/rmap.c:1!\r\n");
        assert_eq!(found[0].line, "[    2.0] kernel BUG at mm/rmap.c:1!");
    }
}
