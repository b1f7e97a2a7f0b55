//! Which of the two runs of a boot decides: the initramfs looks for an image once before udev starts,
//! when only the modules for persistent memory are loaded, and once after udev has settled.
//!
//! ```text
//!  modules of persistent memory ─▶ before udev ─┬─▶ woken, or a boot whose mark says that all is decided
//!                                               └─▶ something is not there yet ─▶ udev ─▶ after udev
//! ```
//!
//! The first run puts off what it cannot judge, and leaves no trace then: no mark, no counter of the TPM,
//! nothing in the head. The second always decides, unless the first has.

use std::fs::{self, File};

use dormouse_system::Root;
use rustix::fs::{FlockOperation, flock};

use crate::snapshot::WAKE_RAN;
use crate::snapshot::seal::{Settings, Source};
use crate::system::lock::RUN_DIRECTORY;

const TURN: &str = "run/dormouse/wake.lock";

/// When in a boot `dormouse wake` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Only the modules of persistent memory are loaded.
    BeforeUdev,
    /// Every driver that the initramfs has is loaded.
    AfterUdev,
}

impl Place {
    /// As the mark has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::BeforeUdev => "before-udev",
            Place::AfterUdev => "after-udev",
        }
    }
}

/// What a run sees before it decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// Whether there is a head.
    pub has_head: bool,
    /// Whether it holds an image that waits.
    pub has_image: bool,
    /// Whether the device is there on which the image has its programs' pages.
    pub has_node: bool,
    /// How images are sealed; none: they are not, or nobody can tell.
    pub settings: Option<&'a Settings>,
    /// Whether the device of the TPM is there, where the settings need one.
    pub has_tpm: bool,
}

impl Place {
    /// Why the decision is left to the run after udev; none: it is made here.
    pub(crate) fn puts_off(self, seen: &Seen<'_>) -> Option<&'static str> {
        if self == Place::AfterUdev {
            return None;
        }
        let asks = |one: &Settings| one.key == Source::Passphrase;
        if !seen.has_head {
            Some("no device is a head yet")
        } else if !seen.has_tpm {
            // It counts each boot that passes an image by.
            Some("the TPM is not there yet")
        } else if seen.has_image && !seen.has_node {
            Some("the device with the programs' pages is not there yet")
        } else if seen.has_image && seen.settings.is_some_and(asks) {
            Some("the passphrase needs the drivers of a keyboard")
        } else {
            None
        }
    }
}

/// Held while a run is at it.
#[derive(Debug)]
pub(crate) struct Turn {
    _file: Option<File>,
}

/// Why this run does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// An earlier run of this boot has decided.
    Decided,
    /// Another one runs.
    Busy,
}

impl Turn {
    /// Takes the turn; an image must be looked at by one run at a time, and decided on once.
    pub(crate) fn take(root: &Root) -> Result<Turn, NoTurn> {
        // Where the file cannot be made there is no mark either, and waking matters more.
        let file = fs::create_dir_all(root.path(RUN_DIRECTORY))
            .and_then(|()| File::create(root.path(TURN)))
            .ok();
        if let Some(file) = &file
            && flock(file, FlockOperation::NonBlockingLockExclusive)
                == Err(rustix::io::Errno::WOULDBLOCK)
        {
            return Err(NoTurn::Busy);
        }
        if root.exists(WAKE_RAN) {
            return Err(NoTurn::Decided);
        }
        Ok(Turn { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn puts_off(change: impl FnOnce(&mut Seen<'_>)) -> Option<&'static str> {
        let mut seen = Seen {
            has_head: true,
            has_image: true,
            has_node: true,
            settings: None,
            has_tpm: true,
        };
        change(&mut seen);
        assert_eq!(Place::AfterUdev.puts_off(&seen), None, "{seen:?}");
        Place::BeforeUdev.puts_off(&seen)
    }

    #[test]
    fn what_is_not_there_before_udev_is_left_to_the_run_after_it() {
        assert_eq!(puts_off(|_| ()), None);
        assert!(puts_off(|seen| seen.has_head = false).is_some());
        assert!(puts_off(|seen| seen.has_node = false).is_some());
        assert!(puts_off(|seen| seen.has_tpm = false).is_some());
    }

    #[test]
    fn a_boot_without_an_image_is_decided_before_udev_whatever_the_image_would_need() {
        let settings = Settings::new(Source::Passphrase);
        let empty = |seen: &mut Seen<'_>| {
            seen.has_image = false;
            seen.has_node = false;
        };
        assert_eq!(puts_off(empty), None);
        let mut seen = Seen {
            has_head: true,
            has_image: false,
            has_node: false,
            settings: Some(&settings),
            has_tpm: true,
        };
        assert_eq!(Place::BeforeUdev.puts_off(&seen), None);
        // The counter goes up at each boot.
        seen.has_tpm = false;
        assert!(Place::BeforeUdev.puts_off(&seen).is_some());
    }

    #[test]
    fn a_passphrase_is_asked_for_after_udev() {
        for (source, later) in [
            (Source::Passphrase, true),
            (Source::KeyFile, false),
            (Source::Tpm, false),
        ] {
            let settings = Settings::new(source);
            let seen = Seen {
                has_head: true,
                has_image: true,
                has_node: true,
                settings: Some(&settings),
                has_tpm: true,
            };
            assert_eq!(Place::BeforeUdev.puts_off(&seen).is_some(), later);
            assert_eq!(Place::AfterUdev.puts_off(&seen), None);
        }
    }

    #[test]
    fn one_run_at_a_time_and_none_after_a_decision() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let turn = Turn::take(&root).unwrap();
        assert_eq!(Turn::take(&root).unwrap_err(), NoTurn::Busy);
        drop(turn);
        drop(Turn::take(&root).unwrap());
        root.create(WAKE_RAN, "").unwrap();
        assert_eq!(Turn::take(&root).unwrap_err(), NoTurn::Decided);
    }
}
