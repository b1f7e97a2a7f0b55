//! The machine's devices: as many of as many kinds as the emulator has drivers of Linux for, on
//! PCI Express with a switch, PCI behind a bridge, USB with hubs, SCSI, ATA, MMC, SMBus, ISA.
//!
//! Left out: what does not come back under the stock kernel either. `pvscsi` has no suspend in Linux
//! 6.12; Linux's `mptsas` finds no disk on the emulated one, and its `e1000` receives nothing here; the
//! emulated hub does not address USB storage behind two hubs again; devices on the emulated xHCI hang
//! now and then after a resume (Linux has to set it up anew: "mismatched command completion event"), so
//! its ports are empty; `igb` is not in QEMU 7.2. `virtio-gpu` is left out on suspicion: with it the
//! machine hung once after a resume, without a cause that is known.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use dormouse_guest::protocol::real_devices::{DISK_LABEL, DISK_PATTERN_BYTES, Function};
use dormouse_guest::protocol::stress::mixed;
use xxhash_rust::xxh64::xxh64;

use crate::emulator::monitor::Exchange;
use crate::error::{Doing, LabError};
use crate::machine::sealing::SoftwareTpm;

const DISK_BYTES: u64 = 16 << 20;
/// PCI devices behind the switch, on the bridge, and on the board.
const BUSES: [&str; 15] = [
    "pcie-root-port,id=port1,bus=pcie.0,addr=2,chassis=1,slot=1",
    "pcie-root-port,id=port2,bus=pcie.0,addr=3,chassis=2,slot=2",
    "pcie-root-port,id=port3,bus=pcie.0,addr=4,chassis=3,slot=3",
    "pcie-root-port,id=port4,bus=pcie.0,addr=5,chassis=4,slot=4",
    "pcie-root-port,id=port5,bus=pcie.0,addr=6,chassis=5,slot=5",
    "x3130-upstream,id=switch,bus=port1",
    "xio3130-downstream,id=down1,bus=switch,chassis=10,slot=10",
    "xio3130-downstream,id=down2,bus=switch,chassis=11,slot=11",
    "xio3130-downstream,id=down3,bus=switch,chassis=12,slot=12",
    "pcie-pci-bridge,id=bridge,bus=port3",
    "qemu-xhci,id=xhci,bus=pcie.0,addr=8",
    "ich9-usb-ehci1,id=ehci,bus=pcie.0,addr=1d.7,multifunction=on",
    "ich9-usb-uhci1,masterbus=ehci.0,firstport=0,bus=pcie.0,addr=1d.0,multifunction=on",
    "ich9-usb-uhci2,masterbus=ehci.0,firstport=2,bus=pcie.0,addr=1d.1",
    "ich9-usb-uhci3,masterbus=ehci.0,firstport=4,bus=pcie.0,addr=1d.2",
];
/// Each with the device that it is on: `DISK` is its drive.
const DISKS: [(&str, &[&str]); 10] = [
    ("nvme1", &["nvme,serial=dormouse1,bus=down1,drive=DISK"]),
    ("nvme2", &["nvme,serial=dormouse2,bus=down2,drive=DISK"]),
    ("virtio", &["virtio-blk-pci,bus=pcie.0,addr=9,drive=DISK"]),
    ("sata1", &["ide-hd,bus=ide.0,drive=DISK"]),
    (
        "sata2",
        &[
            "ahci,id=ahci2,bus=bridge,addr=5",
            "ide-hd,bus=ahci2.0,drive=DISK",
        ],
    ),
    (
        "scsi",
        &[
            "virtio-scsi-pci,id=vscsi,bus=port5",
            "scsi-hd,bus=vscsi.0,drive=DISK",
        ],
    ),
    (
        "megasas",
        &[
            "megasas,id=megasas,bus=pcie.0,addr=a",
            "scsi-hd,bus=megasas.0,drive=DISK",
        ],
    ),
    ("usb", &["usb-storage,bus=ehci.0,port=2,drive=DISK"]),
    (
        "uas",
        &[
            "usb-uas,id=uas,bus=ehci.0,port=3",
            "scsi-hd,bus=uas.0,drive=DISK",
        ],
    ),
    (
        "sd",
        &[
            "sdhci-pci,id=sdhci,bus=pcie.0,addr=c",
            "sd-card,bus=sd-bus,drive=DISK",
        ],
    ),
];
/// All on one wire.
const CARDS: [&str; 5] = [
    "virtio-net-pci,bus=port2",
    "e1000e,bus=down3",
    "rtl8139,bus=bridge,addr=2",
    "pcnet,bus=bridge,addr=3",
    "vmxnet3,bus=port4",
];
const OTHERS: [&str; 26] = [
    "ide-cd,bus=ide.2",
    "virtio-rng-pci,bus=pcie.0,addr=d",
    "virtio-balloon-pci,bus=pcie.0,addr=e",
    "virtio-serial-pci,bus=pcie.0,addr=f",
    "virtconsole,chardev=null1",
    "virtio-keyboard-pci,bus=pcie.0,addr=11",
    "virtio-tablet-pci,bus=pcie.0,addr=12",
    "usb-hub,bus=ehci.0,port=1",
    "usb-hub,bus=ehci.0,port=1.1",
    "usb-kbd,bus=ehci.0,port=1.2",
    "usb-mouse,bus=ehci.0,port=1.3",
    "usb-tablet,bus=ehci.0,port=1.1.1",
    "usb-serial,always-plugged=on,chardev=null2,bus=ehci.0,port=1.4",
    "usb-tablet,id=away,bus=ehci.0,port=5",
    "usb-audio,audiodev=sound,bus=ehci.0,port=4",
    "ich9-intel-hda,id=hda,bus=pcie.0,addr=13",
    "hda-duplex,audiodev=sound,bus=hda.0",
    "AC97,audiodev=sound,bus=bridge,addr=6",
    "ES1370,audiodev=sound,bus=bridge,addr=7",
    "pci-serial,chardev=null3,bus=pcie.0,addr=14",
    "pci-serial-2x,chardev1=null4,chardev2=null5,bus=pcie.0,addr=15",
    "i6300esb,bus=pcie.0,addr=16",
    "pvpanic-pci,bus=pcie.0,addr=17",
    "isa-ipmi-kcs,bmc=bmc",
    "pcie-root-port,id=port6,bus=pcie.0,addr=7,chassis=6,slot=6",
    "usb-ccid,bus=ehci.0,port=6",
];
const NULLS: usize = 5;

/// Playback: HDA, AC97, two of ES1370, USB.
const PLAYBACK: usize = 5;
/// Virtio keyboard and tablet, three of USB's hubs, one of EHCI's, the keyboard, the power button,
/// and the speaker.
const INPUTS: usize = 9;
const SERIAL_LINES: usize = 3;

/// Devices that get a made-up child, on several buses, by the names that Linux gives them.
pub const PARENTS: [&str; 12] = [
    "0000:00:02.0",
    "0000:00:1f.2",
    "0000:00:08.0",
    "0000:00:13.0",
    "0000:00:1f.3",
    "virtio0",
    "4-1.1",
    "4-1.2:1.0",
    "usb1",
    "mmc0",
    "serio0",
    // A serial line; numbers before it are 6.12's, too, where the real-time clock is one of these devices.
    "00:03",
];

/// A device that is taken out between two transitions, and comes back.
#[derive(Debug, Clone, Copy)]
pub struct Removable {
    /// What is written where.
    pub out: (&'static str, &'static str),
    pub back: (&'static str, &'static str),
    /// The titles of the functions that are gone meanwhile.
    pub functions: &'static [&'static str],
}

pub const REMOVABLES: [Removable; 3] = [
    Removable {
        out: ("/sys/bus/pci/devices/0000:00:09.0/remove", "1"),
        back: ("/sys/bus/pci/rescan", "1"),
        functions: &["disk virtio"],
    },
    Removable {
        out: ("/sys/bus/usb/devices/4-1/authorized", "0"),
        back: ("/sys/bus/usb/devices/4-1/authorized", "1"),
        functions: &["input", "USB serial line"],
    },
    // Behind the switch.
    Removable {
        out: ("/sys/bus/pci/devices/0000:00:02.0/remove", "1"),
        back: ("/sys/bus/pci/rescan", "1"),
        functions: &["disk nvme1", "disk nvme2", "network card 52:54:00:64:6d:02"],
    },
];

/// One device less, as many as before, and another one in its place. What happens while the machine
/// sleeps, and how many input devices there are afterwards.
pub fn exchanges() -> [(Vec<Exchange>, usize); 3] {
    const AWAY: &str = "away";
    let back = |driver| Exchange::In {
        driver,
        id: AWAY,
        bus: "ehci.0",
        port: "5",
    };
    [
        (vec![Exchange::Out(AWAY)], INPUTS - 1),
        (vec![back("usb-tablet")], INPUTS),
        // A reader of smart cards.
        (vec![Exchange::Out(AWAY), back("usb-ccid")], INPUTS - 1),
    ]
}

/// What the emulator is started with, and what must work in the machine.
pub struct Hardware {
    pub arguments: Vec<String>,
    pub functions: Vec<Function>,
    /// Ends with this; and the folder of its socket, whose path must be short.
    tpm: Option<(SoftwareTpm, tempfile::TempDir)>,
}

impl Hardware {
    /// Writes the disks. The TPM is none of the arguments: a machine of the lab has one of its own,
    /// and for others there is [`Hardware::add_tpm`].
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn prepare(folder: &Path) -> Result<Hardware, LabError> {
        fs::create_dir_all(folder).doing(format!("create {}", folder.display()))?;

        let mut arguments = Vec::new();
        let mut add = |option: &str, value: String| {
            arguments.extend([option.to_owned(), value]);
        };
        for number in 1..=NULLS {
            add("-chardev", format!("null,id=null{number}"));
        }
        add("-audiodev", "none,id=sound".into());
        add("-device", "ipmi-bmc-sim,id=bmc".into());
        for bus in BUSES {
            add("-device", bus.into());
        }
        let mut functions = Vec::new();
        for (name, devices) in DISKS {
            let path = folder.join(format!("{name}.disk"));
            let digest = write_disk(&path, name)?;
            let path = path.display();
            add(
                "-drive",
                format!("file={path},format=raw,if=none,id={name},cache=writeback"),
            );
            for device in devices {
                add("-device", device.replace("DISK", name));
            }
            let name = name.to_owned();
            functions.push(Function::Disk { name, digest });
        }
        for (number, card) in (1..).zip(CARDS) {
            add("-netdev", format!("hubport,id=net{number},hubid=0"));
            let address = address(number);
            add(
                "-device",
                format!("{card},netdev=net{number},mac={address}"),
            );
            if number > 1 {
                functions.push(Function::Network {
                    card: address,
                    peer: self::address(1),
                });
            }
        }
        for device in OTHERS {
            add("-device", device.into());
        }
        functions.extend([
            Function::Sound { devices: PLAYBACK },
            Function::Input { devices: INPUTS },
            Function::Serial {
                lines: SERIAL_LINES,
            },
            Function::UsbSerial,
            Function::Tpm,
            Function::Ipmi,
            Function::Smbus,
            Function::Clock,
            Function::Entropy,
        ]);
        Ok(Hardware {
            arguments,
            functions,
            tpm: None,
        })
    }

    /// Starts a TPM, and adds it to the arguments.
    ///
    /// # Errors
    /// swtpm is missing.
    pub fn add_tpm(&mut self, folder: &Path) -> Result<(), LabError> {
        let sockets = tempfile::tempdir().doing("create a folder for sockets")?;
        let socket = sockets.path().join("tpm");
        let memory = folder.join("tpm");
        fs::create_dir_all(&memory).doing(format!("create {}", memory.display()))?;
        let tpm = SoftwareTpm::start(&memory, &socket, &folder.join("tpm.log"))?;
        let chardev = format!("socket,id=tpm,path={}", socket.display());
        for (option, value) in [
            ("-chardev", chardev.as_str()),
            ("-tpmdev", "emulator,id=tpm,chardev=tpm"),
            ("-device", "tpm-tis,tpmdev=tpm"),
        ] {
            self.arguments.extend([option.to_owned(), value.to_owned()]);
        }
        self.tpm = Some((tpm, sockets));
        Ok(())
    }
}

/// Locally administered.
fn address(number: u8) -> String {
    format!("52:54:00:64:6d:{number:02x}")
}

/// A disk with its label and its pattern; the pattern's digest.
fn write_disk(path: &PathBuf, name: &str) -> Result<String, LabError> {
    let mut pattern = format!("{DISK_LABEL}{name}\n").into_bytes();
    let seed = xxh64(name.as_bytes(), 0);
    let mut number = 0;
    while pattern.len() < DISK_PATTERN_BYTES {
        pattern.extend(mixed(seed, number).to_le_bytes());
        number += 1;
    }
    pattern.truncate(DISK_PATTERN_BYTES);
    let what = || format!("write {}", path.display());
    let mut file = File::create(path).doing(what())?;
    file.write_all(&pattern).doing(what())?;
    file.set_len(DISK_BYTES).doing(what())?;
    Ok(format!("{:016x}", xxh64(&pattern, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_has_its_label_and_a_pattern_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            let digest = write_disk(&path, name).unwrap();
            let bytes = fs::read(path).unwrap();
            assert_eq!(bytes.len() as u64, DISK_BYTES);
            assert!(bytes.starts_with(format!("{DISK_LABEL}{name}\n").as_bytes()));
            let again = xxh64(&bytes[..DISK_PATTERN_BYTES], 0);
            assert_eq!(digest, format!("{again:016x}"));
            digest
        };
        assert_ne!(write("one"), write("two"));
    }
}
