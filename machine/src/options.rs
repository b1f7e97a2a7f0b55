//! Options of going to sleep and of migrating back.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How pages migrate back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Whole processes, most recently running first: a process that runs often and briefly is
    /// probably interactive, and is served first.
    ///
    /// After Zimmer 2024, section 3.3.2, which sorts by `sched_info.last_arrival`. That field
    /// is not visible to user space; `se.exec_start` (last time that the scheduler accounted the
    /// thread) is, and differs by at most the length of one time slice.
    #[default]
    #[value(alias = "seed")]
    #[serde(alias = "seed")]
    ProcessOrder,
    /// The pages that were touched shortly before the sleep, and those that are touched after it,
    /// hottest first and whichever process owns them; then the rest in process order.
    HotFirst,
}

impl Policy {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Policy::ProcessOrder => "process-order",
            Policy::HotFirst => "hot-first",
        }
    }
}

/// Which NUMA node takes the user pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeChoice {
    /// The target node of the dax device in the firmware's CXL window.
    #[default]
    Auto,
    /// This node.
    Node(u32),
}

/// Which user pages get a digest, to be compared by firmware before it wakes the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum VerifyUserPages {
    /// No page
    None,
    /// A few hundred pages, in constant time: finds a device that another system has used
    #[default]
    Sample,
    /// Every page: finds any change, and takes time in proportion to the memory in use
    All,
}

impl VerifyUserPages {
    /// As the image has it.
    pub fn check(self) -> dormouse_image::UserCheck {
        match self {
            VerifyUserPages::None => dormouse_image::UserCheck::NONE,
            VerifyUserPages::Sample => dormouse_image::UserCheck::SAMPLE,
            VerifyUserPages::All => dormouse_image::UserCheck::ALL,
        }
    }

    /// The name that the module takes.
    pub fn name(self) -> &'static str {
        self.check().name()
    }
}

/// What saves the kernel's pages, and restores them when the machine wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum WayChoice {
    /// Firmware where it offers that, else the kernel's snapshot
    #[default]
    Auto,
    /// Our firmware, after S3
    Firmware,
    /// The kernel's own snapshot, on any firmware; an initramfs wakes the machine
    Snapshot,
}

/// When the pages migrate back after waking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MigrateBackMode {
    /// Before [`crate::sleep()`] returns.
    #[default]
    Wait,
    /// In a process of its own, started after waking.
    Background,
    /// Not now: a caller runs [`crate::migrate_back()`] later.
    Never,
}

/// A flag that stops what can be stopped; the cli sets it from SIGINT and SIGTERM.
#[derive(Debug, Clone, Default)]
pub struct Cancel(pub Arc<AtomicBool>);

impl Cancel {
    /// Whether a stop was requested.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Forgets an earlier request.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// How to go to sleep.
#[derive(Debug, Clone)]
pub struct SleepOptions {
    /// The node that takes the user pages.
    pub node: NodeChoice,
    /// What saves the kernel's pages.
    pub way: WayChoice,
    /// Threads that migrate; 0: one for each CPU.
    pub jobs: usize,
    /// When pages migrate back.
    pub home: MigrateBackMode,
    /// How to migrate back (node is taken from the sleep).
    pub migrate_back_options: MigrateBackOptions,
    /// Check and plan, change nothing.
    pub dry_run: bool,
    /// Sleep even where it is not known that the device keeps its contents.
    pub accept_volatile: bool,
    /// The user pages that firmware compares.
    pub verify_user_pages: VerifyUserPages,
    /// Where the passphrase of a sealed image is read; none: on the terminal.
    pub passphrase_file: Option<PathBuf>,
    /// Cgroups (path or last component) that go on running until the kernel freezes them.
    pub keep_running: Vec<String>,
    /// How long user space may take to stop.
    pub freeze_timeout: Duration,
    /// The command that migrates pages back with [`MigrateBackMode::Background`].
    pub background_command: Vec<OsString>,
    /// Stops the operation, for instance on a signal.
    pub cancel: Cancel,
}

impl Default for SleepOptions {
    fn default() -> SleepOptions {
        SleepOptions {
            node: NodeChoice::Auto,
            way: WayChoice::default(),
            jobs: 0,
            home: MigrateBackMode::Wait,
            migrate_back_options: MigrateBackOptions::default(),
            dry_run: false,
            accept_volatile: false,
            verify_user_pages: VerifyUserPages::default(),
            passphrase_file: None,
            keep_running: vec!["systemd-journald.service".to_owned()],
            freeze_timeout: Duration::from_secs(20),
            background_command: vec!["/proc/self/exe".into(), "migrate-back".into()],
            cancel: Cancel::default(),
        }
    }
}

/// How to migrate pages back.
#[derive(Debug, Clone, Default)]
pub struct MigrateBackOptions {
    /// The node that takes the user pages.
    pub node: NodeChoice,
    /// Threads that migrate; 0: half of the CPUs, at least one, because processes run meanwhile.
    pub jobs: usize,
    /// Bytes per second at most; none: as fast as it goes.
    pub rate_bytes_per_s: Option<u64>,
    /// The order of pages.
    pub policy: Policy,
    /// Stops the operation, for instance on a signal.
    pub cancel: Cancel,
}
