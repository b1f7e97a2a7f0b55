//! What a build reports to its caller while it runs: which step, how far, and whether it came from
//! the cache.

use std::fmt;

use serde::Serialize;
use strum::{Display, IntoStaticStr};

/// One step of the build, in the order in which a reader wants to see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Display, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Step {
    /// Which package versions the machine's archives offer.
    Resolve,
    /// The distribution's kernel, its modules and headers, unpacked.
    Kernel,
    /// The programs that a module for another release's kernel is built with.
    Tools,
    /// Our kernel module, built against those headers.
    Module,
    /// The firmware: coreboot with our driver.
    Firmware,
    /// The binaries of this workspace that run inside the emulated machine.
    Binaries,
    /// The root file system made from distribution packages.
    RootFs,
    /// The first user space: init and the modules that reach the disks.
    Initrd,
    /// The same with what wakes a machine under stock firmware.
    WakeInitrd,
    /// The disk image with our own binaries and modules.
    Payload,
    /// The flash image: firmware, kernel and initrd in one.
    Rom,
    /// The kernel with graph-ordered suspend and resume.
    DevicesKernel,
    /// The first user space of that kernel's machine.
    DevicesInitrd,
    /// The module of graph order for a distribution kernel.
    DevicesModule,
    /// The same with the drivers of a machine with many devices.
    DevicesDrivers,
    /// A distribution kernel with sched_ext.
    BandwidthKernel,
    /// The first user space of that kernel's machine.
    BandwidthInitrd,
    /// The memory device that counts and saturates.
    BandwidthDevice,
}

impl Step {
    /// All steps, in display order.
    pub const ALL: [Step; 18] = [
        Step::Resolve,
        Step::Kernel,
        Step::Tools,
        Step::Module,
        Step::Firmware,
        Step::Binaries,
        Step::RootFs,
        Step::Initrd,
        Step::WakeInitrd,
        Step::Payload,
        Step::Rom,
        Step::DevicesKernel,
        Step::DevicesInitrd,
        Step::DevicesModule,
        Step::DevicesDrivers,
        Step::BandwidthKernel,
        Step::BandwidthInitrd,
        Step::BandwidthDevice,
    ];

    /// The stable short name: event records, cache folders, `--json`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What a person reads beside a progress bar.
    pub fn title(self) -> &'static str {
        match self {
            Step::Resolve => "package versions",
            Step::Kernel => "kernel packages",
            Step::Tools => "build tools of a release",
            Step::Module => "kernel module",
            Step::Firmware => "firmware (coreboot)",
            Step::Binaries => "guest binaries",
            Step::RootFs => "root file system",
            Step::Initrd => "initial ram disk",
            Step::WakeInitrd => "first user space that wakes",
            Step::Payload => "payload disk",
            Step::Rom => "flash image",
            Step::DevicesKernel => "devices: kernel",
            Step::DevicesInitrd => "devices: initrd",
            Step::DevicesModule => "devices: module",
            Step::DevicesDrivers => "devices: drivers",
            Step::BandwidthKernel => "bandwidth: kernel",
            Step::BandwidthInitrd => "bandwidth: initrd",
            Step::BandwidthDevice => "bandwidth: device",
        }
    }
}

/// Something that happened during a build.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum BuildEvent {
    /// Another build holds the cache; this one waits for it.
    Waiting,
    /// A step is not in the cache and starts now.
    Started {
        /// The step.
        step: Step,
    },
    /// A step does something new: downloads, unpacks, compiles.
    Activity {
        /// The step.
        step: Step,
        /// What it does.
        activity: String,
    },
    /// A download moved: bytes so far, of how many.
    Bytes {
        /// The step.
        step: Step,
        /// Bytes done.
        done_bytes: u64,
        /// Bytes in total.
        total_bytes: u64,
    },
    /// A step is done.
    Finished(StepReport),
    /// Something worth knowing that does not stop the build.
    Warning {
        /// The message.
        message: String,
    },
}

/// How one step went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepReport {
    /// The step.
    pub step: Step,
    /// The result was in the cache; nothing was done.
    pub cached: bool,
    /// Duration in seconds.
    pub seconds: f64,
    /// Bytes fetched from the package archive for this step.
    pub fetched_bytes: u64,
    /// One short line for people: a version, a size.
    pub detail: String,
}

impl fmt::Display for StepReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.cached { "cached" } else { "built" };
        let (title, seconds, detail) = (self.step.title(), self.seconds, &self.detail);
        write!(formatter, "{title:<20} {how:<6} {seconds:>6.1} s  {detail}")
    }
}

/// Receives the events of a build; called from several threads.
pub trait BuildProgress: Sync {
    /// Receives an event; called from several threads.
    fn event(&self, event: BuildEvent);
}

/// Says nothing.
pub struct Quiet;

impl BuildProgress for Quiet {
    fn event(&self, _event: BuildEvent) {}
}
