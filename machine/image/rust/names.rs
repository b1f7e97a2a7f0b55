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
    /// No refusal.
    pub const OK: Self = Self(sys::DORMOUSE_OK);
    /// The window holds no image.
    pub const NO_IMAGE: Self = Self(sys::DORMOUSE_E_NO_IMAGE);
    /// The magic number is wrong.
    pub const MAGIC: Self = Self(sys::DORMOUSE_E_MAGIC);
    /// The format has another version.
    pub const VERSION: Self = Self(sys::DORMOUSE_E_VERSION);
    /// The header has another size.
    pub const HEADER_SIZE: Self = Self(sys::DORMOUSE_E_HEADER_SIZE);
    /// The header does not match its digest.
    pub const HEADER_DIGEST: Self = Self(sys::DORMOUSE_E_HEADER_DIGEST);
    /// The image uses a feature that this version does not know.
    pub const FLAGS: Self = Self(sys::DORMOUSE_E_FLAGS);
    /// The state is unknown.
    pub const STATE: Self = Self(sys::DORMOUSE_E_STATE);
    /// The image was never committed.
    pub const INCOMPLETE: Self = Self(sys::DORMOUSE_E_INCOMPLETE);
    /// The image was resumed before.
    pub const CONSUMED: Self = Self(sys::DORMOUSE_E_CONSUMED);
    /// The window holds an image that was not resumed.
    pub const IMAGE_EXISTS: Self = Self(sys::DORMOUSE_E_IMAGE_EXISTS);
    /// The memory map is another one.
    pub const MEMORY_MAP: Self = Self(sys::DORMOUSE_E_MEMORY_MAP);
    /// The machine has another amount of DRAM.
    pub const DRAM_SIZE: Self = Self(sys::DORMOUSE_E_DRAM_SIZE);
    /// The CXL window has another place or size.
    pub const CXL_SIZE: Self = Self(sys::DORMOUSE_E_CXL_SIZE);
    /// It is another CXL device, by its serial number.
    pub const DEVICE: Self = Self(sys::DORMOUSE_E_DEVICE);
    /// The device lost writes since the save.
    pub const DIRTY_SHUTDOWN: Self = Self(sys::DORMOUSE_E_DIRTY_SHUTDOWN);
    /// An offset or size is outside its place, or overlaps another.
    pub const LAYOUT: Self = Self(sys::DORMOUSE_E_LAYOUT);
    /// A bitmap does not match its digest.
    pub const BITMAP_DIGEST: Self = Self(sys::DORMOUSE_E_BITMAP_DIGEST);
    /// A page is outside the RAM that firmware gave to the operating system.
    pub const OUTSIDE_RAM: Self = Self(sys::DORMOUSE_E_OUTSIDE_RAM);
    /// The saved pages do not fit into free CXL memory.
    pub const NO_SPACE: Self = Self(sys::DORMOUSE_E_NO_SPACE);
    /// A saved page changed during the sleep.
    pub const SAVED_DIGEST: Self = Self(sys::DORMOUSE_E_SAVED_DIGEST);
    /// The wake vector is not in restored memory.
    pub const WAKE_VECTOR: Self = Self(sys::DORMOUSE_E_WAKE_VECTOR);
    /// The restore was tried too often.
    pub const ATTEMPTS: Self = Self(sys::DORMOUSE_E_ATTEMPTS);
    /// The mailbox has an unknown command or a wrong magic number.
    pub const COMMAND: Self = Self(sys::DORMOUSE_E_COMMAND);
    /// Firmware has no memory map or no CXL window.
    pub const NOT_READY: Self = Self(sys::DORMOUSE_E_NOT_READY);
    /// Firmware did not answer the SMI.
    pub const NO_ANSWER: Self = Self(sys::DORMOUSE_E_NO_ANSWER);
    /// Suspend-to-CXL is switched off in sysfs.
    pub const DISABLED: Self = Self(sys::DORMOUSE_E_DISABLED);
    /// The page counts disagree.
    pub const SAVED_COUNT: Self = Self(sys::DORMOUSE_E_SAVED_COUNT);
    /// The image was made by the other way to sleep.
    pub const KIND: Self = Self(sys::DORMOUSE_E_KIND);
    /// The image is of another kernel.
    pub const KERNEL: Self = Self(sys::DORMOUSE_E_KERNEL);
    /// Linux uses the memory of the user pages.
    pub const NODE_IN_USE: Self = Self(sys::DORMOUSE_E_NODE_IN_USE);
    /// The kernel did not take its snapshot; the detail is its errno.
    pub const RESTORE: Self = Self(sys::DORMOUSE_E_RESTORE);
    /// The machine takes sealed images only, and this one is not sealed.
    pub const NOT_SEALED: Self = Self(sys::DORMOUSE_E_NOT_SEALED);
    /// The key of a sealed image is not to be had.
    pub const KEY: Self = Self(sys::DORMOUSE_E_KEY);
    /// The image is sealed with another key.
    pub const WRONG_KEY: Self = Self(sys::DORMOUSE_E_WRONG_KEY);
    /// The image was changed after it was sealed.
    pub const SEAL: Self = Self(sys::DORMOUSE_E_SEAL);
    /// The image is not the last one of this machine.
    pub const OLDER: Self = Self(sys::DORMOUSE_E_OLDER);
    /// No source states that the device keeps its contents.
    pub const VOLATILE: Self = Self(sys::DORMOUSE_E_VOLATILE);
    /// A user page changed during the sleep.
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

    /// Whether it is [`Reason::OK`].
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

/// Numbers of the format, each with its name; a number that this version does not know stays what
/// it is.
macro_rules! numbers {
    ($($(#[$about:meta])* $type:ident named by $name:ident {
        $($(#[$meaning:meta])* $number:ident = $value:ident,)*
    })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $type(pub u32);

        impl $type {
            $($(#[$meaning])* pub const $number: Self = Self(sys::$value);)*

            /// The stable name for scripts.
            pub fn name(self) -> &'static str {
                // SAFETY: takes any number.
                name_from(unsafe { sys::$name(self.0) })
            }
        }

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

numbers! {
    /// Where the image is in its life: `enum dormouse_state`.
    State named by dormouse_state_name {
        /// No image.
        EMPTY = DORMOUSE_STATE_EMPTY,
        /// The kernel wrote a request.
        PREPARED = DORMOUSE_STATE_PREPARED,
        /// Firmware copies pages.
        SAVING = DORMOUSE_STATE_SAVING,
        /// The image is complete.
        SUSPENDED = DORMOUSE_STATE_SUSPENDED,
        /// Firmware restores pages.
        RESTORING = DORMOUSE_STATE_RESTORING,
        /// The image was resumed.
        CONSUMED = DORMOUSE_STATE_CONSUMED,
    }

    /// How the last attempt to sleep and wake ended: `enum dormouse_outcome`.
    Outcome named by dormouse_outcome_name {
        /// There was no attempt.
        NONE = DORMOUSE_OUTCOME_NONE,
        /// The machine resumed.
        RESUMED = DORMOUSE_OUTCOME_RESUMED,
        /// The machine booted instead.
        COLD_BOOT = DORMOUSE_OUTCOME_COLD_BOOT,
        /// The sleep was refused.
        REFUSED = DORMOUSE_OUTCOME_REFUSED,
    }

    /// The source that vouches that the device keeps its contents without power: `enum dormouse_persistence`.
    Persistence named by dormouse_persistence_name {
        /// No source: no image is made.
        UNKNOWN = DORMOUSE_PERSISTENCE_UNKNOWN,
        /// Each CXL device, as Linux sees it.
        DEVICE = DORMOUSE_PERSISTENCE_DEVICE,
        /// The board's firmware.
        FIRMWARE = DORMOUSE_PERSISTENCE_FIRMWARE,
        /// No source, and a person accepted the risk.
        ACCEPTED = DORMOUSE_PERSISTENCE_ACCEPTED,
    }

    /// The way to sleep that made an image: `enum dormouse_kind`.
    ImageKind named by dormouse_kind_name {
        /// Firmware saves and restores the pages.
        FIRMWARE = DORMOUSE_KIND_FIRMWARE,
        /// The kernel's own snapshot.
        SNAPSHOT = DORMOUSE_KIND_SNAPSHOT,
    }

    /// Which user pages have a digest: `enum dormouse_user_check`.
    UserCheck named by dormouse_user_check_name {
        /// No user page.
        NONE = DORMOUSE_USER_CHECK_NONE,
        /// The first page of some groups.
        SAMPLE = DORMOUSE_USER_CHECK_SAMPLE,
        /// Every page of every group that is online.
        ALL = DORMOUSE_USER_CHECK_ALL,
    }
}

/// Name of a phase whose times the header carries: `enum dormouse_phase`.
pub fn phase_name(phase: u32) -> &'static str {
    // SAFETY: takes any number.
    name_from(unsafe { sys::dormouse_phase_name(phase) })
}
