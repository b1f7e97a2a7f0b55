//! A boot entry of its own for UEFI: a unified kernel image that holds the kernel that runs, and an
//! initramfs of nothing but `dormouse-wake` and the modules of persistent memory. `dormouse sleep` asks
//! firmware to start it once, at the next power-on; ordinary boots never do.
//!
//! ```text
//!  setup-boot-entry ─▶ image on the EFI system partition, entry outside of BootOrder, BootNext
//!  reboot           ─▶ entry: no image ─▶ leaves what it saw in a variable ─▶ resets ─▶ usual boot
//!  sleep            ─▶ entry as set up? saw the head? same memory map? ─▶ BootNext ─▶ power off
//!  power-on         ─▶ entry: wakes, or leaves why not and resets ─▶ usual boot, whose hook decides
//! ```
//!
//! The entry changes nothing of an image that it does not wake, unless it has used it up already, so the
//! usual boot sees what the entry saw. That first run proves what nobody can know beforehand: whether
//! firmware gives the kernel the same memory map by this path as by the usual one.

pub(crate) mod efi;
mod image;
mod init;
pub mod setup;

use std::path::PathBuf;

use dormouse_image::digest::xxh64;
use dormouse_system::Root;
use serde::{Deserialize, Serialize};

use crate::snapshot::seal::{self, Mark};
use crate::snapshot::{Setup, cxl_regions, facts};

pub use init::run as run_as_init;

/// Whether this runs in the image of a boot entry.
pub fn is_in_its_image() -> bool {
    init::is_in_its_image(&Root::host())
}

/// The record.
const FILE: &str = "etc/dormouse/boot-entry.toml";
/// Below the EFI system partition.
const IMAGE: &str = "EFI/dormouse/wake.efi";
/// The same as firmware has it.
const IMAGE_FOR_FIRMWARE: &str = r"\EFI\dormouse\wake.efi";
const PROGRAM: &str = "usr/lib/dormouse/dormouse-wake";
/// In the entry's initramfs: which image this is.
const ID: &str = "etc/dormouse/boot-entry.id";

/// What was set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Record {
    /// Firmware's number of the entry.
    number: u16,
    /// Of everything that the image was made of.
    id: String,
    /// The image.
    file: PathBuf,
    file_digest: String,
    kernel: String,
    settings: String,
}

fn hexadecimal(digest: u64) -> String {
    format!("{digest:016x}")
}

/// Of what the entry's initramfs holds of this machine.
fn settings_digest(root: &Root) -> String {
    let mut bytes = Vec::new();
    for path in [cxl_regions::FILE, seal::FILE, PROGRAM] {
        bytes.extend(std::fs::read(root.path(path)).unwrap_or_default());
        bytes.push(0);
    }
    hexadecimal(xxh64(&bytes))
}

impl Record {
    /// None where no entry was set up.
    fn read(root: &Root) -> Result<Option<Record>, String> {
        let path = root.path(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        toml::from_str(&text)
            .map(Some)
            .map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// What a run of the entry leaves for the system that sleeps.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Left {
    mark: Mark,
    id: String,
    kernel: String,
    map: String,
    /// How it ended, as its line on the console.
    said: String,
}

impl Left {
    fn text(&self) -> String {
        // Firmware's memory is small.
        let said: String = self.said.replace('\n', " ").chars().take(240).collect();
        format!(
            "{}id {}\nkernel {}\nmap {}\nsaid {said}\n",
            self.mark.text(),
            self.id,
            self.kernel,
            self.map
        )
    }

    fn read(text: &str) -> Left {
        let value = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap_or_default().to_owned()
        };
        Left {
            mark: Mark::read(text),
            id: value("id "),
            kernel: value("kernel "),
            map: value("map "),
            said: value("said "),
        }
    }
}

/// What is to wake a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waker {
    /// The usual boot: no entry is set up.
    UsualBoot,
    /// This entry.
    Entry(u16),
    /// The usual boot, because the entry could not; why.
    NotTheEntry(String),
}

impl Waker {
    /// For a person.
    pub(crate) fn describe(&self) -> String {
        match self {
            Waker::UsualBoot => "the usual boot".to_owned(),
            Waker::Entry(number) => format!("the boot entry Boot{number:04X}"),
            Waker::NotTheEntry(why) => format!("the usual boot: the boot entry {why}"),
        }
    }
}

/// What would wake this machine, as it is now.
pub(crate) fn waker(root: &Root, setup: &Setup) -> Waker {
    match Record::read(root) {
        Ok(None) => Waker::UsualBoot,
        Ok(Some(record)) => match check(root, setup, &record) {
            Ok(()) => Waker::Entry(record.number),
            Err(why) => Waker::NotTheEntry(why),
        },
        Err(why) => Waker::NotTheEntry(format!("cannot be judged ({why})")),
    }
}

const ANEW: &str = "run `dormouse setup-boot-entry` again";

fn check(root: &Root, setup: &Setup, record: &Record) -> Result<(), String> {
    let kernel = hexadecimal(facts::kernel_digest(root));
    if record.kernel != kernel {
        return Err(format!(
            "starts another kernel than the one that runs: {ANEW}"
        ));
    }
    if record.settings != settings_digest(root) {
        return Err(format!(
            "has other settings, CXL regions or another dormouse-wake than this machine: {ANEW}"
        ));
    }
    let path = root.path(&record.file.to_string_lossy());
    let bytes =
        std::fs::read(&path).map_err(|error| format!("lacks {}: {error}", path.display()))?;
    if record.file_digest != hexadecimal(xxh64(&bytes)) {
        return Err(format!(
            "has another {} than was made: {ANEW}",
            path.display()
        ));
    }
    if !efi::entries_of(root, IMAGE_FOR_FIRMWARE).contains(&record.number) {
        return Err(format!(
            "is not among firmware's (Boot{:04X}): {ANEW}",
            record.number
        ));
    }
    if efi::boot_order(root).contains(&record.number) {
        return Err("is in firmware's boot order: take it out with efibootmgr".to_owned());
    }
    let left = efi::mark(root).map(|text| Left::read(&text));
    judge(root, setup, record, &kernel, left.as_ref())
}

/// What its last run has to say.
fn judge(
    root: &Root,
    setup: &Setup,
    record: &Record,
    kernel: &str,
    left: Option<&Left>,
) -> Result<(), String> {
    let left = left.filter(|left| left.id == record.id);
    let Some(left) = left else {
        return Err("has not run yet: reboot once".to_owned());
    };
    if left.kernel != kernel {
        return Err(format!(
            "started another kernel than the one that runs: {ANEW}"
        ));
    }
    if left.map != hexadecimal(facts::firmware_map_digest(root)) {
        return Err(
            "gets another memory map from firmware than this boot got: boot this system through \
             the kernel's EFI stub, too (systemd-boot, a unified kernel image)"
                .to_owned(),
        );
    }
    if !left.mark.has_seen(setup.head.base, setup.head.bytes) {
        return Err(format!(
            "saw no persistent memory where {} lies",
            setup.head.name
        ));
    }
    if let Some(why) = &left.mark.snapshot {
        return Err(format!("cannot wake it: {why}"));
    }
    if left.said.starts_with("cold boot") {
        return Err(format!("refused the last image ({}): {ANEW}", left.said));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
