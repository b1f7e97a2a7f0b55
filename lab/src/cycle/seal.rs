//! `lab cycle --seal`: sets the machine up once for sealed images, as its owner would: the command in
//! the machine, then an initrd with what the command left in /etc/dormouse, then a reboot.

use std::fs;
use std::time::Duration;

use clap::ValueEnum;

use crate::emulator::lab::{Lab, POWER_OFF_TIMEOUT};
use crate::emulator::power::PowerOn;
use crate::error::{Doing, LabError};
use crate::machine::sealing;

const SETUP_TIMEOUT: Duration = Duration::from_secs(180);
const PASSPHRASE: &str = "correct horse battery staple";
/// Where `dormouse sleep` reads it, in the machine: on a tmpfs, gone at each boot.
const PASSPHRASE_FILE: &str = "/run/dormouse-passphrase";
const SETTINGS: &str = "/etc/dormouse";
const SETTINGS_FILE: &str = "etc/dormouse/seal.toml";
const KEY_FILE: &str = "etc/dormouse/seal.key";

/// Whose key seals the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Seal {
    /// A passphrase, which the lab types on the console
    Passphrase,
    /// A key file, with a copy in the initrd
    KeyFile,
    /// A TPM in software, with a counter against older images
    Tpm,
}

impl Seal {
    fn name(self) -> &'static str {
        match self {
            Seal::Passphrase => "passphrase",
            Seal::KeyFile => "key-file",
            Seal::Tpm => "tpm",
        }
    }

    /// Further arguments for `dormouse sleep`.
    pub fn sleep_arguments(self) -> Vec<String> {
        match self {
            Seal::Passphrase => vec!["--passphrase-file".into(), PASSPHRASE_FILE.into()],
            Seal::KeyFile | Seal::Tpm => Vec::new(),
        }
    }

    /// Makes the machine one that seals, unless it is; it is switched off before and afterwards.
    ///
    /// # Errors
    /// It does not boot, or the command fails.
    pub fn set_up(self, lab: &mut Lab) -> Result<(), LabError> {
        if self == Seal::Tpm {
            let folder = lab.machine.tpm_folder();
            fs::create_dir_all(&folder).doing(format!("create {}", folder.display()))?;
        }
        self.type_right(lab);
        if lab.machine.wake_initrd().exists() {
            return Ok(());
        }
        let mut power = lab.boot(None)?;
        self.prepare(&mut power)?;
        let mut line = format!(
            "dormouse setup-device --head dax0.0 --node dax1.0 --seal {}",
            self.name()
        );
        if self == Seal::Passphrase {
            line += &format!(" --passphrase-file {PASSPHRASE_FILE}");
        }
        power.shell_output(&line, SETUP_TIMEOUT)?;
        let files = settings_of(&mut power)?;
        if !files.iter().any(|(name, _)| name == SETTINGS_FILE) {
            return Err(LabError::Unexpected(format!(
                "`{line}` left no /{SETTINGS_FILE}"
            )));
        }
        power.power_off(POWER_OFF_TIMEOUT)?;
        let parts = &lab.setting.parts;
        let more = match self {
            Seal::Tpm => vec![parts.tpm_tools.as_path()],
            Seal::Passphrase | Seal::KeyFile => Vec::new(),
        };
        let to = lab.machine.wake_initrd();
        sealing::write_initrd(&to, &parts.wake_initrd, &more, &files)
    }

    /// What each boot of the machine needs before a sleep.
    ///
    /// # Errors
    /// The agent cannot write the file.
    pub fn prepare(self, power: &mut PowerOn) -> Result<(), LabError> {
        match self {
            Seal::Passphrase => power.put_file(PASSPHRASE_FILE, PASSPHRASE.as_bytes(), 0o600),
            Seal::KeyFile | Seal::Tpm => Ok(()),
        }
    }

    /// From now on the right passphrase is typed.
    pub fn type_right(self, lab: &mut Lab) {
        lab.machine.sealing.types = (self == Seal::Passphrase).then(|| PASSPHRASE.to_owned());
    }

    /// After [`Seal::exchange_key`].
    ///
    /// # Errors
    /// The initrd cannot be written.
    pub fn give_key_back(self, lab: &mut Lab) -> Result<(), LabError> {
        match self {
            // The same bit once more.
            Seal::KeyFile => self.exchange_key(lab),
            Seal::Passphrase | Seal::Tpm => {
                self.type_right(lab);
                Ok(())
            }
        }
    }

    /// For the next power-on, the machine gets another key than the one it sealed with.
    ///
    /// # Errors
    /// A TPM's key cannot be exchanged; the initrd cannot be written.
    pub fn exchange_key(self, lab: &mut Lab) -> Result<(), LabError> {
        match self {
            Seal::Passphrase => {
                lab.machine.sealing.types = Some("correct horse battery stapler".into());
                Ok(())
            }
            Seal::KeyFile => {
                let path = lab.machine.wake_initrd();
                let mut bytes = fs::read(&path).doing(format!("read {}", path.display()))?;
                let at = key_in(&bytes)
                    .ok_or_else(|| LabError::Unexpected("the initrd holds no key file".into()))?;
                bytes[at] ^= 1;
                fs::write(&path, bytes).doing(format!("write {}", path.display()))
            }
            Seal::Tpm => Err(LabError::Usage(
                "--tamper wrong-key: not with --seal tpm; no-tpm takes the TPM away".into(),
            )),
        }
    }
}

/// Where the key's first byte is in the last archive of an initrd.
fn key_in(initrd: &[u8]) -> Option<usize> {
    let name = format!("{KEY_FILE}\0");
    let found = initrd
        .windows(name.len())
        .rposition(|part| part == name.as_bytes())?;
    let at = found + name.len();
    // The name ends on a word's boundary, counted from the entry's own begin: 110 bytes of fields.
    let entry = found.checked_sub(110)?;
    Some(entry + (at - entry).next_multiple_of(4))
}

/// The files below /etc/dormouse, as a hook of the initramfs copies them.
fn settings_of(power: &mut PowerOn) -> Result<Vec<(String, Vec<u8>)>, LabError> {
    let line = format!(
        "sync; for file in $(find {SETTINGS} -type f); do echo \"$file $(od -An -v -tx1 $file | tr -d ' \\n')\"; done"
    );
    let text = power.shell_output(&line, SETUP_TIMEOUT)?;
    let bad = || LabError::Unexpected(format!("the files of {SETTINGS}: {text:?}"));
    text.lines()
        .map(|line| {
            let (name, digits) = line.split_once(' ').ok_or_else(bad)?;
            let bytes: Option<Vec<u8>> = (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
                .collect();
            let name = name.trim_start_matches('/').to_owned();
            Ok((name, bytes.ok_or_else(bad)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::archive;

    #[test]
    fn the_key_is_found_in_an_initrd_wherever_its_entry_begins() {
        for length in 0..5 {
            let files = [
                ("a".to_owned(), vec![1; length]),
                (KEY_FILE.to_owned(), (100..132).collect()),
            ];
            let mut initrd = vec![0; 4 * length];
            initrd.extend(archive(&files));
            let at = key_in(&initrd).unwrap();
            assert_eq!(initrd[at..at + 32], (100..132).collect::<Vec<u8>>());
        }
        assert_eq!(key_in(b"nothing"), None);
    }
}
