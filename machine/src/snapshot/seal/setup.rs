//! `dormouse setup-device --seal`: makes the key and the settings, and takes the settings back.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dormouse_seal::{KeySource, MasterKey, Passphrase, PassphraseCost, TpmCounter};
use dormouse_system::Root;

use super::settings::{FILE, Settings, Source};
use super::{Ask, answer_from_file, at_terminal};
use crate::error::SleepError;

/// What `--seal` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SealWith {
    /// A passphrase, asked at each sleep and at each wake
    Passphrase,
    /// A file that only root can read; the initramfs holds a copy of it
    KeyFile,
    /// The machine's TPM, with a counter against older images
    Tpm,
    /// Images stay in plain text
    None,
}

/// Whose key seals images, and how it is made.
#[derive(Debug, Clone, clap::Args)]
pub struct SealArgs {
    /// Seal images with this key, or no longer (none)
    #[arg(long, value_enum, value_name = "KEY", conflicts_with = "undo")]
    pub seal: Option<SealWith>,

    /// The key file of --seal key-file; made where it is missing [default: /etc/dormouse/seal.key]
    #[arg(long, value_name = "FILE", requires = "seal")]
    pub key_file: Option<PathBuf>,

    /// With --seal tpm: bind the key to these registers of the TPM, as tpm2-tools write them
    #[arg(long, value_name = "REGISTERS", requires = "seal")]
    pub pcrs: Option<String>,

    /// A counter in the TPM against older images, with another key than the TPM's, too
    #[arg(long, requires = "seal")]
    pub counter: bool,

    /// The TPM, as tpm2-tools name it [default: device:/dev/tpmrm0]
    #[arg(long, value_name = "TCTI", requires = "seal")]
    pub tcti: Option<String>,

    /// Read the passphrase of --seal passphrase from this file, `-` for standard input
    #[arg(long, value_name = "FILE", requires = "seal")]
    pub passphrase_file: Option<PathBuf>,
}

fn failed(detail: impl std::fmt::Display) -> SleepError {
    SleepError::Key {
        detail: detail.to_string(),
    }
}

/// Does what the arguments say about sealing; returns a sentence on how it is now.
///
/// # Errors
/// The key cannot be made, or the settings cannot be written; then they are as before.
pub(crate) fn apply(root: &Root, args: &SealArgs) -> Result<String, SleepError> {
    let key = match args.seal {
        None => return now(root),
        Some(SealWith::None) => {
            remove(root)?;
            return now(root);
        }
        Some(SealWith::Passphrase) => Source::Passphrase,
        Some(SealWith::KeyFile) => Source::KeyFile,
        Some(SealWith::Tpm) => Source::Tpm,
    };
    let mut settings = Settings::new(key);
    settings.tcti.clone_from(&args.tcti);
    match key {
        Source::Passphrase => {
            let ask = new_passphrase(args.passphrase_file.as_deref());
            let source = Passphrase::new(ask, PassphraseCost::DEFAULT);
            let (_, id) = source.create().map_err(failed)?;
            settings.set_passphrase_id(&id);
        }
        Source::KeyFile => {
            settings.key_file.clone_from(&args.key_file);
            let path = settings.key_path(root);
            make_key_file(&path).map_err(|e| failed(format!("{}: {e}", path.display())))?;
        }
        Source::Tpm => {
            settings.pcrs.clone_from(&args.pcrs);
            settings.tpm(root).enroll().map_err(failed)?;
        }
    }
    if args.counter || key == Source::Tpm {
        settings.counter = Some(TpmCounter::DEFAULT_INDEX);
        let counter = settings.counter().expect("it was just set");
        counter.define().map_err(failed)?;
    }
    settings.write(root).map_err(failed)?;
    now(root)
}

/// Images are no longer sealed; key and counter stay where they are.
///
/// # Errors
/// The settings cannot be removed.
pub(crate) fn remove(root: &Root) -> Result<String, SleepError> {
    let path = root.path(FILE);
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(format!(
            " {} is removed; a key file or a TPM's key stays in its folder.",
            path.display()
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(failed(format!("{}: {error}", path.display()))),
    }
}

fn now(root: &Root) -> Result<String, SleepError> {
    let settings = Settings::read(root).map_err(failed)?;
    let Some(settings) = settings else {
        return Ok(
            "Images are in plain text: whoever can read the devices reads memory, whoever can \
             write them can change the kernel (--seal changes that)."
                .to_owned(),
        );
    };
    let key = match settings.key {
        Source::Passphrase => "a passphrase".to_owned(),
        Source::KeyFile => format!(
            "{} (the initramfs holds a copy: keep it where only root reads it)",
            settings.key_path(root).display()
        ),
        Source::Tpm => "the TPM".to_owned(),
    };
    let replay = match settings.counter {
        Some(_) => "a counter in the TPM refuses older ones",
        None => "an older image of this machine that somebody puts back is not noticed",
    };
    Ok(format!("Images are sealed with {key}; {replay}."))
}

/// Asks twice: a slip would make each image one that nobody can open.
fn new_passphrase(file: Option<&Path>) -> Ask {
    if let Some(path) = file.map(Path::to_owned) {
        return Box::new(move || answer_from_file(&path));
    }
    Box::new(|| {
        let first = at_terminal("New passphrase for sleep images")?;
        let second = at_terminal("The same once more")?;
        if first == second {
            Ok(first)
        } else {
            Err(io::Error::other("the two are not the same"))
        }
    })
}

/// A new key, unless there is one.
fn make_key_file(path: &Path) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let key = MasterKey::random().map_err(io::Error::other)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(key.bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_made_once_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etc/seal.key");
        make_key_file(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let key = std::fs::read(&path).unwrap();
        assert_eq!(key.len(), 32);
        make_key_file(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), key);
    }

    #[test]
    fn a_machine_without_settings_is_told_that_its_images_are_readable() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert!(now(&root).unwrap().contains("plain text"));
        Settings::new(Source::KeyFile).write(&root).unwrap();
        assert!(now(&root).unwrap().contains("sealed"));
        remove(&root).unwrap();
        assert!(now(&root).unwrap().contains("plain text"));
    }
}
