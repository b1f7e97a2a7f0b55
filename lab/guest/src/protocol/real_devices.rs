//! What a machine of real drivers is asked to do with its devices, and how that went.

use serde::{Deserialize, Serialize};

/// Bytes at the beginning of each disk that the lab has written and nobody else writes.
pub const DISK_PATTERN_BYTES: usize = 2 << 20;
/// The first bytes of a disk, before its name and a line end.
pub const DISK_LABEL: &str = "dormouse lab disk ";

/// Something that the machine's devices do for a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Function {
    /// The disk with this label has its pattern, and gives back what is written behind it.
    Disk {
        /// Its label.
        name: String,
        /// XXH64 of its pattern, in hexadecimal digits.
        digest: String,
    },
    /// The network card with this address sends a frame to the other one, which sends it back.
    Network {
        /// Its hardware address.
        card: String,
        /// The other one's.
        peer: String,
    },
    /// That many playback devices open.
    Sound {
        /// How many.
        devices: usize,
    },
    /// That many input devices open and have a name.
    Input {
        /// How many.
        devices: usize,
    },
    /// The TPM makes random numbers.
    Tpm,
    /// The real-time clock has a time.
    Clock,
    /// The management controller says what it is.
    Ipmi,
    /// A memory on the SMBus gives back what is written to it.
    Smbus,
    /// That many serial lines of PCI cards give back what they send, in their loop.
    Serial {
        /// How many.
        lines: usize,
    },
    /// A serial line on USB opens.
    UsbSerial,
    /// The machine's source of random numbers gives some.
    Entropy,
}

impl Function {
    /// For people.
    pub fn title(&self) -> String {
        match self {
            Function::Disk { name, .. } => format!("disk {name}"),
            Function::Network { card, .. } => format!("network card {card}"),
            Function::Sound { .. } => "sound".into(),
            Function::Input { .. } => "input".into(),
            Function::Tpm => "TPM".into(),
            Function::Clock => "real-time clock".into(),
            Function::Ipmi => "IPMI".into(),
            Function::Smbus => "SMBus".into(),
            Function::Serial { .. } => "serial lines".into(),
            Function::UsbSerial => "USB serial line".into(),
            Function::Entropy => "entropy".into(),
        }
    }
}

/// A device with a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Bus, as the kernel names it.
    pub bus: String,
    /// Device.
    pub device: String,
    /// Driver.
    pub driver: String,
}

/// How a suspend is tested, or that it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sleep {
    /// `pm_test` at `devices`: down to the first phase and back.
    Devices,
    /// `pm_test` at `platform`: through all phases and back.
    Platform,
    /// Suspend to idle; a made-up device wakes the machine.
    Idle,
    /// Suspend to RAM; the emulator wakes the machine as soon as it sleeps.
    Ram,
    /// Suspend-to-CXL, in a machine whose agent takes the steps: the lab has it sleep and wake by
    /// [`crate::protocol::Call::Sleep`], and this step tells what the kernel logged of that since the
    /// step before.
    Cxl,
}
