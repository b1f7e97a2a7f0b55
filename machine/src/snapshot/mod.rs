//! Sleeping on stock firmware: the kernel's own snapshot is the image, in persistent memory that an
//! initramfs reads at the next boot. User pages stay on their device and are in no snapshot.
//!
//! ```text
//!  down   nosave range ─▶ /dev/snapshot: freeze, create ─▶ digests ─▶ head ─▶ commit ─▶ power off
//!  up     initramfs: check ─▶ /dev/snapshot: feed ─▶ digest right? ─▶ consume ─▶ atomic restore
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`boot_entry`] | a boot entry of UEFI that wakes without the distribution's initramfs |
//! | `cxl_regions` | regions of CXL memory that must be made again after a power loss |
//! | `devices` | the two dax devices, their identity, whether they keep their contents |
//! | `facts` | what must be the same when waking: kernel, memory map, amount of memory |
//! | [`setup`] | makes a device a head |
//! | `kernel` | /dev/snapshot and what the module offers |
//! | `pages` | which pages of the node are occupied, and their digests |
//! | `place` | which run of a boot decides: before udev, or after it |
//! | `seal` | whose key encrypts the snapshot, and the counter against an older one |
//! | `stream` | the snapshot as a stream, on both sides |
//! | `readiness` | what `dormouse doctor sleep` judges |
//! | `save` | the last steps down |
//! | [`wake`] | the steps up |

pub mod boot_entry;
mod cxl_regions;
pub(crate) mod devices;
pub(crate) mod facts;
pub(crate) mod hibernation;
pub(crate) mod kernel;
pub(crate) mod pages;
pub(crate) mod place;
mod readiness;
pub(crate) mod save;
pub(crate) mod seal;
pub mod setup;
mod stream;
pub mod wake;

pub use cxl_regions::bound_memory as bound_cxl_memory;
pub use hibernation::Forbidden;
pub use readiness::{Readiness, Sealing};
pub use seal::Source;

use dormouse_image::head::Head;

use crate::error::SleepError;
use crate::node::DaxDevice;
use crate::snapshot::seal::Settings;
use dormouse_system::Root;

/// Written by `dormouse wake` at each boot: without it nobody would restore what sleeps.
pub(crate) const WAKE_RAN: &str = "run/dormouse/wake";

/// A machine that is set up for this way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Takes the kernel's snapshot.
    pub head: DaxDevice,
    /// Takes programs' pages.
    pub node: DaxDevice,
    /// State of the header.
    pub state: String,
    /// How often it was resumed.
    pub resume_count: u64,
    /// Room for the kernel's snapshot.
    pub room_bytes: u64,
    /// How it is sealed; none: it is not.
    pub(crate) seal: Option<Settings>,
}

/// Finds the head and the node that it names, and what else this way needs.
///
/// # Errors
/// What is missing, and how to get it.
pub fn find(root: &Root) -> Result<Setup, SleepError> {
    let all = devices::all(root);
    let (head, header) = devices::find_head(root, &all).ok_or_else(|| SleepError::NoHead {
        detail: devices::describe(&all),
    })?;
    let image = header.snapshot;
    let node = all
        .iter()
        .find(|one| (one.base, one.bytes) == (image.node_base, image.node_bytes))
        .ok_or_else(|| SleepError::NoNode {
            detail: format!(
                "{} was set up for user pages at {:#x} ({} bytes), and there is no dax device: {}",
                head.name,
                image.node_base,
                image.node_bytes,
                devices::describe(&all)
            ),
        })?;
    Ok(Setup {
        state: dormouse_image::State(header.state).name().to_owned(),
        resume_count: header.resume_count,
        room_bytes: head.bytes.saturating_sub(header.data_offset),
        seal: Settings::read(root).map_err(|detail| SleepError::Key { detail })?,
        head,
        node: node.clone(),
    })
}

impl Setup {
    /// An empty head and a node, for tests of what is said about them.
    #[doc(hidden)]
    pub fn for_tests(head: DaxDevice, node: DaxDevice) -> Setup {
        Setup {
            room_bytes: head.bytes,
            state: "empty".to_owned(),
            resume_count: 0,
            seal: None,
            head,
            node,
        }
    }

    /// Maps the head.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open_head(&self, root: &Root, writable: bool) -> Result<Head, SleepError> {
        devices::open_head(root, &self.head, writable)
    }
}

/// Checks what the kernel and the boot must offer.
///
/// # Errors
/// The first thing that is missing.
pub(crate) fn check_kernel(root: &Root, setup: &Setup) -> Result<(), SleepError> {
    let lacks = |path: &str, found: &str, next| SleepError::Lacks {
        what: "sleep by the kernel's snapshot",
        path: root.path(path),
        found: found.to_owned(),
        next,
    };
    if !root.exists(kernel::NOSAVE) {
        return Err(lacks(
            kernel::NOSAVE,
            "no such file",
            "run `modprobe dormouse_snapshot`, and read its line in `dmesg`",
        ));
    }
    if let Some(why) = hibernation::forbidden(root) {
        return Err(lacks("sys/power/state", &why.found, why.next));
    }
    if !root.exists(kernel::DEVICE) {
        return Err(lacks(
            kernel::DEVICE,
            "no such file",
            "the kernel needs CONFIG_HIBERNATION_SNAPSHOT_DEV",
        ));
    }
    if !root.exists(WAKE_RAN) {
        return Err(lacks(
            WAKE_RAN,
            "no such file",
            "nobody looked for an image at this boot, so nobody would wake it: install the \
             initramfs hook (`update-initramfs -u` or `dracut -f`) and reboot once",
        ));
    }
    check_initramfs(root, setup)
}

/// Whether the initramfs of this boot could open what this machine would seal.
fn check_initramfs(root: &Root, setup: &Setup) -> Result<(), SleepError> {
    let own = seal::Mark::of(root, setup.seal.as_ref()).map_err(|error| SleepError::Key {
        detail: error.to_string(),
    })?;
    let found = seal::Mark::read(&root.read(WAKE_RAN).unwrap_or_default());
    if !found.has_seen(setup.head.base, setup.head.bytes) {
        let detail = format!(
            "saw no persistent memory at {:#x}, where {} lies: a module of its driver is missing \
             there, or it is older than this device",
            setup.head.base, setup.head.name
        );
        return Err(SleepError::Initramfs { detail });
    }
    if found.seal != own.seal {
        let detail = match (own.seal.as_str(), found.seal.as_str()) {
            (_, seal::NO_SEAL) => "takes images in plain text only, and this machine seals them",
            (seal::NO_SEAL, _) => "takes sealed images only, and this machine seals none",
            _ => "has another key or other settings of it than this machine",
        };
        let detail = detail.to_owned();
        return Err(SleepError::Initramfs { detail });
    }
    if let Some(why) = found.snapshot {
        let detail = format!("could not: {why}");
        return Err(SleepError::Initramfs { detail });
    }
    match found.trouble {
        Some(trouble) => Err(SleepError::Initramfs {
            detail: format!("cannot use the TPM ({trouble})"),
        }),
        None => Ok(()),
    }
}
