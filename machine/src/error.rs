//! Why a machine did not go to sleep or its pages were not migrated back: what, where, what next.

use std::io;
use std::path::PathBuf;

use strum::IntoStaticStr;
use thiserror::Error;

use crate::bytes::human;
use crate::owner::{Owner, describe};

/// Every refusal and failure of this crate. [`SleepError::reason`] gives the stable name for
/// scripts; where firmware or the kernel module have a name for it, it is the same one.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum SleepError {
    /// The caller is not root.
    #[error(
        "only root can put the machine to sleep or move other users' pages: run this with sudo"
    )]
    NotRoot,

    /// The kernel module is not loaded.
    #[error(
        "{path} is missing: the module dormouse is not loaded, or it found no firmware that can \
         save this machine; run `modprobe dormouse`, read its line in `dmesg`, then `dormouse \
         doctor`"
    )]
    NoModule {
        /// The file that is missing or was used.
        path: PathBuf,
    },

    /// Suspend-to-CXL is switched off.
    #[error("Suspend-to-CXL is switched off: write 1 to {path} to allow it")]
    Disabled {
        /// The file that is missing or was used.
        path: PathBuf,
    },

    /// The device holds an image that was not resumed.
    #[error(
        "the CXL device holds a sleep image in state `{state}` that was not resumed; a new sleep \
         would destroy it: look at it with `dormouse image inspect`, reboot to drop it"
    )]
    ImageExists {
        /// State of that image.
        state: String,
    },

    /// The machine lacks a feature.
    #[strum(serialize = "not-supported")]
    #[error("this machine cannot {what}: {path} offers `{found}`; {next}")]
    Lacks {
        /// What needed it.
        what: &'static str,
        /// The file that is missing or was used.
        path: PathBuf,
        /// The contents of the file.
        found: String,
        /// What to do next.
        next: &'static str,
    },

    /// No source states that the device keeps its contents.
    #[error(
        "the sleep could be lost with the power: {reasons}; `dormouse doctor sleep` shows more, \
         and --accept-volatile takes the risk"
    )]
    Volatile {
        /// The answer of each source.
        reasons: String,
    },

    /// No head is set up.
    #[error(
        "no persistent memory is set up for sleeping on stock firmware ({detail}): see `dormouse \
         setup-device --help`"
    )]
    NoHead {
        /// The devices that there are.
        detail: String,
    },

    /// A device cannot be the head.
    #[error("{path} cannot take the kernel's snapshot: {detail}")]
    Head {
        /// The device.
        path: PathBuf,
        /// The reason.
        detail: String,
    },

    /// A step of the sleep by the kernel's snapshot failed.
    #[error(
        "the sleep failed at {step}: {source}; the machine goes on running, `dmesg` may have more"
    )]
    Snapshot {
        /// The step.
        step: &'static str,
        /// The error of the system call.
        source: io::Error,
    },

    /// The key that seals the image is not to be had.
    #[error(
        "the sleep image cannot be sealed: {detail}; `dormouse setup-device --help` tells how keys are set up"
    )]
    Key {
        /// The reason.
        detail: String,
    },

    /// The initramfs could not open what would be sealed.
    #[error(
        "the initramfs that would wake this machine {detail}: make it anew (`update-initramfs -u` or `dracut -f`) and reboot once"
    )]
    Initramfs {
        /// The difference.
        detail: String,
    },

    /// A boot entry cannot be made or removed.
    #[error("the boot entry is refused: {detail}")]
    BootEntry {
        /// The reason.
        detail: String,
    },

    /// The machine lacks what a boot entry needs.
    #[error("this machine cannot have a boot entry for waking: {detail}")]
    NoBootEntry {
        /// What is missing.
        detail: String,
    },

    /// There is no CXL memory for the sleep.
    #[error("no CXL memory for the sleep: {detail}; `dormouse doctor` shows which part is missing")]
    NoNode {
        /// The details.
        detail: String,
    },

    /// CXL memory is too small.
    #[error(
        "CXL memory is too small ({stage}): needed {needed_bytes} bytes ({}), available \
         {available_bytes} bytes ({}){}; free memory, or use a larger CXL device",
        human(*.needed_bytes), human(*.available_bytes),
        if .owners.is_empty() { String::new() } else { format!("; most of it: {}", describe(.owners)) }
    )]
    NoSpace {
        /// The check that found it: before or after migration.
        stage: &'static str,
        /// Bytes that the sleep needs.
        needed_bytes: u64,
        /// Bytes of CXL memory available.
        available_bytes: u64,
        /// The largest owners of what is needed, largest first.
        owners: Vec<Owner>,
    },

    /// User space did not stop in time.
    #[error(
        "user space did not stop within {seconds} s: cgroup {cgroup} still runs ({processes}); \
         wait for its I/O to end, or let it run with --keep {cgroup}"
    )]
    FreezeTimeout {
        /// The cgroup that still runs.
        cgroup: String,
        /// The time limit, in seconds.
        seconds: u64,
        /// Its processes.
        processes: String,
    },

    /// A signal stopped the sleep.
    #[error("stopped by a signal while {step}; the machine continues to run")]
    Interrupted {
        /// The step that it interrupted.
        step: &'static str,
    },

    /// Another dormouse sleeps or migrates.
    #[error("another dormouse sleeps or migrates pages (process {pid}): wait until it ends")]
    Busy {
        /// Its process ID.
        pid: String,
    },

    /// A file cannot be read or written.
    #[error("{what}: cannot {verb} {path}: {source}; {next}")]
    File {
        /// What needed it.
        what: &'static str,
        /// What was tried: read, write, …
        verb: &'static str,
        /// The file that is missing or was used.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
        /// What to do next.
        next: &'static str,
    },

    /// A memory block cannot go online as movable memory.
    #[error(
        "memory block {block} of node {node} cannot go online as movable memory: {detail}; see \
         `dmesg`, and check that no udev rule puts hot-added memory online"
    )]
    NotMovable {
        /// The memory block.
        block: String,
        /// NUMA node.
        node: u32,
        /// The details.
        detail: String,
    },

    /// Linux did not enter S3.
    #[error(
        "Linux gave up entering S3: {source}{}; the machine continues to run, see `dmesg`",
        .suspect.as_deref().map(|device| format!(" (last failed: {device})")).unwrap_or_default()
    )]
    NotEntered {
        /// The operating system's error.
        source: io::Error,
        /// The device that failed last, if the kernel names one.
        suspect: Option<String>,
    },

    /// Firmware or the module refused the sleep.
    #[error(
        "the sleep was refused: {reason} (detail {detail}); the machine continues to run, and `dmesg | \
         grep dormouse` explains the reason"
    )]
    Refused {
        /// The name of the reason.
        reason: String,
        /// The details.
        detail: String,
    },

    /// A sleep failed, and so did undoing it.
    #[error("{error}; undoing it was incomplete: {failures}")]
    NotUndone {
        /// The first failure.
        error: Box<SleepError>,
        /// What could not be undone.
        failures: String,
    },
}

impl SleepError {
    /// Without what could not be put back.
    fn cause(&self) -> &SleepError {
        match self {
            SleepError::NotUndone { error, .. } => error.cause(),
            error => error,
        }
    }

    /// The stable name of the reason, for scripts and for `--json`.
    pub fn reason(&self) -> &str {
        match self.cause() {
            SleepError::Refused { reason, .. } => reason,
            error => error.into(),
        }
    }

    /// Whether the sleep was refused (and the machine continues to run), as opposed to
    /// something that failed.
    pub fn is_refusal(&self) -> bool {
        match self.cause() {
            SleepError::NoSpace { .. }
            | SleepError::Disabled { .. }
            | SleepError::ImageExists { .. }
            | SleepError::Head { .. }
            | SleepError::Key { .. }
            | SleepError::BootEntry { .. }
            | SleepError::Refused { .. } => true,
            error => error.is_lack(),
        }
    }

    /// Whether this machine lacks something.
    fn is_lack(&self) -> bool {
        matches!(
            self.cause(),
            SleepError::NoModule { .. }
                | SleepError::Lacks { .. }
                | SleepError::Volatile { .. }
                | SleepError::NoHead { .. }
                | SleepError::Initramfs { .. }
                | SleepError::NoNode { .. }
                | SleepError::NoBootEntry { .. }
        )
    }

    /// The exit code of the command: 3 where this machine lacks something, else 1.
    pub fn exit_code(&self) -> u8 {
        if self.is_lack() { 3 } else { 1 }
    }

    /// The numbers of a refusal for lack of space.
    pub fn space_bytes(&self) -> Option<(u64, u64)> {
        match self.cause() {
            SleepError::NoSpace {
                needed_bytes,
                available_bytes,
                ..
            } => Some((*needed_bytes, *available_bytes)),
            _ => None,
        }
    }

    /// The largest owners of what is needed, of a refusal for lack of space.
    pub fn owners(&self) -> &[Owner] {
        match self.cause() {
            SleepError::NoSpace { owners, .. } => owners,
            _ => &[],
        }
    }

    /// Names them.
    #[must_use]
    pub fn with_owners(mut self, found: impl FnOnce() -> Vec<Owner>) -> SleepError {
        if let SleepError::NoSpace { owners, .. } = &mut self {
            *owners = found();
        }
        self
    }

    /// An error about a file that could not be written.
    pub fn write(
        what: &'static str,
        path: PathBuf,
        next: &'static str,
    ) -> impl FnOnce(io::Error) -> SleepError {
        move |source| SleepError::File {
            what,
            verb: "write",
            path,
            source,
            next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::MemoryKind;

    #[test]
    fn too_little_space_is_reported_with_both_numbers_and_the_firmware_s_reason_name() {
        let error = SleepError::NoSpace {
            stage: "preflight",
            needed_bytes: 1000,
            available_bytes: 10,
            owners: Vec::new(),
        };
        assert!(!error.to_string().contains("most of it"));
        let error =
            error.with_owners(|| vec![Owner::without_process("/tmp", MemoryKind::Tmpfs, 900)]);
        let text = error.to_string();
        assert!(text.contains("most of it: /tmp 900 B tmpfs"), "{text}");
        assert!(
            text.contains("1000 bytes") && text.contains("10 bytes"),
            "{text}"
        );
        assert_eq!((error.reason(), error.exit_code()), ("no-space", 1));
    }

    #[test]
    fn the_names_of_reasons_are_stable() {
        let path = PathBuf::new;
        for (error, reason) in [
            (SleepError::NotRoot, "not-root"),
            (SleepError::NoModule { path: path() }, "no-module"),
            (SleepError::Disabled { path: path() }, "disabled"),
            (SleepError::Busy { pid: "1".into() }, "busy"),
            (SleepError::Interrupted { step: "syncing" }, "interrupted"),
            (
                SleepError::Lacks {
                    what: "sleep",
                    path: path(),
                    found: String::new(),
                    next: "",
                },
                "not-supported",
            ),
        ] {
            assert_eq!(error.reason(), reason);
        }
    }

    #[test]
    fn an_incomplete_undo_keeps_the_first_reason() {
        let error = Box::new(SleepError::Refused {
            reason: "memory-map".into(),
            detail: "0".into(),
        });
        let error = SleepError::NotUndone {
            error,
            failures: "thaw: no".into(),
        };
        assert_eq!(error.reason(), "memory-map");
        assert!(error.is_refusal());
    }
}
