//! States, outcomes, reasons and what else an image stores as a number, with the names that firmware and kernel print.

use std::ffi::CStr;
use std::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::sys;

/// The text behind a pointer that one of the C name functions returned.
fn name_from(pointer: *const std::ffi::c_char) -> &'static str {
    // SAFETY: the name functions return NUL-terminated literals for any argument.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().unwrap_or("unknown")
}

/// Why a sleep or a wake is refused: `enum dormouse_reason`, including numbers that this
/// version does not know.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(pub u32);

impl Reason {
    pub const OK: Self = Self(sys::DORMOUSE_OK);
    pub const NO_IMAGE: Self = Self(sys::DORMOUSE_E_NO_IMAGE);
    pub const MAGIC: Self = Self(sys::DORMOUSE_E_MAGIC);
    pub const VERSION: Self = Self(sys::DORMOUSE_E_VERSION);
    pub const HEADER_SIZE: Self = Self(sys::DORMOUSE_E_HEADER_SIZE);
    pub const HEADER_DIGEST: Self = Self(sys::DORMOUSE_E_HEADER_DIGEST);
    pub const FLAGS: Self = Self(sys::DORMOUSE_E_FLAGS);
    pub const STATE: Self = Self(sys::DORMOUSE_E_STATE);
    pub const INCOMPLETE: Self = Self(sys::DORMOUSE_E_INCOMPLETE);
    pub const CONSUMED: Self = Self(sys::DORMOUSE_E_CONSUMED);
    pub const IMAGE_EXISTS: Self = Self(sys::DORMOUSE_E_IMAGE_EXISTS);
    pub const MEMORY_MAP: Self = Self(sys::DORMOUSE_E_MEMORY_MAP);
    pub const DRAM_SIZE: Self = Self(sys::DORMOUSE_E_DRAM_SIZE);
    pub const CXL_SIZE: Self = Self(sys::DORMOUSE_E_CXL_SIZE);
    pub const DEVICE: Self = Self(sys::DORMOUSE_E_DEVICE);
    pub const DIRTY_SHUTDOWN: Self = Self(sys::DORMOUSE_E_DIRTY_SHUTDOWN);
    pub const LAYOUT: Self = Self(sys::DORMOUSE_E_LAYOUT);
    pub const BITMAP_DIGEST: Self = Self(sys::DORMOUSE_E_BITMAP_DIGEST);
    pub const OUTSIDE_RAM: Self = Self(sys::DORMOUSE_E_OUTSIDE_RAM);
    pub const NO_SPACE: Self = Self(sys::DORMOUSE_E_NO_SPACE);
    pub const SAVED_DIGEST: Self = Self(sys::DORMOUSE_E_SAVED_DIGEST);
    pub const WAKE_VECTOR: Self = Self(sys::DORMOUSE_E_WAKE_VECTOR);
    pub const ATTEMPTS: Self = Self(sys::DORMOUSE_E_ATTEMPTS);
    pub const COMMAND: Self = Self(sys::DORMOUSE_E_COMMAND);
    pub const NOT_READY: Self = Self(sys::DORMOUSE_E_NOT_READY);
    pub const NO_ANSWER: Self = Self(sys::DORMOUSE_E_NO_ANSWER);
    pub const DISABLED: Self = Self(sys::DORMOUSE_E_DISABLED);
    pub const SAVED_COUNT: Self = Self(sys::DORMOUSE_E_SAVED_COUNT);
    pub const KIND: Self = Self(sys::DORMOUSE_E_KIND);
    pub const KERNEL: Self = Self(sys::DORMOUSE_E_KERNEL);
    pub const NODE_IN_USE: Self = Self(sys::DORMOUSE_E_NODE_IN_USE);
    pub const RESTORE: Self = Self(sys::DORMOUSE_E_RESTORE);
    pub const VOLATILE: Self = Self(sys::DORMOUSE_E_VOLATILE);
    pub const USER_DIGEST: Self = Self(sys::DORMOUSE_E_USER_DIGEST);

    /// Every reason of this version, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..sys::DORMOUSE_REASON_COUNT).map(Self)
    }

    /// The stable name for scripts: `saved-digest`.
    pub fn name(self) -> &'static str {
        // SAFETY: takes any number.
        name_from(unsafe { sys::dormouse_reason_name(self.0) })
    }

    /// One sentence for people.
    pub fn text(self) -> &'static str {
        // SAFETY: takes any number.
        name_from(unsafe { sys::dormouse_reason_text(self.0) })
    }

    pub fn is_ok(self) -> bool {
        self == Self::OK
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.name(), self.text())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Reason({} {})", self.0, self.name())
    }
}

/// As an object: `{"number":20,"name":"saved-digest","text":"…"}`.
impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Reason", 3)?;
        object.serialize_field("number", &self.0)?;
        object.serialize_field("name", self.name())?;
        object.serialize_field("text", self.text())?;
        object.end()
    }
}

/// Where the image is in its life: `enum dormouse_state`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct State(pub u32);

impl State {
    pub const EMPTY: Self = Self(sys::DORMOUSE_STATE_EMPTY);
    pub const PREPARED: Self = Self(sys::DORMOUSE_STATE_PREPARED);
    pub const SAVING: Self = Self(sys::DORMOUSE_STATE_SAVING);
    pub const SUSPENDED: Self = Self(sys::DORMOUSE_STATE_SUSPENDED);
    pub const RESTORING: Self = Self(sys::DORMOUSE_STATE_RESTORING);
    pub const CONSUMED: Self = Self(sys::DORMOUSE_STATE_CONSUMED);

    pub fn name(self) -> &'static str {
        // SAFETY: takes any number.
        name_from(unsafe { sys::dormouse_state_name(self.0) })
    }
}

/// How the last attempt to sleep and wake ended: `enum dormouse_outcome`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Outcome(pub u32);

impl Outcome {
    pub const NONE: Self = Self(sys::DORMOUSE_OUTCOME_NONE);
    pub const RESUMED: Self = Self(sys::DORMOUSE_OUTCOME_RESUMED);
    pub const COLD_BOOT: Self = Self(sys::DORMOUSE_OUTCOME_COLD_BOOT);
    pub const REFUSED: Self = Self(sys::DORMOUSE_OUTCOME_REFUSED);

    pub fn name(self) -> &'static str {
        // SAFETY: takes any number.
        name_from(unsafe { sys::dormouse_outcome_name(self.0) })
    }
}

/// The source that vouches that the device keeps its contents without power: `enum dormouse_persistence`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Persistence(pub u32);

impl Persistence {
    pub const UNKNOWN: Self = Self(sys::DORMOUSE_PERSISTENCE_UNKNOWN);
    pub const DEVICE: Self = Self(sys::DORMOUSE_PERSISTENCE_DEVICE);
    pub const FIRMWARE: Self = Self(sys::DORMOUSE_PERSISTENCE_FIRMWARE);
    pub const ACCEPTED: Self = Self(sys::DORMOUSE_PERSISTENCE_ACCEPTED);

    pub fn name(self) -> &'static str {
        // SAFETY: takes any number.
        name_from(unsafe { sys::dormouse_persistence_name(self.0) })
    }
}

/// The way to sleep that made an image: `enum dormouse_kind`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageKind(pub u32);

impl ImageKind {
    pub const FIRMWARE: Self = Self(sys::DORMOUSE_KIND_FIRMWARE);
    pub const SNAPSHOT: Self = Self(sys::DORMOUSE_KIND_SNAPSHOT);

    pub fn name(self) -> &'static str {
        // SAFETY: takes any number.
        name_from(unsafe { sys::dormouse_kind_name(self.0) })
    }
}

/// Which user pages have a digest: `enum dormouse_user_check`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserCheck(pub u32);

impl UserCheck {
    pub const NONE: Self = Self(sys::DORMOUSE_USER_CHECK_NONE);
    pub const SAMPLE: Self = Self(sys::DORMOUSE_USER_CHECK_SAMPLE);
    pub const ALL: Self = Self(sys::DORMOUSE_USER_CHECK_ALL);

    pub fn name(self) -> &'static str {
        // SAFETY: takes any number.
        name_from(unsafe { sys::dormouse_user_check_name(self.0) })
    }
}

/// Name of a phase whose times the header carries: `enum dormouse_phase`.
pub fn phase_name(phase: u32) -> &'static str {
    // SAFETY: takes any number.
    name_from(unsafe { sys::dormouse_phase_name(phase) })
}

macro_rules! shown_by_name {
    ($($type:ident)*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.name())
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!(stringify!($type), "({} {})"), self.0, self.name())
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    )*};
}

shown_by_name!(State Outcome Persistence ImageKind UserCheck);
