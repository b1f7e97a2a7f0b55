//! Sources of the master key: a passphrase, a file, the TPM.

mod file;
mod passphrase;
mod tpm;
pub(crate) mod tpm2;

use std::io;
use std::path::PathBuf;

use crate::error::SealError;
use crate::keys::{KeyId, MasterKey};
use crate::wire::KeySourceKind;

pub use file::{KeyFile, systemd_credential};
pub use passphrase::{Passphrase, PassphraseCost};
pub use tpm::Tpm;

/// Gives the same key before a sleep and after it.
pub trait KeySource {
    /// What it is, for the header.
    fn kind(&self) -> KeySourceKind;

    /// The key to seal with, and its name for the header.
    ///
    /// # Errors
    /// The source does not give it.
    fn create(&self) -> Result<(MasterKey, KeyId), KeyError>;

    /// The key that an image names.
    ///
    /// # Errors
    /// The source does not give it, or it is another one.
    fn unlock(&self, id: &KeyId) -> Result<MasterKey, KeyError>;
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// a file cannot be read or written
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// a key file that others may read
    #[error("{}: others than its owner may read it (mode {mode:o}); chmod 600 it, and make a new key if someone has", path.display())]
    Exposed {
        /// Which one.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// a key file of another length
    #[error("{}: a key has 32 bytes, this file {bytes}; make one with: head -c 32 /dev/urandom", path.display())]
    Length {
        /// Which one.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// the image names another key
    #[error("this is not the key that the image was sealed with")]
    Other,
    /// the passphrase could not be asked for
    #[error("cannot ask for the passphrase: {0}")]
    Ask(io::Error),
    /// an empty passphrase
    #[error("the passphrase is empty")]
    Empty,
    /// costs in the header that no machine of ours wrote
    #[error(
        "the image asks for {memory_kib} KiB and {passes} passes to check a passphrase; \
         that is outside of what this version writes"
    )]
    Cost {
        /// KiB.
        memory_kib: u32,
        /// Passes.
        passes: u32,
    },
    /// Argon2 failed
    #[error("deriving a key from the passphrase: {0}")]
    Derive(String),
    /// a command is missing or failed
    #[error("{program}: {reason}")]
    Command {
        /// Its name.
        program: String,
        /// What it wrote, or why it did not start.
        reason: String,
    },
    /// no random numbers
    #[error(transparent)]
    Seal(#[from] SealError),
}
