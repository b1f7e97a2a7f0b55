//! The classes of failed cycles: name, meaning, next step.

use serde::{Deserialize, Serialize};

/// In the order of their weight: a cycle counts for the gravest of what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    ResumedTwice,
    DataDiffers,
    RedisLostKeys,
    FilesDiffer,
    FileSystem,
    KernelPanic,
    KernelOops,
    CrashReset,
    HangInSuspend,
    HangInResume,
    HangAwake,
    UnexpectedColdBoot,
    ColdBootWithoutReason,
    BootFailed,
    IoError,
    KernelStall,
    KernelWarning,
    OutOfMemory,
    Refused,
    NoWayHome,
    LoadDied,
    Emulator,
    Lab,
}

impl Class {
    pub const ALL: [Class; 23] = [
        Class::ResumedTwice,
        Class::DataDiffers,
        Class::RedisLostKeys,
        Class::FilesDiffer,
        Class::FileSystem,
        Class::KernelPanic,
        Class::KernelOops,
        Class::CrashReset,
        Class::HangInSuspend,
        Class::HangInResume,
        Class::HangAwake,
        Class::UnexpectedColdBoot,
        Class::ColdBootWithoutReason,
        Class::BootFailed,
        Class::IoError,
        Class::KernelStall,
        Class::KernelWarning,
        Class::OutOfMemory,
        Class::Refused,
        Class::NoWayHome,
        Class::LoadDied,
        Class::Emulator,
        Class::Lab,
    ];

    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// What happened.
    pub fn meaning(self) -> &'static str {
        self.facts().1
    }

    /// Where to look first.
    pub fn next(self) -> &'static str {
        self.facts().2
    }

    /// Whether data differ from what was written: exit code 4.
    pub fn is_wrong_data(self) -> bool {
        matches!(
            self,
            Class::ResumedTwice
                | Class::DataDiffers
                | Class::RedisLostKeys
                | Class::FilesDiffer
                | Class::FileSystem
        )
    }

    /// Whether the disks may show what happened.
    pub fn concerns_disks(self) -> bool {
        matches!(
            self,
            Class::RedisLostKeys | Class::FilesDiffer | Class::FileSystem | Class::BootFailed
        )
    }

    fn facts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Class::ResumedTwice => (
                "resumed-twice",
                "an image was resumed although user space had run since it was made",
                "firmware must consume the image before it jumps to the wake vector: events.jsonl \
                 shows the order",
            ),
            Class::DataDiffers => (
                "data-differs",
                "a page or a counter of the workload has changed",
                "`dormouse image inspect` the kept CXL file; was the page saved or migrated? Repeat \
                 the cycle",
            ),
            Class::RedisLostKeys => (
                "redis-lost-keys",
                "redis lost a key that it had acknowledged, or does not serve",
                "server.log in /mnt/scratch/stress/redis of the kept scratch disk",
            ),
            Class::FilesDiffer => (
                "files-differ",
                "a file that was durable is missing, older, or damaged",
                "the reason names the file; look at it on the kept disk, and at ext4's lines on \
                 the console",
            ),
            Class::FileSystem => (
                "file-system",
                "ext4 reports an error, or e2fsck finds damage after the journal was replayed",
                "run e2fsck -fn on the kept disk; ext4's first complaint counts",
            ),
            Class::KernelPanic => (
                "kernel-panic",
                "the kernel panicked",
                "the console log has the call trace; the first Oops before it is the cause",
            ),
            Class::KernelOops => (
                "kernel-oops",
                "an Oops, a BUG or a corrupted structure in the kernel",
                "the call trace; a structure that is wrong only after waking points to a page that \
                 was not saved",
            ),
            Class::CrashReset => (
                "crash-reset",
                "the machine reset itself, as after a triple fault",
                "the last lines of the console; in firmware if there is no kernel line, else in \
                 the wake-up path",
            ),
            Class::HangInSuspend => (
                "hang-in-suspend",
                "the machine neither switched itself off nor gave an answer",
                "the last event shows the step: migration, devices, or firmware",
            ),
            Class::HangInResume => (
                "hang-in-resume",
                "after power-on neither user space ran nor did a boot come to an end",
                "the last event: firmware's (restore) or the kernel's (devices, thaw)",
            ),
            Class::HangAwake => (
                "hang-awake",
                "user space ran again, and then a question was not answered in time",
                "what was asked is in the reason; blocked tasks are on the console after 120 s",
            ),
            Class::UnexpectedColdBoot => (
                "unexpected-cold-boot",
                "a sleep that was not disturbed ended in a cold boot",
                "the reason is firmware's; `dormouse image verify` the kept CXL file",
            ),
            Class::ColdBootWithoutReason => (
                "cold-boot-without-reason",
                "a cold boot, and firmware did not say why",
                "firmware's lines on the console of the last power-on",
            ),
            Class::BootFailed => (
                "boot-failed",
                "after a power cut the machine did not boot",
                "the console of the last power-on; the disks are kept",
            ),
            Class::IoError => (
                "io-error",
                "the kernel reports an I/O error of a disk",
                "a request that was under way in the sleep: see the virtio devices' resume",
            ),
            Class::KernelStall => (
                "kernel-stall",
                "a task or a processor stood still for long",
                "a busy host makes false ones: see the load, repeat on a quiet one",
            ),
            Class::KernelWarning => (
                "kernel-warning",
                "the kernel printed a WARNING",
                "the call trace says whether the sleep took part in it",
            ),
            Class::OutOfMemory => (
                "out-of-memory",
                "the kernel ran out of memory",
                "pages that did not migrate back, or a load too large for --dram",
            ),
            Class::Refused => (
                "refused",
                "`dormouse sleep` refused or failed, and the machine went on",
                "the reason has its name: docs/explanation/sleep.md",
            ),
            Class::NoWayHome => (
                "no-way-home",
                "pages did not migrate back, or `dormouse sleep` failed after waking",
                "the reason names what did not move; repeat the cycle",
            ),
            Class::LoadDied => (
                "load-died",
                "stress-ng or a writer ended, failed its own check, or stood still",
                "what it said is in the reason",
            ),
            Class::Emulator => (
                "emulator",
                "QEMU ended by itself or could not be started",
                "qemu-NNN.log in the cycle's folder",
            ),
            Class::Lab => (
                "lab",
                "the lab itself failed: no verdict on the sleep",
                "the reason says what; a full disk or a busy host are usual",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_name_of_its_own_and_says_what_to_do() {
        let names: std::collections::BTreeSet<&str> =
            Class::ALL.iter().map(|class| class.name()).collect();
        assert_eq!(names.len(), Class::ALL.len());
        for class in Class::ALL {
            assert!(!class.meaning().is_empty() && !class.next().is_empty());
            let json = serde_json::to_string(&class).unwrap();
            assert_eq!(json, format!("\"{}\"", class.name()), "one name everywhere");
        }
    }

    #[test]
    fn the_list_is_in_the_order_of_weight_and_complete() {
        assert!(Class::ALL.is_sorted());
        assert_eq!(Class::ALL.len(), Class::Lab as usize + 1);
    }
}
