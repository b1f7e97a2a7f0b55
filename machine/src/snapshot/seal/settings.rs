//! `/etc/dormouse/seal.toml`: whether snapshots are sealed, and with whose key. `dormouse setup-device
//! --seal` writes it, the initramfs holds a copy.
//!
//! ```text
//! key = "passphrase"          # or "key-file", "tpm"
//! passphrase-id = "…"         # what Argon2 needs, and by which a wrong passphrase is noticed
//! key-file = "/etc/dormouse/seal.key"
//! pcrs = "sha256:7"           # registers to which a TPM's key is bound
//! tcti = "device:/dev/tpmrm0" # the TPM, as tpm2-tools name it
//! counter = 25219301          # NV index of the counter against an older image
//! ```

use std::path::{Path, PathBuf};

use dormouse_image::digest::xxh64;
use dormouse_seal::{
    KeyError, KeyFile, KeyId, KeySource, Passphrase, PassphraseCost, Tpm, TpmCounter,
};
use dormouse_system::Root;
use dormouse_system::file::{Durability, replace};
use serde::{Deserialize, Serialize};

use super::Ask;

/// The settings.
pub(crate) const FILE: &str = "etc/dormouse/seal.toml";
/// Where a key file is made.
pub(crate) const DEFAULT_KEY_FILE: &str = "/etc/dormouse/seal.key";
/// What the TPM gave back for its key.
pub(crate) const TPM_FOLDER: &str = "/etc/dormouse/seal.tpm";
/// The kernel's resource manager: others may use the TPM, too.
const DEFAULT_TCTI: &str = "device:/dev/tpmrm0";

/// Whose key seals an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A passphrase, asked at each sleep and at each wake
    Passphrase,
    /// A file that only root can read; the initramfs holds a copy of it
    KeyFile,
    /// The machine's TPM, with a counter against older images
    Tpm,
}

/// See the file's comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Settings {
    pub key: Source,
    #[serde(default)]
    passphrase_id: Option<String>,
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    #[serde(default)]
    pub pcrs: Option<String>,
    #[serde(default)]
    pub tcti: Option<String>,
    #[serde(default)]
    pub counter: Option<u32>,
}

fn quoted(text: &str) -> String {
    // The escapes of TOML's basic strings are those of JSON.
    serde_json::Value::from(text).to_string()
}

impl Settings {
    /// With nothing but the source.
    pub fn new(key: Source) -> Settings {
        Settings {
            key,
            passphrase_id: None,
            key_file: None,
            pcrs: None,
            tcti: None,
            counter: None,
        }
    }

    /// None where images are not sealed.
    ///
    /// # Errors
    /// What is wrong with the file, in words.
    pub fn read(root: &Root) -> Result<Option<Settings>, String> {
        let path = root.path(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        Settings::parse(&text)
            .map(Some)
            .map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Settings, String> {
        let settings: Settings = toml::from_str(text).map_err(|error| error.to_string())?;
        if settings.key == Source::Passphrase && settings.passphrase_id.is_none() {
            return Err("passphrase-id is missing".to_owned());
        }
        settings
            .passphrase_id()
            .map_err(|error| error.to_string())?;
        Ok(settings)
    }

    /// Writes them.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, root: &Root) -> Result<(), String> {
        let mut text =
            "# Written by `dormouse setup-device --seal`; the initramfs holds a copy, so \
                        make it anew after each change.\n"
                .to_owned();
        let name = match self.key {
            Source::Passphrase => "passphrase",
            Source::KeyFile => "key-file",
            Source::Tpm => "tpm",
        };
        text += &format!("key = {}\n", quoted(name));
        let file = self.key_file.as_ref().map(|path| path.to_string_lossy());
        for (name, value) in [
            ("passphrase-id", self.passphrase_id.as_deref()),
            ("key-file", file.as_deref()),
            ("pcrs", self.pcrs.as_deref()),
            ("tcti", self.tcti.as_deref()),
        ] {
            if let Some(value) = value {
                text += &format!("{name} = {}\n", quoted(value));
            }
        }
        if let Some(index) = self.counter {
            text += &format!("counter = {index}\n");
        }
        let path = root.path(FILE);
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        }
        replace(&path, text.as_bytes(), Durability::Disk).map_err(|error| failed(&error))
    }

    /// What Argon2 needs, where the source is a passphrase.
    ///
    /// # Errors
    /// It is not 64 hexadecimal digits.
    pub fn passphrase_id(&self) -> Result<Option<KeyId>, KeyError> {
        let Some(text) = &self.passphrase_id else {
            return Ok(None);
        };
        let bad = || KeyError::Derive("passphrase-id is not 64 hexadecimal digits".to_owned());
        let mut id = [0; 32];
        if text.len() != 2 * id.len() || !text.is_ascii() {
            return Err(bad());
        }
        for (byte, at) in id.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| bad())?;
        }
        Ok(Some(KeyId(id)))
    }

    /// Notes what a new passphrase's key is known by.
    pub fn set_passphrase_id(&mut self, id: &KeyId) {
        let digits = id.0.iter().map(|byte| format!("{byte:02x}"));
        self.passphrase_id = Some(digits.collect());
    }

    pub fn key_path(&self, root: &Root) -> PathBuf {
        let default = Path::new(DEFAULT_KEY_FILE);
        below(root, self.key_file.as_deref().unwrap_or(default))
    }

    /// The TPM's key.
    pub fn tpm(&self, root: &Root) -> Tpm {
        let folder = below(root, Path::new(TPM_FOLDER));
        Tpm::new(folder, self.pcrs.clone(), Some(self.tcti()))
    }

    fn tcti(&self) -> String {
        self.tcti.clone().unwrap_or_else(|| DEFAULT_TCTI.to_owned())
    }

    /// The file of the TPM in /dev, where these settings need one and the kernel gives it.
    pub fn tpm_device(&self) -> Option<String> {
        let needed = self.key == Source::Tpm || self.counter.is_some();
        let tcti = needed.then(|| self.tcti())?;
        tcti.strip_prefix("device:").map(str::to_owned)
    }

    /// The counter against an older image, where there is one.
    pub fn counter(&self) -> Option<TpmCounter> {
        let index = self.counter?;
        Some(TpmCounter::new(index, Some(self.tcti())))
    }

    /// What gives the key.
    pub fn source(&self, root: &Root, ask: Ask) -> Box<dyn KeySource> {
        match self.key {
            Source::Passphrase => Box::new(Passphrase::new(ask, PassphraseCost::DEFAULT)),
            Source::KeyFile => Box::new(KeyFile::new(self.key_path(root))),
            Source::Tpm => Box::new(self.tpm(root)),
        }
    }

    /// Differs where the settings or the key differ, and tells nothing of the key: by it a sleep finds
    /// out whether the initramfs has the same ones.
    ///
    /// # Errors
    /// The key file cannot be read.
    pub fn fingerprint(&self, root: &Root) -> Result<String, KeyError> {
        let mut bytes = format!("{self:?}").into_bytes();
        match self.key {
            Source::Passphrase => {}
            Source::KeyFile => {
                let (_, id) = KeyFile::new(self.key_path(root)).create()?;
                bytes.extend(id.0);
            }
            Source::Tpm => {
                let path = below(root, Path::new(TPM_FOLDER)).join("key.pub");
                let public =
                    std::fs::read(&path).map_err(|source| KeyError::File { path, source })?;
                bytes.extend(public);
            }
        }
        Ok(format!("{:016x}", xxh64(&bytes)))
    }
}

fn below(root: &Root, path: &Path) -> PathBuf {
    root.path(path.to_string_lossy().trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passphrase() -> Settings {
        let mut settings = Settings::new(Source::Passphrase);
        settings.set_passphrase_id(&KeyId([0xa7; 32]));
        settings
    }

    #[test]
    fn what_is_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(Settings::read(&root), Ok(None));
        let tpm = Settings {
            pcrs: Some("sha256:7".to_owned()),
            tcti: Some("swtpm:path=\"a b\"".to_owned()),
            counter: Some(0x0180_d0e5),
            ..Settings::new(Source::Tpm)
        };
        let file = Settings {
            key_file: Some("/etc/other.key".into()),
            ..Settings::new(Source::KeyFile)
        };
        for settings in [passphrase(), tpm, file] {
            settings.write(&root).unwrap();
            assert_eq!(Settings::read(&root), Ok(Some(settings)));
        }
    }

    #[test]
    fn what_is_not_known_is_refused_and_not_passed_over() {
        for text in [
            "key = \"none\"",
            "key = \"passphrase\"",
            "key = \"passphrase\"\npassphrase-id = \"00\"",
            "key = \"tpm\"\npcr = \"sha256:7\"",
            "",
        ] {
            assert!(Settings::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_tpm_is_waited_for_where_key_or_counter_need_it() {
        let device = |change: fn(&mut Settings)| {
            let mut settings = passphrase();
            change(&mut settings);
            settings.tpm_device()
        };
        let usual = Some("/dev/tpmrm0".to_owned());
        assert_eq!(device(|_| ()), None);
        assert_eq!(device(|one| one.counter = Some(1)), usual);
        assert_eq!(device(|one| one.key = Source::Tpm), usual);
        let elsewhere = |one: &mut Settings| {
            one.key = Source::Tpm;
            one.tcti = Some("swtpm:path=socket".to_owned());
        };
        assert_eq!(device(elsewhere), None);
    }

    #[test]
    fn the_id_of_a_passphrase_comes_back() {
        assert_eq!(
            passphrase().passphrase_id().unwrap(),
            Some(KeyId([0xa7; 32]))
        );
    }

    #[test]
    fn another_key_or_setting_has_another_fingerprint() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let settings = Settings::new(Source::KeyFile);
        let path = settings.key_path(&root);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut found = vec![passphrase().fingerprint(&root).unwrap()];
        for key in [1u8, 2] {
            std::fs::write(&path, [key; 32]).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            found.push(settings.fingerprint(&root).unwrap());
            assert_eq!(settings.fingerprint(&root).unwrap(), found[found.len() - 1]);
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
