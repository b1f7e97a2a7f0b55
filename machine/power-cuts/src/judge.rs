//! The verdict on a power-on: resumed and equal, or cold boot with the one reason that fits.

use std::ffi::CStr;

use crate::machine::{Cut, End, Machine};
use crate::memory::Content;
use crate::sys;

/// What a power-on may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The machine goes on where it slept.
    Resumed,
    /// Cold boot with this reason.
    Cold(u32),
    /// Cold boot with any reason: the device never had a whole header.
    AnyCold,
}

/// What it came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It resumed, and all pages are as they were.
    Resumed,
    /// It booted cold.
    Cold(String),
}

/// What must never happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// a resume with other pages
    #[error("resumed, and {kind} page {page:#x} is not what it was")]
    Unequal {
        /// `DRAM` or `user`.
        kind: &'static str,
        /// Its number.
        page: u64,
    },
    /// another end than those that fit
    #[error("{found:?}, expected one of {expected:?}")]
    Unexpected {
        /// What happened.
        found: Found,
        /// What may happen.
        expected: Vec<Expected>,
    },
    /// a cold boot that does not say why, or says different things
    #[error("a cold boot without one reason: console {console:?}, header {header:?}")]
    NoReason {
        /// On the console.
        console: Option<String>,
        /// In the header: outcome and reason.
        header: Option<(u32, u32)>,
    },
}

/// The name of a reason.
fn reason_name(reason: u32) -> &'static str {
    // SAFETY: a literal for each number.
    unsafe { CStr::from_ptr(sys::dormouse_reason_name(reason)) }
        .to_str()
        .unwrap_or("unknown")
}

/// What a power-on with this header comes to, when everything that it describes is there.
pub(crate) fn expected(header: Option<&sys::dormouse_header>) -> Expected {
    let Some(header) = header else {
        return Expected::AnyCold;
    };
    match header.state {
        sys::DORMOUSE_STATE_EMPTY => Expected::Cold(sys::DORMOUSE_E_NO_IMAGE),
        // `dormouse wake` sees nothing to wake there, and says no more.
        sys::DORMOUSE_STATE_CONSUMED if header.kind == sys::DORMOUSE_KIND_SNAPSHOT => {
            Expected::Cold(sys::DORMOUSE_E_NO_IMAGE)
        }
        sys::DORMOUSE_STATE_CONSUMED => Expected::Cold(sys::DORMOUSE_E_CONSUMED),
        sys::DORMOUSE_STATE_SUSPENDED | sys::DORMOUSE_STATE_RESTORING => {
            if header.restore_attempts >= sys::DORMOUSE_MAX_RESTORE_ATTEMPTS {
                Expected::Cold(sys::DORMOUSE_E_ATTEMPTS)
            } else {
                Expected::Resumed
            }
        }
        _ => Expected::Cold(sys::DORMOUSE_E_INCOMPLETE),
    }
}

impl Cut {
    /// What the next power-on may come to: what the durable header says, or the one in flight.
    pub fn expected(&self) -> Vec<Expected> {
        let mut all: Vec<_> = self
            .headers
            .iter()
            .map(|header| expected(header.as_ref()))
            .collect();
        all.dedup();
        all
    }
}

/// Judges the power-on that ended so. `content` is what the pages were when the machine slept.
///
/// # Errors
/// What must never happen.
pub fn judge(
    machine: &Machine,
    end: End,
    allowed: &[Expected],
    content: Content,
) -> Result<Found, Wrong> {
    let found = match end {
        End::Resumed => {
            compare(machine, content)?;
            Found::Resumed
        }
        _ => Found::Cold(cold_boot(machine)?),
    };
    let fits = allowed.iter().any(|expected| match (expected, &found) {
        (Expected::Resumed, Found::Resumed) | (Expected::AnyCold, Found::Cold(_)) => true,
        (Expected::Cold(reason), Found::Cold(name)) => name == reason_name(*reason),
        _ => false,
    });
    if fits {
        Ok(found)
    } else {
        let expected = allowed.to_vec();
        Err(Wrong::Unexpected { found, expected })
    }
}

fn compare(machine: &Machine, content: Content) -> Result<(), Wrong> {
    let memory = &machine.memory;
    let mut saved = machine.shape.saved_pages();
    if let Some(page) = saved.find(|&page| !memory.dram_holds(page, content)) {
        return Err(Wrong::Unequal { kind: "DRAM", page });
    }
    let mut user = machine.shape.user.iter();
    match user.find(|&&page| !memory.window_holds(page, content)) {
        Some(&page) => Err(Wrong::Unequal { kind: "user", page }),
        None => Ok(()),
    }
}

/// The console and the header say the same; without an image the header keeps the last outcome.
fn cold_boot(machine: &Machine) -> Result<String, Wrong> {
    let console = machine.cold_boot_reason().map(str::to_owned);
    let header = machine.memory.header();
    let stored = header.map(|header| (header.last_outcome, header.last_reason));
    let agrees = match (&console, stored) {
        (Some(console), Some((outcome, reason))) => {
            console == reason_name(sys::DORMOUSE_E_NO_IMAGE)
                || (outcome == sys::DORMOUSE_OUTCOME_COLD_BOOT && console == reason_name(reason))
        }
        _ => false,
    };
    match console {
        Some(console) if agrees => Ok(console),
        console => Err(Wrong::NoReason {
            console,
            header: stored,
        }),
    }
}
