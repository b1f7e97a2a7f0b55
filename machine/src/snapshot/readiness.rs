//! What `dormouse doctor sleep` needs to know of this way: plain facts, nothing is changed.

use dormouse_system::Root;

use crate::persistence::{Persistence, Verdict, decide};
use crate::snapshot::hibernation::Forbidden;
use crate::snapshot::seal::{Settings, Source};
use crate::snapshot::{self, Setup, WAKE_RAN, devices, hibernation, kernel};

/// How images are protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sealing {
    /// Not at all.
    PlainText,
    /// The kernel's part is encrypted and authenticated.
    Sealed {
        /// Whose key.
        source: Source,
        /// Whether an older image is refused.
        has_counter: bool,
    },
    /// The settings cannot be read.
    Unreadable(String),
}

/// The facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// Whether the kernel may hibernate; else what forbids it.
    pub hibernation: Result<(), Forbidden>,
    /// Whether there is a /dev/snapshot.
    pub has_device: bool,
    /// Whether dormouse_snapshot.ko is loaded.
    pub has_module: bool,
    /// The two devices, or what is missing.
    pub setup: Result<Setup, String>,
    /// Whether the initramfs of this boot looked for an image, and could open what would be made.
    pub initramfs: Result<(), String>,
    /// Whether the devices keep their contents; none without both.
    pub persistence: Option<Verdict>,
    /// How images are protected.
    pub sealing: Sealing,
}

impl Readiness {
    /// Reads the machine below the root.
    pub fn probe(root: &Root) -> Readiness {
        let setup = snapshot::find(root).map_err(|error| error.to_string());
        let initramfs = match (&setup, root.exists(WAKE_RAN)) {
            (_, false) => Err("nobody looked for an image at this boot".to_owned()),
            (Ok(setup), true) => {
                snapshot::check_initramfs(root, setup).map_err(|error| error.to_string())
            }
            (Err(_), true) => Ok(()),
        };
        let persistence = setup.as_ref().ok().map(|setup| {
            let answer = devices::persistence(root, [&setup.head, &setup.node]);
            decide([(Persistence::DEVICE, answer)])
        });
        Readiness {
            hibernation: hibernation::forbidden(root).map_or(Ok(()), Err),
            has_device: root.exists(kernel::DEVICE),
            has_module: root.exists(kernel::NOSAVE),
            setup,
            initramfs,
            persistence,
            sealing: sealing(root),
        }
    }
}

fn sealing(root: &Root) -> Sealing {
    match Settings::read(root) {
        Ok(None) => Sealing::PlainText,
        Ok(Some(settings)) => Sealing::Sealed {
            source: settings.key,
            has_counter: settings.counter.is_some(),
        },
        Err(why) => Sealing::Unreadable(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_machine_lacks_every_part_of_this_way() {
        let directory = tempfile::tempdir().unwrap();
        let found = Readiness::probe(&Root::at(directory.path()));
        assert!(!found.has_device && !found.has_module);
        assert!(found.hibernation.is_err() && found.setup.is_err() && found.initramfs.is_err());
        assert_eq!(found.persistence, None);
        assert_eq!(found.sealing, Sealing::PlainText);
    }
}
