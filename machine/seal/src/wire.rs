//! The encryption record of the image's header: `struct dormouse_encryption`, filled.

use dormouse_image::sys;

use crate::chunks::TAG_BYTES;
use crate::error::SealError;
use crate::keys::{KeyId, SALT_BYTES};

/// Chunks of 256 KiB under AES-256-GCM, metadata under HMAC-SHA-256, keys by HKDF-SHA-256.
pub const ALGORITHM_AES_256_GCM: u32 = 1;

/// The source of the key: `key_source` of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySourceKind {
    /// A passphrase, by Argon2id.
    Passphrase,
    /// A key file or a systemd credential.
    File,
    /// Sealed to the machine's TPM.
    Tpm,
}

impl KeySourceKind {
    /// As it is stored.
    pub fn number(self) -> u32 {
        match self {
            Self::Passphrase => 1,
            Self::File => 2,
            Self::Tpm => 3,
        }
    }

    /// The source with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Passphrase, Self::File, Self::Tpm]
            .into_iter()
            .find(|kind| kind.number() == number)
    }

    /// Its name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passphrase => "passphrase",
            Self::File => "key-file",
            Self::Tpm => "tpm",
        }
    }
}

/// What an image's header says about its encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// `ALGORITHM_AES_256_GCM`, or another version's.
    pub algorithm: u32,
    /// Number of a [`KeySourceKind`].
    pub key_source: u32,
    /// Names the key.
    pub key_id: KeyId,
    /// Random, of this image alone.
    pub salt: [u8; SALT_BYTES],
    /// HMAC-SHA-256 over the metadata.
    pub tag: [u8; 32],
    /// The monotonic counter when the image was made; 0: there is none.
    pub counter: u64,
    /// Where the table of tags lies in the window; 0 until the caller sets it.
    pub tag_table_offset: u64,
    /// Its size.
    pub tag_table_bytes: u64,
}

impl Encryption {
    /// As it lies in the header.
    pub fn to_record(&self) -> sys::dormouse_encryption {
        let mut tag = [0; 64];
        tag[..32].copy_from_slice(&self.tag);
        sys::dormouse_encryption {
            algorithm: self.algorithm,
            key_source: self.key_source,
            key_id: self.key_id.0,
            nonce: self.salt,
            tag,
            counter: self.counter,
            tag_table_offset: self.tag_table_offset,
            tag_table_bytes: self.tag_table_bytes,
        }
    }

    /// The contents of a header, unchecked.
    ///
    /// # Errors
    /// An unknown algorithm or source, bytes that must be zero, or a table that is not whole.
    pub fn from_record(record: &sys::dormouse_encryption) -> Result<Self, SealError> {
        if record.algorithm != ALGORITHM_AES_256_GCM {
            return Err(SealError::Algorithm {
                found: record.algorithm,
            });
        }
        let known = KeySourceKind::from_number(record.key_source).is_some();
        let whole = record.tag_table_bytes.is_multiple_of(TAG_BYTES as u64);
        if !known || !whole || record.tag[32..].iter().any(|&byte| byte != 0) {
            return Err(SealError::Reserved);
        }
        let mut tag = [0; 32];
        tag.copy_from_slice(&record.tag[..32]);
        Ok(Self {
            algorithm: record.algorithm,
            key_source: record.key_source,
            key_id: KeyId(record.key_id),
            salt: record.nonce,
            tag,
            counter: record.counter,
            tag_table_offset: record.tag_table_offset,
            tag_table_bytes: record.tag_table_bytes,
        })
    }
}
